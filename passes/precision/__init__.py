"""Narrower types for weights and activations, under a budget of accuracy."""
