"""Patterns in ONNX text: parse, plan, match, rewrite; and rules of recipes, which are built from patterns.

`surgery.model.patterns.pattern_text` defines the language of patterns, and `surgery.model.patterns.emission` the
language of `emit`.
"""

from surgery.model.patterns.compiled_pattern import compile_pattern
from surgery.model.patterns.match import Match
from surgery.model.patterns.rewrite import rewrite, rewrite_any

__all__ = ["Match", "compile_pattern", "rewrite", "rewrite_any"]
