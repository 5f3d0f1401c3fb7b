"""Checkpoints: tensors by name in the files of other frameworks."""
