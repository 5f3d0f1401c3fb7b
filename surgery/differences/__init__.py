"""Differences between two models: operators, nodes, constants, signature, sizes, opsets, metadata."""
