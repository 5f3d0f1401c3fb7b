"""Replace nodes with ONNX Runtime's own operators."""
