"""The differences of two models."""
