"""Inline control flow and functions, and simplify the structure of a model."""
