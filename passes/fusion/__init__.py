"""Merge neighbours into one operator."""
