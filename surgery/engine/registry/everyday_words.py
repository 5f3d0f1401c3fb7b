"""What people call a task, and the passes that do it: other tools' and papers' names, abbreviations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

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
    "a16w8": ("quantize-static",),
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
    "freezeweights": ("initializers-from-inputs",),
    "freezeinitializers": ("initializers-from-inputs",),
    "freeze": ("initializers-from-inputs", "remove-training-mode", "set-dims"),
    "fuse": _FOLDING,
    "gptq": ("quantize-weights",),
    "gqa": _CACHED,
    "half": ("to-float16",),
    "imagenet": _IMAGES,
    "int16": ("quantize-static",),
    "int32": ("narrow-integers",),
    "int4": ("quantize-weights",),
    "int64": ("narrow-integers",),
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
    "qdq": ("quantize-static", "drop-needless-qdq", "qdq-to-qoperator", "dequantize", "decompose"),
    "qoperator": ("qdq-to-qoperator", "decompose", "dequantize"),
    "qgemm": ("qdq-to-qoperator", "decompose", "dequantize"),
    "qlinearconv": ("qdq-to-qoperator", "decompose", "dequantize"),
    "qlinearmatmul": ("qdq-to-qoperator", "decompose", "dequantize"),
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
    "shapeinference": ("infer-shapes", "redeclare-shapes"),
    "silu": ("fuse-swish",),
    "simplify": ("fold-constants", "simplify-reshapes", "simplify-indices", "simplify-expands", "onnxsim"),
    "smoothquant": ("smooth-activations",),
    "softmax": ("embed-postprocessing", "fuse-softmax", "fuse-log-softmax"),
    "sparsity": ("prune-weights",),
    "stacktrace": ("strip-metadata",),
    "stacktraces": ("strip-metadata",),
    "stitch": ("merge",),
    "reorderinputs": ("reorder",),
    "reorderoutputs": ("reorder",),
    "sortinputs": ("reorder",),
    "sortoutputs": ("reorder",),
    "staticshape": ("set-dims",),
    "subgraph": (*_SHORTER, "replace-subgraph", "outline"),
    "surgery": ("replace-subgraph", "replace-op", "cut", "extract", "insert-after", "bypass"),
    "tied": ("dedupe-initializers",),
    "topk": ("embed-postprocessing",),
    "truncate": _SHORTER,
    "uint16": ("quantize-static",),
    "uint8input": _IMAGES,
    "uint8": (*_IMAGES, *_INT8),
    "unroll": ("unroll-loop",),
    "yolo": ("append-nms", "embed-preprocessing"),
    "w4a16": ("quantize-weights",),
    "w8a16": ("quantize-static",),
    "w8a8": _INT8,
    "weights": ("import-weights", "set-initializer", "dedupe-initializers", "quantize-weights", "prune-weights"),
}


@dataclass(frozen=True)
class Shorthand:
    """A task that is one pass: its name, the options that the words imply, and other names of its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)


SHORTHANDS: Final[Mapping[str, Shorthand]] = {
    "a16w8": Shorthand("quantize-static", {"activation_type": "uint16"}),
    "bf16": Shorthand("to-bfloat16"),
    "constantfolding": Shorthand("fold-constants"),
    "cse": Shorthand("common-subexpressions"),
    "dce": Shorthand("drop-dead"),
    "fp16": Shorthand("to-float16"),
    "freezeinitializers": Shorthand("initializers-from-inputs"),
    "freezeweights": Shorthand("initializers-from-inputs"),
    "gptq": Shorthand("quantize-weights", {"method": "gptq"}),
    "nms": Shorthand("append-nms"),
    "reorderinputs": Shorthand("reorder", renamed={"order": "inputs"}),
    "reorderoutputs": Shorthand("reorder", renamed={"order": "outputs"}),
    "shapeinference": Shorthand("infer-shapes"),
    "smoothquant": Shorthand("smooth-activations"),
    # As image libraries return them.
    "uint8input": Shorthand("embed-preprocessing", {"dtype": "uint8", "layout": "NHWC"}),
}
"""Tasks that `surgery run` takes in place of a pass, because they mean exactly one."""


_CACHE = "no pass adds a KV cache; export the model with its past keys and values as inputs and outputs"
ABSENT: Final[Mapping[str, str]] = {"kvcache": _CACHE, "addkvcache": _CACHE, "pastkeyvalues": _CACHE}
"""Tasks that no pass does, and what to do instead."""


def absent(word: str) -> str | None:
    """Return what to do instead of a task that no pass does."""
    return ABSENT.get(_folded(word))


def shorthand(word: str) -> Shorthand:
    """Return the pass that a task means; the word itself as the name if it means none or several."""
    return SHORTHANDS.get(_folded(word), Shorthand(word))


def passes_for(word: str) -> tuple[str, ...]:
    """Return the names of the passes for what people call a task; "KV cache" and "kv-cache" are the same."""
    return EVERYDAY.get(_folded(word), ())


def _folded(word: str) -> str:
    return re.sub(r"[\s_-]", "", word.lower())
