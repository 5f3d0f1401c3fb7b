"""Patterns in ONNX text: parse, plan, match, rewrite. See `surgery.pattern.syntax` for the language."""

from surgery.pattern.match import Match
from surgery.pattern.plan import compile_pattern
from surgery.pattern.rewrite import rewrite, rewrite_any

__all__ = ["Match", "compile_pattern", "rewrite", "rewrite_any"]
