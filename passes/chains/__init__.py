"""Chains of operators that move elements or bound them, merged into fewer."""
