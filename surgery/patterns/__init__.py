"""Patterns in ONNX text: parse, plan, match, rewrite; and rules of recipes, which are built from patterns.

`surgery.patterns.syntax` defines the language of patterns, and `surgery.patterns.emission` the language of `emit`.
"""

from surgery.patterns.match import Match
from surgery.patterns.plan import compile_pattern
from surgery.patterns.rewrite import rewrite, rewrite_any

__all__ = ["Match", "compile_pattern", "rewrite", "rewrite_any"]
