"""Patterns in ONNX text: parse, plan, match, rewrite. See `surgery.patterns.syntax` for the language."""

from surgery.patterns.match import Match
from surgery.patterns.plan import compile_pattern
from surgery.patterns.rewrite import rewrite, rewrite_any

__all__ = ["Match", "compile_pattern", "rewrite", "rewrite_any"]
