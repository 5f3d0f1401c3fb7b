"""Formats of model files, and the skeleton that each is read into."""
