"""Commands and options of other tools, by what does the same here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

COMMANDS: Final = {
    "auto-opt": "apply",
    "autocomplete": "completion",
    "benchmark": "bench",
    "capture-onnx-graph": "export",
    "combine": "merge",
    "compare": "diff",
    "compose": "merge",
    "concat": "merge",
    "convert": "opset",
    "debug": "bisect",
    "delete": "remove",
    "explain": "why",
    "float16": "apply fp16",
    "histogram": "inspect",
    "info": "inspect",
    "join": "merge",
    "lint": "check",
    "list": "passes', 'surgery recipes' or 'surgery targets",
    "onnxslim": "apply",
    "open": "view",
    "profile": "bench",
    "prune": "run prune-weights",
    "quantize": "apply int8', 'surgery apply int8-dynamic' or 'surgery apply int4",
    "reduce": "bisect",
    "run-pass": "run",
    "sanitize": "apply",
    "show": "inspect",
    "slim": "apply",
    "stats": "inspect",
    "subgraph": "extract",
    "surgeon": "extract', 'surgery insert' or 'surgery apply",
    "validate": "check",
    "visualize": "view",
}
"""Names that spelling suggestions would not find."""

SYNONYMS: Final = {"--runtime": "--target"}
"""Options that mean the same as one that the command has."""

_VERIFIED = "every step is verified; to keep a result that cannot be compared, pass --unverified accept"
_SHAPE = "to fix the shape, run 'surgery set-dims MODEL NAME=1,3,224,224'; to choose sizes for runs, pass --dims NAME=N"
_SIZES = "to choose sizes for runs, pass --dims NAME=N"
_DIM = "run 'surgery set-dims MODEL NAME=N'"
_LEFT_OUT = "'surgery recipe show default' prints all steps; delete those to skip, and apply the rest"
_FUSIONS = "'surgery recipe show ort' prints all steps; delete those to skip, and apply the rest"
_INPUTS = "legal inputs are drawn; to add yours, pass --inputs PATH"
_OPSET = "run 'surgery upgrade MODEL OPSET' or 'surgery downgrade MODEL OPSET'"
_EXTERNAL = "for weights in a file next to the model, pass --layout external"
_THRESHOLD = "run 'surgery externalize MODEL -o OUT --threshold SIZE'"
_GROWTH = "run 'surgery run fold-constants MODEL --set max_growth=64KiB', or set this option in a recipe"
_MODEL = "the model is given without a flag, and the result by -o FILE"
_OUTPUT = "to write the result, pass -o FILE"
_INT8 = "run 'surgery apply int8 MODEL', or int8-dynamic"
_QUANTIZATION = (
    "quantization is a pass with options: 'surgery passes quantize-static', quantize-dynamic or quantize-weights lists "
    "them, and --set OPTION=VALUE sets them in 'surgery run'"
)
_QDQ = "the format is QDQ; the pass qdq-to-qoperator turns it into operators on integers"
_PASSES = "run 'surgery passes'"
_PASS = "run 'surgery run PASS MODEL'; several passes are steps of a recipe"
_NUMBERS = "run 'surgery apply ort MODEL', which needs no such number; 'surgery run ort-transformers' takes --set"
_EXTRACT = "run 'surgery extract MODEL --inputs NAME --outputs NAME'"
_ADD_OUTPUTS = "run 'surgery add-outputs MODEL NAME'"
_SET_ATTRIBUTE = "run 'surgery run set-attribute MODEL --set nodes=NODE --set name=NAME --set value=VALUE'"
_INSERT = "run 'surgery insert MODEL OP --after TENSOR'"
_INSPECT = "run 'surgery inspect MODEL'"
_TO_TYPE = "to change the type of an input, run 'surgery run set-dtype MODEL --set inputs={NAME:float16}'"

# MODEL stands for the model of the call. A key with a command in front is about that command only.
_OPTIONS: Final = {
    # Verification
    "--no-verify": _VERIFIED,
    "--skip-verify": _VERIFIED,
    "--certify": _VERIFIED,
    "--no-certify": _VERIFIED,
    "--model-check": _VERIFIED,
    "--model-check-inputs": _INPUTS,
    "--check-n": "every step is verified on many inputs; to add yours, pass --inputs PATH",
    "--check-rtol": "tolerances depend on the element types; a recipe sets others by the keys rtol and atol of verify",
    "--check-atol": "tolerances depend on the element types; a recipe sets others by the keys rtol and atol of verify",
    "--input-data-path": _INPUTS,
    "--input-fill": _INPUTS,
    "--input-numpy-file-paths-for-testing": _INPUTS,
    "--onnxrt": "models always run in ONNX Runtime; to compare two, run 'surgery verify A B'",
    "--trt": "to run in ONNX Runtime with TensorRT, pass --provider TensorrtExecutionProvider",
    # Shapes and dims
    "--input-shape": _SHAPE,
    "--input-shapes": _SHAPE,
    "--overwrite-input-shape": _SHAPE,
    "--override-input-shapes": _SHAPE,
    "--input-name": _SHAPE,
    "--input-names": _SHAPE,
    "--test-input-shape": _SIZES,
    "--model-inputs": _SIZES,
    "--fixed-shapes": _SIZES,
    "--batch-size": "to fix the batch, run 'surgery set-dims MODEL --batch-size N'; to choose sizes for runs, pass "
    "--dims NAME=N",
    "-b": "to choose the batch for runs, pass --dims NAME=N",
    "--initialization-character-string": "run 'surgery set-dims MODEL --batch-size NAME'",
    "-ics": "run 'surgery set-dims MODEL --batch-size NAME'",
    "--dim-param": _DIM,
    "--dim-value": _DIM,
    "--dynamic-input-shape": "dynamic dims stay dynamic",
    "--skip-shape-inference": "inferred shapes are not written; 'surgery run infer-shapes MODEL' writes them",
    "--no-shape-infer": "inferred shapes are not written; 'surgery run infer-shapes MODEL' writes them",
    "--disable-shape-inference": "inferred shapes are not written; 'surgery run infer-shapes MODEL' writes them",
    # What runs
    "--skip-optimization": _LEFT_OUT,
    "--skip-optimizations": _LEFT_OUT,
    "--skip-optimizer": _LEFT_OUT,
    "--skip-fusion-patterns": _LEFT_OUT,
    "--skip-fuse-bn": _LEFT_OUT,
    "--skip-constant-folding": _LEFT_OUT,
    "--no-constant-folding": _LEFT_OUT,
    "--no-fold-shapes": _LEFT_OUT,
    "--enable-optimization": _PASS,
    "--passes": _PASS,
    "-p": _PASS,
    "--pass-name": _PASS,
    "--pass-config": "to set an option of the pass, pass --set OPTION=VALUE",
    "--surgeries": _PASS,
    "--fixed-point": "default repeats its steps until nothing changes; so does 'repeat: until-stable' in a recipe",
    "--list-default-optimizers": _PASSES,
    "--list-other-optimizers": _PASSES,
    "--print-all-passes": _PASSES,
    "--print-fuse-elimination-passes": _PASSES,
    "--list-passes": _PASSES,
    "--include-subgraph": "passes also change subgraphs",
    "--inline-functions": "run 'surgery run inline-functions MODEL'",
    "--fold-constants": "run 'surgery run fold-constants MODEL', or 'surgery apply MODEL' for all optimizations",
    "--cleanup": "run 'surgery apply tidy MODEL'",
    "--toposort": "nodes are always written in topological order",
    "--no-large-tensor": _GROWTH,
    "--size-threshold": _GROWTH,
    "--fold-size-threshold": _GROWTH,
    "--mutable-initializer": "initializers that callers can override stay so; --freeze-weights makes constants of them",
    "--enable-onnxruntime-optimization": "run 'surgery run ort MODEL'",
    "--opt-level": "run 'surgery run ort MODEL --set level=basic', extended or all",
    "--only-onnxruntime": "run 'surgery run ort MODEL --set level=basic', extended or all",
    "--model-type": _NUMBERS,
    "--num-heads": _NUMBERS,
    "--hidden-size": _NUMBERS,
    "--disable-onnxsim": "an edit changes nothing else; 'surgery apply MODEL' simplifies",
    "--nodes-to-exclude": "to leave nodes alone, pass --except NODE; it may be repeated",
    "--node-block-list": "to leave nodes alone, pass --except NODE; it may be repeated",
    "--op-block-list": "to leave operators alone, pass --except '{op: OP}'; it may be repeated",
    "--providers": "pass --provider NAME; it may be repeated",
    "--onnx-execution-provider": "pass --provider NAME, such as CUDAExecutionProvider",
    "--custom-lib": "pass --custom-op-library FILE",
    "--cuda": "pass --provider CUDAExecutionProvider",
    "--use-gpu": "pass --target ort-cuda to optimize for CUDA, and --provider CUDAExecutionProvider to run there",
    "--device": "pass --target NAME to optimize for a runtime, and --provider NAME to run on a device",
    # Element types
    "--fp16": "run 'surgery apply fp16 MODEL'",
    "--float16": "run 'surgery apply fp16 MODEL'",
    "--fp-to-fp16": "run 'surgery apply fp16 MODEL'",
    "--fp16-quantize": "run 'surgery apply fp16 MODEL'",
    "--bf16-quantize": "run 'surgery run to-bfloat16 MODEL'",
    "--dtype": "run 'surgery apply fp16 MODEL', or 'surgery run to-float32 MODEL'",
    "--precision": "run 'surgery apply fp16 MODEL', int8, int8-dynamic or int4",
    "--input-int32": "run 'surgery run set-dtype MODEL --set inputs={NAME:int32}'",
    "--keep-io-types": "inputs and outputs keep their types; 'surgery run to-float16 MODEL --set keep_io_types=false' "
    "converts them",
    "--int8": _INT8,
    "--static-quantize": _INT8,
    "--dynamic-quantize": "run 'surgery apply int8-dynamic MODEL'",
    "--int4": "run 'surgery apply int4 MODEL'",
    "--weight-only-quantize-int4": "run 'surgery apply int4 MODEL'",
    "--weight-only-quantize": "run 'surgery run quantize-weights MODEL --set bits=8'",
    "--qoperator-quantize": _QDQ,
    "--use-qdq-format": _QDQ,
    "--use-qdq-encoding": _QDQ,
    "--quant-format": _QDQ,
    **dict.fromkeys(
        ("--algorithm", "--implementation", "--block-size", "--bits", "--per-channel", "--reduce-range"), _QUANTIZATION
    ),
    **dict.fromkeys(
        ("--weight-type", "--activation-type", "--act-precision", "--op-types-to-quantize", "--quant-method"),
        _QUANTIZATION,
    ),
    "--calibration-method": _QUANTIZATION,
    "--calibration-dataset": "pass --calibration PATH",
    # Opsets and files
    "--opset": _OPSET,
    "--target-opset": _OPSET,
    "--json": "for the report as JSON, pass --format json",
    "--save-as-external-data": _EXTERNAL,
    "--use-external-data-format": _EXTERNAL,
    "--all-tensors-to-one-file": _EXTERNAL,
    "--external-data-location": _EXTERNAL,
    "--external-data-threshold": _THRESHOLD,
    "--external-data-size-threshold": _THRESHOLD,
    "--html": "for a page, run 'surgery view MODEL' or 'surgery apply MODEL --report FILE'",
    "--dry-run": "no model is written without -o",
    "--non-verbose": "pass -q",
    "-if": _MODEL,
    "-i": _MODEL,
    "-m": _MODEL,
    "--input-model": _MODEL,
    "--input-model-path": _MODEL,
    "--input-onnx-file-path": _MODEL,
    "--input-onnx-file-paths": _MODEL,
    "--model-name-or-path": _MODEL,
    "-of": _OUTPUT,
    "--output-model": _OUTPUT,
    "--output-model-path": _OUTPUT,
    "--output-path": _OUTPUT,
    "--output-dir": _OUTPUT,
    "--output-onnx-file-path": _OUTPUT,
    # Looking at models
    "--inspect": _INSPECT,
    "--dump-to-disk": "run 'surgery inspect MODEL --format json'",
    "--show": "run 'surgery view MODEL', which shows nodes, attributes and weights",
    "--graph-diff": "run 'surgery diff MODEL OUT'",
    "--profile": "run 'surgery bench MODEL --profile'",
    "--test-loop-count": "pass --repeats N",
    "--runtime": "run 'surgery apply MODEL --target NAME' or 'surgery verify A B --target NAME'",
    "check --repair": "pass --fix -o OUT",
    # Edits
    **dict.fromkeys(
        ("run --mean", "run --std", "run --order", "run --scale", "run --iou", "run --score", "run --bits"),
        "to set an option of the pass, pass --set OPTION=VALUE",
    ),
    "-ion": _EXTRACT,
    "-oon": _EXTRACT,
    "--input-op-names": _EXTRACT,
    "--output-op-names": f"{_EXTRACT}; for more outputs, {_ADD_OUTPUTS}",
    "--onnx-outputs": _ADD_OUTPUTS,
    "--outputs": "to end the model elsewhere, run 'surgery cut MODEL --outputs NAME'; for types of outputs, 'surgery "
    "run set-dtype'",
    "--unused-output": "run 'surgery remove MODEL --outputs NAME'",
    "-rn": "run 'surgery remove MODEL NODE'",
    "--remove-node-names": "run 'surgery remove MODEL NODE'",
    "--old-new": "run 'surgery rename MODEL OLD=NEW'",
    "--search-mode": "old names may be globs: 'surgery rename MODEL OLD*=NEW*'",
    "rename --mode": "to rename only inputs or outputs, pass --kind inputs or --kind outputs",
    "-sd": "pass --connect OUTPUT=INPUT",
    "--srcop-destop": "pass --connect OUTPUT=INPUT",
    "--op-prefixes-after-merging": "pass --prefix TEXT, for the second model",
    "--add-op-type": _INSERT,
    "--add-op-name": _INSERT,
    "insert --attrs": "pass --attribute NAME=VALUE",
    "--op-name": _SET_ATTRIBUTE,
    "--attributes": _SET_ATTRIBUTE,
    "--input-constants": "run 'surgery run set-initializer MODEL --set name=NAME --set value=VALUE'",
    "--num-split": "run 'surgery split MODEL --parts N'",
}
_BEGINNINGS: Final = {"--disable-": _FUSIONS}
"""Options of which a tool has many."""

_TYPED = re.compile(r"([^:\s]+):(?:fp16|fp32|float16|float32|int32|int64)")
_DESCRIBED = re.compile(r"(\S+?):(?:auto|\[.*\]|float\d+|int\d+)(?::\w+)?")

_POSITIONAL: Final = {
    "inspect model": "leave out 'model'",
    "check lint": "leave out 'lint'",
}


def option_instead(command: str, option: str, model: str) -> str | None:
    """Return what to type instead of an option of another tool; None if it is not known."""
    name = option.partition("=")[0].replace("_", "-")
    known = _OPTIONS.get(f"{command} {name}") or _OPTIONS.get(name)
    known = known or next((text for start, text in _BEGINNINGS.items() if name.startswith(start)), None)
    return known and known.replace("MODEL", model)


def value_instead(command: str, names: Sequence[str], value: str, model: str) -> str | None:
    """Return what to type instead of a value that an option of the same name has in another tool; None for others."""
    if "--inputs" in names and value.endswith(".onnx"):
        return f"a model is not an input set; {_MODEL}"
    if command in ("extract", "cut") and {"--inputs", "--outputs"}.intersection(names):
        described = _DESCRIBED.fullmatch(value)
        return described and f"names are enough, types and shapes are inferred: {names[-1]} {described[1]}"
    typed = _TYPED.fullmatch(value) if "--inputs" in names else None
    return typed and _TO_TYPE.replace("MODEL", model).replace("NAME", typed[1])


def argument_instead(command: str, given: Sequence[str], unexpected: str) -> str | None:
    """Return what to type instead of an argument that another tool has; None for others."""
    if command == "apply" and unexpected.isdecimal():
        return "every step is verified on many inputs; to write the result, pass -o FILE"
    return _POSITIONAL.get(f"{command} {given[0]}") if given else None
