"""Digests of what a result depends on: models, recipes, sources of passes, targets, packages."""
