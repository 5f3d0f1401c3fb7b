"""Passes: how they are declared, and where they are found."""
