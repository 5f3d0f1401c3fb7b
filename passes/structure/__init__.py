"""Inline, unroll and simplify control flow and functions."""
