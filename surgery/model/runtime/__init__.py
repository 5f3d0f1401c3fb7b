"""Runs of models in worker processes: in ONNX Runtime, in the reference evaluator, in float64."""
