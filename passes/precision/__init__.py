"""Narrower types for weights and activations, within an accuracy budget."""
