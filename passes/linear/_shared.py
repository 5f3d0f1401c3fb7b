"""What the passes of this folder have in common."""

GEMM_TYPES = frozenset({"FLOAT16", "FLOAT", "DOUBLE", "BFLOAT16"})
"""The types that runtimes compute Gemm in; the standard also has 32 and 64 bit integers, ONNX Runtime does not."""
