"""Infer and use shapes."""
