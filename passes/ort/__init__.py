"""ONNX Runtime's own operators, in the place of the nodes that compute the same."""
