"""Digests of everything that a result depends on: models, recipes, sources of passes, targets, packages."""
