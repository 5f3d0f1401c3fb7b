"""onnx-ir models from skeletons, and back, without loss."""
