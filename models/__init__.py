"""Builders of real architectures with random weights, and the small models they built.

Needs the extra `zoo` (torch, transformers, onnxscript); the committed `.onnx` files need nothing.
"""
