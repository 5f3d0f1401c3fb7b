"""Patterns in ONNX text: parse, plan, match, rewrite; and rules of recipes, which consist of them.

`surgery.patterns.syntax` has the language of patterns, `surgery.patterns.emission` what a rule adds to it.
"""

from surgery.patterns.match import Match
from surgery.patterns.plan import compile_pattern
from surgery.patterns.rewrite import rewrite, rewrite_any

__all__ = ["Match", "compile_pattern", "rewrite", "rewrite_any"]
