"""Compute, share and merge constants."""
