"""A small BERT to try things on: the graph of an exporter, with random weights."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NAME: Final = "bert-demo.onnx"

_LAYERS, _HIDDEN, _HEADS, _WORDS, _PLACES = 2, 32, 2, 120, 64


def demo_model() -> onnx.ModelProto:
    """Build the model; each call gives the same bytes."""
    made = _Exported()
    x = made.embeddings("input_ids")
    for number in range(_LAYERS):
        x = made.layer(f"encoder/layer.{number}", x)
    made.node("Identity", "pooler", x, output="last_hidden_state")
    graph = helper.make_graph(
        made.nodes,
        "bert",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"])],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "sequence", _HIDDEN])],
        made.weights,
    )
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8, producer_name="surgery")


class _Exported:
    """Nodes and weights, named by the modules that they come from, as exporters do."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def node(self, op: str, scope: str, *inputs: str, output: str = "", suffix: str = "", **attributes: Any) -> str:
        """Add a node, and return the name of its output."""
        name = f"/{scope}/{op}{suffix}"
        output = output or f"{name}_output_0"
        self.nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        return output

    def held(self, name: str, value: object) -> str:
        """Add a constant, and return its name."""
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, name: str, *shape: int) -> str:
        """Add a random weight."""
        return self.held(name.replace("/", "."), self._random.normal(0, 0.4, shape).astype(np.float32))

    def embeddings(self, ids: str) -> str:
        """Add the embeddings of words and of their places."""
        scope = "embeddings"
        words = self.node("Gather", f"{scope}/word", self.weight(f"{scope}/word.weight", _WORDS, _HIDDEN), ids)
        shape = self.node("Shape", scope, ids)
        one, zero = self.held("one", np.int64(1)), self.held("zero", np.int64(0))
        length = self.node("Gather", scope, shape, one)
        places = self.node("Range", scope, zero, length, one)
        table = self.weight(f"{scope}/position.weight", _PLACES, _HIDDEN)
        placed = self.node("Gather", f"{scope}/position", table, places)
        return self.dropped(f"{scope}/dropout", self.norm(f"{scope}/LayerNorm", self.node("Add", scope, words, placed)))

    def layer(self, scope: str, x: str) -> str:
        """Add one layer of the encoder."""
        attended = self.attention(f"{scope}/attention/self", x)
        x = self.residual(f"{scope}/attention/output", attended, x, _HIDDEN)
        wide = self.gelu(f"{scope}/intermediate", self.dense(f"{scope}/intermediate/dense", x, _HIDDEN, 4 * _HIDDEN))
        return self.residual(f"{scope}/output", wide, x, 4 * _HIDDEN)

    def attention(self, scope: str, x: str) -> str:
        """Add scaled dot-product attention with several heads."""
        size = _HIDDEN // _HEADS
        split = self.held(f"{scope}.split", np.array([0, 0, _HEADS, size]))
        joined = self.held(f"{scope}.joined", np.array([0, 0, _HIDDEN]))
        query, key, value = (
            self.node(
                "Transpose",
                f"{scope}/{name}",
                self.node("Reshape", f"{scope}/{name}", self.dense(f"{scope}/{name}", x, _HIDDEN, _HIDDEN), split),
                perm=order,
            )
            for name, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3]))
        )
        scale = self.held(f"{scope}.scale", np.float32(math.sqrt(size)))
        scores = self.node("Div", scope, self.node("MatMul", scope, query, key), scale)
        shares = self.dropped(f"{scope}/dropout", self.node("Softmax", scope, scores, axis=-1))
        mixed = self.node("MatMul", scope, shares, value, suffix="_1")
        return self.node("Reshape", scope, self.node("Transpose", scope, mixed, perm=[0, 2, 1, 3]), joined)

    def residual(self, scope: str, x: str, before: str, size: int) -> str:
        """Add a projection, with what was before it added, and normalized."""
        x = self.dropped(f"{scope}/dropout", self.dense(f"{scope}/dense", x, size, _HIDDEN))
        return self.norm(f"{scope}/LayerNorm", self.node("Add", scope, x, before))

    def dense(self, scope: str, x: str, before: int, after: int) -> str:
        """Add a linear layer with a bias."""
        product = self.node("MatMul", scope, x, self.weight(f"{scope}.weight", before, after))
        return self.node("Add", scope, self.weight(f"{scope}.bias", after), product)

    def dropped(self, scope: str, x: str) -> str:
        """Add a Dropout, which does nothing in inference."""
        return self.node("Dropout", scope, x)

    def norm(self, scope: str, x: str) -> str:
        """Add layer normalization in the operators of older opsets."""
        two, least = self.held(f"{scope}.two", np.float32(2)), self.held(f"{scope}.epsilon", np.float32(1e-12))
        centered = self.node("Sub", scope, x, self.node("ReduceMean", scope, x, axes=[-1]))
        squares = self.node("ReduceMean", scope, self.node("Pow", scope, centered, two), axes=[-1], suffix="_1")
        deviation = self.node("Sqrt", scope, self.node("Add", scope, squares, least))
        scaled = self.node(
            "Mul", scope, self.node("Div", scope, centered, deviation), self.weight(f"{scope}.weight", _HIDDEN)
        )
        return self.node("Add", scope, scaled, self.weight(f"{scope}.bias", _HIDDEN), suffix="_1")

    def gelu(self, scope: str, x: str) -> str:
        """Add the exact GELU: x * (1 + erf(x / sqrt(2))) / 2."""
        root, one = self.held(f"{scope}.root", np.float32(math.sqrt(2))), self.held(f"{scope}.one", np.float32(1))
        half = self.held(f"{scope}.half", np.float32(0.5))
        inner = self.node("Erf", scope, self.node("Div", scope, x, root))
        product = self.node("Mul", scope, x, self.node("Add", scope, inner, one))
        return self.node("Mul", scope, product, half, suffix="_1")
