"""Rewrite rules in recipes, as ONNX text."""
