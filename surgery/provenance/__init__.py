"""Provenance statements: the inputs, the tools and the verdicts behind a model."""
