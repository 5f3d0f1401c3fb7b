"""Pairs of models in ONNX text, and pieces of text that many of them use."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from surgery.model.graph import text


@dataclass(frozen=True)
class Pair:
    """Two bodies between one interface; `promise` is what a pass would say that rewrites one to the other."""

    interface: str
    before: str
    after: str
    promise: str = "exact"
    opset: int = 21
    after_opset: int = 0

    def original(self) -> onnx.ModelProto:
        return _parse(self.interface, self.before, self.opset)

    def changed(self) -> onnx.ModelProto:
        return _parse(self.interface, self.after, self.after_opset or self.opset)


def _parse(interface: str, body: str, opset: int) -> onnx.ModelProto:
    ir = 10 if opset < 23 else 11
    return text.parse(f'<ir_version: {ir}, opset_import: ["" : {opset}]>\ng {interface} {{ {body} }}')


X = "(float[N,S] x) => (float[N,S] y)"
XZ = "(float[N,S] x, float[N,S] z) => (float[N,S] y)"
IMAGE = "(float[N,2,8,8] x) => (float[N,C,H,W] y)"
NORM = "<float[2] s = {1.5, 0.5}, float[2] b = {0.1, -0.3}, float[2] m = {0.4, -0.2}, float[2] v = {0.001, 2.0}>"
KERNEL = "<float[2,2,3,3] w = {1,2,3,-1,0,2,1,1,-2, 0,1,-1,2,1,1,0,1,3, 1,0,1,-2,1,0,1,1,1, 2,1,0,1,-1,1,0,2,1}>"
SCALES = "<float[4] k = {1, 1, 2, 2}>"
SQUARE = "<float[3,3] w = {1,2,3,4,5,6,7,8,10}>"


def c(name: str, value: object, kind: str = "float") -> str:
    return f"{name} = Constant<value = {kind} {{{value}}}>() "


HEADS = "(float[B,2,S,4] q, float[B,2,S,4] k, float[B,2,S,4] v) => (float[B,2,S,4] y)"


def attention(scale: float, causal: str = "") -> str:
    return (
        f"t = Transpose<perm=[0,1,3,2]>(k) m = MatMul(q, t) {c('s', scale)} "
        f"a = Mul(m, s) {causal} p = Softmax({'n' if causal else 'a'}) y = MatMul(p, v)"
    )
