"""Drawings of models: their history, groups and repeated blocks, and where each box stands."""
