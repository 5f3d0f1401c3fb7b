"""The standard passes, one per file, grouped by theme."""
