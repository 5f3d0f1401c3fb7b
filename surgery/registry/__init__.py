"""Passes: declaring and finding them."""
