"""A model above 2 GB that takes almost no disk space: its weight file is sparse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

LAYERS = 9
WIDTH = 8192

_DATA = "big.onnx.data"
_EVERY = 512
_RUN = 64
_BIAS_ROOM = 1 << 16

_MODEL = """<ir_version: 9, opset_import: ["" : 20, "local" : 1]>
big (float[batch, 2, 64, 64] pixels, float[8192] gain) => (float[batch, 16] scores, float[batch, 8192] features)
<float ratio = {0.5}, bool training = {TRAINING}, int64 steps = {3}, bool go = {1},
 int64[1] first = {0}, int64[1] last = {16}, int64[1] axis = {1}>
{
    flat = Flatten(pixels)
    flow_0 = Mul(flat, gain)
    LAYERS
    narrow = Slice(features, first, last, axis)
    dropped = Dropout(narrow, ratio, training)
    looped = Loop(steps, go, dropped) <body = step (int64 i, bool c, float[batch, 16] s)
                                                   => (bool d, float[batch, 16] t) {
        d = Identity(c)
        t = Sigmoid(s)
    }>
    chosen = If(go) <then_branch = yes () => (float[batch, 16] a) { a = Neg(looped) },
                     else_branch = no () => (float[batch, 16] b) { b = Abs(looped) }>
    scores = local.Double(chosen)
}
<domain: "local", opset_import: ["" : 20]>
Double (x) => (y) { y = Add(x, x) }"""

_LAYER = "m_{0} = MatMul(flow_{0}, weight_{0}) a_{0} = Add(m_{0}, bias_{0}) flow_{1} = Gelu(a_{0})"

_HEAD = """<ir_version: 9, opset_import: ["" : 20, "local" : 1]>
head (float[batch, 8192] features) => (float[batch, 8192] best) { best = Softmax(features) }"""


def build(folder: Path) -> Path:
    """Write the model unless it exists, a copy in training mode on the same weights, a small head, and a bias file."""
    path = folder / "big.onnx"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        _write_weights(folder / _DATA)
        onnx.save(onnx.parser.parse_model(_HEAD), folder / "head.onnx")
        np.savez(folder / "bias.npz", bias_0=np.linspace(-1, 1, WIDTH, dtype=np.float32))
        _save(folder / "training.onnx", training=True)
        _save(path, training=False)
    return path


def _save(path: Path, *, training: bool) -> None:
    layers = " ".join(_LAYER.format(number, number + 1) for number in range(LAYERS))
    layers = layers.replace(f"flow_{LAYERS}", "features")
    model = onnx.parser.parse_model(_MODEL.replace("LAYERS", layers).replace("TRAINING", str(int(training))))
    for node in model.graph.node:
        prefix, _, number = node.output[0].rpartition("_")
        layer = int(number) - (prefix == "flow") if number.isdigit() else LAYERS - 1
        inside = node.op_type in ("MatMul", "Add", "Gelu")
        node.name = f"/layer.{layer}/{node.op_type}" if inside else f"/{node.op_type}"
    for name, dims, offset in _places():
        tensor = model.graph.initializer.add(name=name, dims=dims, data_type=onnx.TensorProto.FLOAT)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        entries = {"location": _DATA, "offset": offset, "length": 4 * int(np.prod(dims))}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
    path.write_bytes(model.SerializeToString())


def _places() -> list[tuple[str, list[int], int]]:
    """Return the name, dims and byte offset of each tensor."""
    size = 4 * WIDTH * WIDTH + _BIAS_ROOM
    weights = [(f"weight_{n}", [WIDTH, WIDTH], n * size) for n in range(LAYERS)]
    return weights + [(f"bias_{n}", [WIDTH], n * size + 4 * WIDTH * WIDTH) for n in range(LAYERS)]


def _write_weights(path: Path) -> None:
    """Write a few elements of each tensor, so that layers differ, and leave holes in between."""
    random = np.random.default_rng(0)
    with path.open("wb") as file:
        for number, (_, dims, offset) in enumerate(_places()):
            rows = range(0, WIDTH, _EVERY) if len(dims) == 2 else [0]
            for row in rows:
                column = (row * 7 + number) % (WIDTH - _RUN) if len(dims) == 2 else 0
                file.seek(offset + 4 * (row * WIDTH + column))
                file.write(random.standard_normal(_RUN if len(dims) == 2 else WIDTH).astype(np.float32).tobytes())
        file.truncate(LAYERS * (4 * WIDTH * WIDTH + _BIAS_ROOM))
