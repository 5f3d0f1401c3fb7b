"""The layout of layered graphs, over arrays of numbers."""
