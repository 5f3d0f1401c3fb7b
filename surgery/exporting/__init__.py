"""Export PyTorch modules and programs to ONNX, compare both, and clean up the result."""
