"""The opsets that a model can have."""
