"""Rewrite rules that stand in recipes, as ONNX text."""
