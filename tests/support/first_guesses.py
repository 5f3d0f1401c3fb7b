"""Forty everyday tasks as a stranger types them from `surgery --help` alone, and what each has to result in.

The commands are guesses: they were written before any page or help of a command was read, and are not changed. What
surgery does not do is answered with what to do instead.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.utils import extract_model

import surgery
from support import ROOT
from support.photos import write_photos

FLAT = "/model/classifier/classifier.0/Flatten_output_0"
BROKEN = "recipe: broken\nsteps:\n  - drop-identity\n  - remove-nodes: {nodes: {op: Erf}, keeps: exact}\n"
T5_LAYER = "/model/encoder/block.5/layer.0/Add_output_0"


@dataclass(frozen=True)
class Ran:
    """The result of a command: its exit code, what it printed, and what it wrote."""

    code: int
    printed: str

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def model(self) -> onnx.ModelProto:
        return onnx.load("out.onnx")

    @property
    def ops(self) -> list[str]:
        return [node.op_type for node in self.model.graph.node]

    @property
    def inputs(self) -> dict[str, list[object]]:
        return _ports(self.model.graph.input)

    @property
    def outputs(self) -> dict[str, list[object]]:
        return _ports(self.model.graph.output)

    def type_of(self, number: int = 0) -> int:
        return int(self.model.graph.input[number].type.tensor_type.elem_type)

    def weights(self) -> dict[str, np.ndarray]:
        return {one.name: numpy_helper.to_array(one) for one in self.model.graph.initializer}


@dataclass(frozen=True)
class Guess:
    """What someone wants, what they type, and the check of what they get."""

    task: str
    command: str
    check: Callable[[Ran], bool]
    slow: bool = True


def _ports(values: object) -> dict[str, list[object]]:
    return {
        one.name: [dim.dim_param or dim.dim_value for dim in one.type.tensor_type.shape.dim]
        for one in values  # type: ignore[attr-defined]
    }


def _floats_stay(ran: Ran) -> bool:
    halves = [one for one in ran.model.graph.initializer if one.data_type == TensorProto.FLOAT16]
    before = onnx.load("models/bert-tiny.onnx").graph
    return bool(halves) and [one.type for one in ran.model.graph.output] == [one.type for one in before.output]


def _has_fine_tuned_weights(ran: Ran) -> bool:
    given, found = np.load("weights.npz"), ran.weights()
    floats = [name for name in given.files if given[name].dtype == np.float32 and name in found]
    return len(floats) > 20 and all(np.array_equal(found[name], given[name]) for name in floats)


def _normalizes(ran: Ran) -> bool:
    """Compare with the arithmetic of ImageNet on the original."""
    import onnxruntime as ort

    pixels = np.random.default_rng(0).integers(0, 256, (1, 64, 64, 3), dtype=np.uint8)
    mean, std = np.float32([123.675, 116.28, 103.53]), np.float32([58.395, 57.12, 57.375])
    given = ((pixels - mean) / std).transpose(0, 3, 1, 2).astype(np.float32)
    (before,) = ort.InferenceSession("models/mobilenet-tiny.onnx").run(None, {"pixel_values": given})
    session = ort.InferenceSession("out.onnx")
    (after,) = session.run(None, {session.get_inputs()[0].name: pixels})
    return ran.type_of() == TensorProto.UINT8 and bool(np.allclose(before, after, rtol=1e-3, atol=1e-4))


def _same_as_whole(_: Ran) -> bool:
    return surgery.verify("models/resnet-tiny.onnx", "out.onnx").ok


GUESSES = (
    Guess(
        "append NMS",
        "surgery run append-nms detector.onnx -o out.onnx",
        lambda ran: ran.ok and "NonMaxSuppression" in ran.ops and len(ran.outputs) == 4,
        slow=False,
    ),
    Guess(
        "fp16 with float32 io",
        "surgery apply fp16 models/bert-tiny.onnx -o out.onnx",
        lambda ran: ran.ok and _floats_stay(ran),
    ),
    Guess(
        "batch fixed",
        "surgery set-dims models/resnet-tiny.onnx batch=1 -o out.onnx",
        lambda ran: ran.ok and ran.inputs == {"pixel_values": [1, 3, "height", "width"]},
        slow=False,
    ),
    Guess(
        "batch dynamic",
        "surgery set-dims fixed.onnx pixel_values[0]=batch -o out.onnx",
        lambda ran: ran.ok and ran.inputs["pixel_values"][0] == "batch" and ran.outputs["logits"][0] == "batch",
        slow=False,
    ),
    Guess(
        "uint8 NHWC input",
        "surgery run uint8-input models/mobilenet-tiny.onnx --mean 123.675,116.28,103.53 --std 58.395,57.12,57.375 "
        "-o out.onnx",
        lambda ran: ran.ok and _normalizes(ran),
    ),
    Guess(
        "cut the head",
        "surgery cut models/mobilenet-tiny.onnx view -o out.onnx",
        lambda ran: ran.ok and [*ran.outputs] == ["view"],
    ),
    Guess(
        "keep only an encoder",
        f"surgery extract models/t5-enc-tiny.onnx --outputs {T5_LAYER} -o out.onnx",
        lambda ran: ran.ok and [*ran.outputs] == [T5_LAYER],
    ),
    Guess(
        "two models into one",
        "surgery merge backbone.onnx head.onnx -o out.onnx",
        lambda ran: ran.ok and _same_as_whole(ran),
    ),
    Guess(
        "weights of a fine-tune",
        "surgery import-weights models/mobilenet-tiny.onnx finetuned.safetensors -o out.onnx",
        lambda ran: ran.ok and _has_fine_tuned_weights(ran),
        slow=False,
    ),
    # Only the module that is exported knows where its cache begins: surgery fixes the length of one, and fuses it.
    Guess(
        "KV cache",
        "surgery run kv-cache models/gpt2-tiny.onnx -o out.onnx",
        lambda ran: ran.code == 2 and "no pass adds a KV cache; export the model with its past keys" in ran.printed,
        slow=False,
    ),
    Guess(
        "rename inputs",
        "surgery rename models/resnet-tiny.onnx pixel_values=image -o out.onnx",
        lambda ran: ran.ok and [*ran.inputs] == ["image"],
        slow=False,
    ),
    Guess(
        "remove an output",
        "surgery remove two-outputs.onnx --output pooled -o out.onnx",
        lambda ran: ran.ok and [*ran.outputs] == ["logits"],
        slow=False,
    ),
    Guess(
        "opset 21",
        "surgery upgrade models/resnet-tiny.onnx --to 21 -o out.onnx",
        lambda ran: ran.ok and ran.model.opset_import[0].version == 21,
        slow=False,
    ),
    Guess(
        "downgrade to 13",
        "surgery downgrade models/mobilenet-tiny.onnx --to 13 -o out.onnx",
        lambda ran: ran.ok and ran.model.opset_import[0].version == 13,
    ),
    Guess(
        "int8 without data",
        "surgery apply int8 models/mobilenet-tiny.onnx -o out.onnx",
        lambda ran: ran.ok and "QuantizeLinear" in ran.ops,
    ),
    Guess(
        "int8 with images",
        "surgery apply int8 models/mobilenet-tiny.onnx --calibration images/ -o out.onnx",
        lambda ran: ran.ok and "QuantizeLinear" in ran.ops and "on synthetic inputs only" not in ran.printed,
    ),
    Guess(
        "int4 weights",
        "surgery apply int4 models/gpt2-tiny.onnx -o out.onnx",
        lambda ran: ran.ok and any(op in ran.ops for op in ("MatMulNBits", "GatherBlockQuantized")),
    ),
    Guess(
        "external weights",
        "surgery externalize models/bert-tiny.onnx -o out.onnx",
        lambda ran: ran.ok and Path("out.onnx.data").stat().st_size > 0,
        slow=False,
    ),
    Guess(
        "strip exporter paths",
        "surgery strip models/bert-tiny.onnx -o out.onnx",
        lambda ran: ran.ok and b"site-packages" not in Path("out.onnx").read_bytes(),
    ),
    Guess(
        "what differs",
        "surgery diff models/bert-tiny.onnx models/bert-tiny.ts.onnx",
        lambda ran: ran.code in (0, 1) and "nodes" in ran.printed and "1,302" in ran.printed,
        slow=False,
    ),
    Guess(
        "why not fused",
        "surgery why fuse-gelu models/bert-tiny.onnx",
        lambda ran: ran.ok and "Erf" in ran.printed,
        slow=False,
    ),
    Guess(
        "which step broke it",
        "surgery bisect broken.yaml models/bert-tiny.onnx",
        lambda ran: ran.code == 1 and "remove-nodes" in ran.printed,
    ),
    Guess(
        "histogram of operators",
        "surgery inspect models/bert-tiny.onnx",
        lambda ran: ran.ok and "MatMul" in ran.printed,
        slow=False,
    ),
    Guess(
        "which opsets",
        "surgery opset models/bert-tiny.onnx",
        lambda ran: ran.ok and "opset" in ran.printed,
        slow=False,
    ),
    Guess(
        "run only one pass",
        "surgery run fuse-conv-bn models/resnet-tiny.onnx -o out.onnx",
        lambda ran: ran.ok and "BatchNormalization" not in ran.ops,
        slow=False,
    ),
    Guess(
        "CI check",
        "surgery init models/resnet-tiny.onnx",
        lambda ran: ran.ok and Path("resnet-tiny.yaml").is_file() and any(Path(".github/workflows").iterdir()),
    ),
    Guess(
        "lock file",
        "surgery lock small.yaml",
        lambda ran: ran.ok and Path("small.lock").is_file(),
        slow=False,
    ),
    Guess(
        "batch over a folder",
        "surgery batch models/ -o out/",
        lambda ran: ran.ok and len([*Path("out").glob("*.onnx")]) == len([*Path("models").glob("*.onnx")]),
    ),
    Guess(
        "target OpenVINO",
        "surgery apply models/resnet-tiny.onnx --target openvino -o out.onnx",
        lambda ran: ran.ok and "ok for openvino" in ran.printed,
    ),
    Guess(
        "output for debugging",
        f"surgery add-output models/resnet-tiny.onnx {FLAT} -o out.onnx",
        lambda ran: ran.ok and [*ran.outputs] == ["logits", FLAT],
        slow=False,
    ),
    Guess(
        "compare two runtimes",
        "surgery verify models/resnet-tiny.onnx models/resnet-tiny.onnx --runtime openvino",
        lambda ran: ran.ok and "OpenVINO" in ran.printed,
        slow=False,
    ),
    Guess(
        "is it faster (bench)",
        "surgery bench models/resnet-tiny.onnx tidied.onnx",
        lambda ran: ran.ok and "tidied.onnx" in ran.printed,
    ),
    Guess(
        "find the slow part",
        "surgery bench models/resnet-tiny.onnx --profile",
        lambda ran: ran.ok and "Conv" in ran.printed and "%" in ran.printed,
    ),
    Guess(
        "fix an invalid model",
        "surgery check broken.onnx --fix -o fixed.onnx",
        lambda ran: ran.ok and surgery.check("fixed.onnx").ok,
        slow=False,
    ),
    Guess(
        "freeze weights listed as inputs",
        "surgery run freeze-weights listed.onnx -o out.onnx",
        lambda ran: ran.ok and [*ran.inputs] == ["pixel_values"],
        slow=False,
    ),
    Guess(
        "set weights",
        "surgery import-weights models/mobilenet-tiny.onnx weights.npz -o out.onnx",
        lambda ran: ran.ok and _has_fine_tuned_weights(ran),
        slow=False,
    ),
    Guess(
        "replace an operator",
        "surgery replace models/resnet-tiny.onnx Relu LeakyRelu -o out.onnx",
        lambda ran: ran.ok and "LeakyRelu" in ran.ops and "Relu" not in ran.ops,
        slow=False,
    ),
    Guess(
        "insert Clip",
        "surgery insert models/resnet-tiny.onnx Clip --after logits --min -10 --max 10 -o out.onnx",
        lambda ran: ran.ok and "Clip" in ran.ops and {-10, 10} <= {one.flat[0] for one in ran.weights().values()},
        slow=False,
    ),
    Guess(
        "split in pieces",
        "surgery split models/resnet-tiny.onnx 2 -o parts/",
        lambda ran: ran.ok and len([*Path("parts").glob("*.onnx")]) == 2,
    ),
    Guess(
        "reorder outputs",
        "surgery run reorder-outputs two-outputs.onnx --order pooled,logits -o out.onnx",
        lambda ran: ran.ok and [*ran.outputs] == ["pooled", "logits"],
        slow=False,
    ),
)


def write_workplace(folder: Path) -> None:
    """Write what the guesses name into a folder."""
    models = folder / "models"
    models.mkdir(parents=True)
    for name in ("resnet-tiny", "mobilenet-tiny", "bert-tiny", "bert-tiny.ts", "gpt2-tiny", "t5-enc-tiny"):
        shutil.copy(ROOT / "models" / f"{name}.onnx", models)
    text = """<ir_version: 8, opset_import: ["" : 17]>
        detector (float[batch, 8, boxes] raw) => (float[batch, 8, boxes] found) { found = Sigmoid(raw) }"""
    onnx.save(onnx.parser.parse_model(text), folder / "detector.onnx")
    resnet = onnx.load(models / "resnet-tiny.onnx")
    _write_variants(resnet, folder)
    extract_model(models / "resnet-tiny.onnx", folder / "backbone.onnx", ["pixel_values"], [FLAT])
    extract_model(models / "resnet-tiny.onnx", folder / "head.onnx", [FLAT], ["logits"])
    _write_weights(onnx.load(models / "mobilenet-tiny.onnx"), folder)
    write_photos(folder / "images", 8)
    (folder / "small.yaml").write_text("recipe: small\nsteps: [fuse-conv-bn]\n")
    (folder / "broken.yaml").write_text(BROKEN)


def _write_variants(resnet: onnx.ModelProto, folder: Path) -> None:
    """Write the model with a fixed batch, two outputs, weights as inputs, a wrong order, and tidied."""
    fixed, two, listed, broken = (copy.deepcopy(resnet) for _ in range(4))
    for port in (fixed.graph.input[0], fixed.graph.output[0]):
        port.type.tensor_type.shape.dim[0].dim_value = 1
    two.graph.node.append(helper.make_node("Identity", [FLAT], ["pooled"]))
    two.graph.output.append(helper.make_tensor_value_info("pooled", TensorProto.FLOAT, None))
    for one in listed.graph.initializer:
        listed.graph.input.append(helper.make_tensor_value_info(one.name, one.data_type, list(one.dims)))
    listed.ir_version = 8
    broken.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 11
    broken.graph.node.insert(0, broken.graph.node.pop())
    names = {"fixed": fixed, "two-outputs": two, "listed": listed, "broken": broken, "tidied": resnet}
    for name, model in names.items():
        onnx.save(model, folder / f"{name}.onnx")


def _write_weights(model: onnx.ModelProto, folder: Path) -> None:
    arrays = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    tuned = {name: array * np.float32(1.01) if array.dtype == np.float32 else array for name, array in arrays.items()}
    np.savez(folder / "weights.npz", **tuned)
    head, blob, types = {}, b"", {"float32": "F32", "int64": "I64"}
    for name, array in tuned.items():
        data = np.ascontiguousarray(array).tobytes()
        places = [len(blob), len(blob) + len(data)]
        head[name] = {"dtype": types[str(array.dtype)], "shape": [*array.shape], "data_offsets": places}
        blob += data
    written = json.dumps(head).encode()
    (folder / "finetuned.safetensors").write_bytes(len(written).to_bytes(8, "little") + written + blob)
