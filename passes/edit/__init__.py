"""Change on purpose what a model is and does."""
