"""Merge chains of operators that move or clip elements."""
