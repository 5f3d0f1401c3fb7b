"""Models as their users run them: with the default options of ONNX Runtime, and the nodes that it then executes."""
