"""What people call a task, and the passes that do it: other tools' and papers' names, abbreviations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_ATTENTION = ("fuse-attention", "fuse-multi-head-attention", "fuse-group-query-attention", "fuse-packed-attention")
_CACHED = ("fuse-group-query-attention", "fuse-multi-head-attention", "broadcast-kv-heads")
_FOLDING = ("fold-constants", "fuse-conv-bn", "fold-affine")
_IMAGES = ("embed-preprocessing",)
_INT8 = ("quantize-static", "quantize-dynamic", "quantize-weights")
_LAYOUT = ("set-layout", "push-transposes", "merge-layouts")
_ROTARY = ("fuse-rotary-embedding", "fuse-contrib-rotary-embedding")
_SHORTER = ("extract", "cut", "set-outputs")
_UNUSED = ("drop-dead", "drop-identity", "drop-no-op", "drop-unused-inputs")

EVERYDAY: Final[Mapping[str, tuple[str, ...]]] = {
    "anonymize": ("strip-metadata", "rename"),
    "argmax": ("embed-postprocessing",),
    "autocast": ("to-float16", "to-bfloat16"),
    "awq": ("smooth-activations", "quantize-weights"),
    "batchnorm": ("fuse-conv-bn", "fuse-conv-bn-relu", "fold-affine"),
    "batchsize": ("set-dims",),
    "bf16": ("to-bfloat16", "to-float32"),
    "bias": ("fuse-matmul-add", "fuse-gemm-add", "drop-zero-bias", "correct-bias", "fuse-bias-gelu"),
    "bn": ("fuse-conv-bn", "fuse-conv-bn-relu"),
    "brevitas": ("drop-needless-qdq", "dequantize"),
    "calibrate": ("quantize-static",),
    "calibration": ("quantize-static",),
    "cleanup": _UNUSED,
    "combine": ("merge",),
    "compose": ("merge",),
    "concatenate": ("merge",),
    "constantfolding": ("fold-constants",),
    "cse": ("common-subexpressions",),
    "dce": ("drop-dead",),
    "deadcode": ("drop-dead",),
    "debug": ("add-outputs", "insert-after"),
    "dedup": ("dedupe-initializers", "common-subexpressions"),
    "deduplicate": ("dedupe-initializers", "common-subexpressions"),
    "docstring": ("strip-metadata", "set-metadata"),
    "docstrings": ("strip-metadata", "set-metadata"),
    "detection": ("append-nms",),
    "dynamicbatch": ("set-dims",),
    "dynamicshape": ("set-dims", "infer-shapes"),
    "extractor": ("extract",),
    "fakequant": ("drop-needless-qdq", "dequantize"),
    "filepaths": ("strip-metadata",),
    "finetune": ("import-weights", "set-initializer"),
    "flash": _ATTENTION,
    "flashattention": _ATTENTION,
    "folding": _FOLDING,
    "fp16": ("to-float16", "to-float32"),
    "fp32": ("to-float32", "dequantize"),
    "freeze": ("initializers-from-inputs", "remove-training-mode", "set-dims"),
    "fuse": _FOLDING,
    "gptq": ("quantize-weights",),
    "gqa": _CACHED,
    "half": ("to-float16",),
    "imagenet": _IMAGES,
    "int4": ("quantize-weights",),
    "int8": _INT8,
    "kvcache": _CACHED,
    "layernorm": ("fuse-layer-norm", "fuse-skip-layer-norm"),
    "join": ("merge",),
    "lora": ("import-weights", "set-initializer", "merge"),
    "mean": (*_IMAGES, "fuse-reduce-mean"),
    "mha": _ATTENTION,
    "mixedprecision": ("to-float16", "to-bfloat16"),
    "moe": ("fuse-moe",),
    "nchw": _LAYOUT,
    "nonmaximumsuppression": ("append-nms",),
    "nonmaxsuppression": ("append-nms",),
    "nhwc": (*_LAYOUT, *_IMAGES),
    "nms": ("append-nms", "merge"),
    "normalization": (*_IMAGES, "fuse-layer-norm", "fuse-rms-norm", "fuse-conv-bn"),
    "normalize": (*_IMAGES, "fuse-layer-norm", "fuse-rms-norm"),
    "opset": ("upgrade-opset", "downgrade-opset"),
    "pagedattention": _CACHED,
    "postprocess": ("embed-postprocessing",),
    "preprocess": _IMAGES,
    "privacy": ("strip-metadata",),
    "producer": ("strip-metadata", "set-metadata"),
    "prune": ("prune-weights", "drop-dead", "remove-outputs"),
    "ptq": _INT8,
    "qat": ("drop-needless-qdq", "dequantize"),
    "qdq": ("quantize-static", "drop-needless-qdq", "dequantize"),
    "quant": _INT8,
    "relu6": ("fuse-clip", "merge-bounds"),
    "permute": ("reorder", "push-transposes"),
    "positional": ("reorder",),
    "reshape": ("simplify-reshapes", "merge-reshapes", "drop-reshapes-around-matmul", "set-dims"),
    "resize": _IMAGES,
    "rmsnorm": ("fuse-rms-norm", "fuse-skip-rms-norm"),
    "rope": _ROTARY,
    "rotary": _ROTARY,
    "scrub": ("strip-metadata",),
    "sdpa": _ATTENTION,
    "shapeinference": ("infer-shapes",),
    "silu": ("fuse-swish",),
    "simplify": ("fold-constants", "simplify-reshapes", "simplify-indices", "simplify-expands", "onnxsim"),
    "smoothquant": ("smooth-activations",),
    "softmax": ("embed-postprocessing", "fuse-softmax", "fuse-log-softmax"),
    "sparsity": ("prune-weights",),
    "stacktrace": ("strip-metadata",),
    "stacktraces": ("strip-metadata",),
    "stitch": ("merge",),
    "sortinputs": ("reorder",),
    "staticshape": ("set-dims",),
    "subgraph": (*_SHORTER, "replace-subgraph", "outline"),
    "surgery": ("replace-subgraph", "replace-op", "cut", "extract", "insert-after", "bypass"),
    "tied": ("dedupe-initializers",),
    "topk": ("embed-postprocessing",),
    "truncate": _SHORTER,
    "uint8": (*_IMAGES, *_INT8),
    "unroll": ("unroll-loop",),
    "yolo": ("append-nms", "embed-preprocessing"),
    "w4a16": ("quantize-weights",),
    "weights": ("import-weights", "set-initializer", "dedupe-initializers", "quantize-weights", "prune-weights"),
}


def passes_for(word: str) -> tuple[str, ...]:
    """Return the names of the passes for what people call a task; "KV cache" and "kv-cache" are the same."""
    return EVERYDAY.get(re.sub(r"[\s_-]", "", word.lower()), ())
