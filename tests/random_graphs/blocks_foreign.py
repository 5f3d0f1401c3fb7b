"""Blocks of other domains: operators of ONNX Runtime, as its own optimizer writes them, and of ai.onnx.ml."""

from __future__ import annotations

import numpy as np
from onnx import helper

from random_graphs.blocks import block
from random_graphs.blocks_networks import F32, image
from random_graphs.trace import Trace, Unfit, Value

MS = "com.microsoft"
ML = "ai.onnx.ml"


def _wide(t: Trace) -> Value:
    return t.pick(lambda v: v.dtype == F32 and v.rank in (2, 3) and bool(v.dims[-1]) and not v.is_empty)


@block(0.5)
def contrib_activation(t: Trace) -> Value:
    """Apply an activation of ONNX Runtime, some with a bias."""
    form = t.choose(["Gelu", "FastGelu", "QuickGelu", "BiasGelu", "FastGelu with bias"])
    x = _wide(t)
    if form == "QuickGelu":
        return t.op(form, x, domain=MS, alpha=t.choose([None, 1.0, 1.702]))
    bias = [t.drawn([x.dims[-1]], F32)] if "ias" in form else []
    return t.op(form.split()[0], x, *bias, domain=MS)


@block(0.5)
def contrib_product(t: Trace) -> Value:
    """Multiply matrices in the forms that ONNX Runtime fuses."""
    form = t.choose(["FusedMatMul", "FusedMatMul", "FusedGemm", "FusedConv"])
    if form == "FusedConv":
        x = image(t)
        weight = t.drawn([2, x.dims[1], 1, 1], F32)
        bias = t.drawn([2], F32) if t.chance(0.5) else None
        return t.op(form, x, weight, bias, domain=MS, activation=t.choose(["Relu", "Tanh", "Sigmoid"]))
    x = _wide(t)
    out = t.among(1, 4)
    turned = t.among(0, 1)
    weight = t.drawn([out, x.dims[-1]] if turned else [x.dims[-1], out], F32)
    if form == "FusedGemm":
        bias = t.drawn([out], F32)
        return t.op(form, x, weight, bias, domain=MS, transB=turned, activation=t.choose(["Relu", "Tanh"]))
    y = t.op(form, x, weight, domain=MS, transB=turned, alpha=t.choose([None, 0.5]))
    return t.op(form, x, y, domain=MS, transA=1, alpha=0.25) if t.chance(0.4) else y


@block(0.5)
def contrib_norm(t: Trace) -> Value:
    """Add and normalize in one operator, of which the sum is a further output."""
    x = t.pick(lambda v: v.dtype == F32 and v.rank == 3 and bool(v.dims[-1]) and not v.is_empty)
    width = x.dims[-1]
    scale = t.drawn([width], F32)
    other = t.op("Neg", x) if t.chance(0.5) else x
    form = t.choose(["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
    shift = [t.drawn([width], F32)] if form == "SkipLayerNormalization" else []
    outputs = [t.fresh("skip"), *(["", "", t.fresh("sum")] if t.chance(0.5) else [])]
    names = [value.name for value in (x, other, scale, *shift)]
    made = t.add(helper.make_node(form, names, outputs, domain=MS, epsilon=1e-5))
    return t.choose(made) if isinstance(made, list) else made


@block(0.5)
def contrib_quantized(t: Trace) -> Value:
    """Compute on quantized values without the way back to floats."""
    x = t.float_value(rank=(1, 4), dtype=F32)
    scale, zero = t.constant(np.array(0.05, np.float32)), t.constant(np.array(t.among(0, 128), np.uint8))
    q = t.op("QuantizeLinear", x, scale, zero)
    form = t.choose(["QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu"])
    if form in ("QLinearAdd", "QLinearMul"):
        y = t.op(form, q, scale, zero, q, scale, zero, scale, zero, domain=MS)
    else:
        y = t.op(form, q, scale, zero, scale, zero, domain=MS)
    return t.op("DequantizeLinear", y, scale, zero)


@block(0.5)
def learned(t: Trace) -> Value:
    """Apply an operator of ai.onnx.ml to rows of features."""
    x = t.pick(lambda v: v.dtype == F32 and v.rank == 2 and bool(v.dims[1]) and not v.is_empty)
    width = x.dims[1] or 0
    form = t.choose(["Scaler", "Normalizer", "Binarizer", "ArrayFeatureExtractor", "LinearRegressor", "tree"])
    if form == "Scaler":
        numbers = t.rng.standard_normal([2, width])
        return t.op(form, x, domain=ML, offset=numbers[0].tolist(), scale=numbers[1].tolist())
    if form == "Normalizer":
        return t.op(form, x, domain=ML, norm=t.choose(["MAX", "L1", "L2"]))
    if form == "Binarizer":
        return t.op(form, x, domain=ML, threshold=0.3)
    if form == "ArrayFeatureExtractor":
        return t.op(form, x, t.constant(np.array([0, width - 1], np.int64)), domain=ML)
    if form == "LinearRegressor":
        return t.op(form, x, domain=ML, coefficients=t.rng.standard_normal(width).tolist(), intercepts=[0.5])
    if width < 2:
        raise Unfit
    return t.op(
        *("TreeEnsembleRegressor", x),
        domain=ML,
        n_targets=1,
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[t.among(0, width - 1), 0, 0],
        nodes_values=[0.25, 0.0, 0.0],
        nodes_modes=[t.choose(["BRANCH_LEQ", "BRANCH_LT"]), "LEAF", "LEAF"],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        target_treeids=[0, 0],
        target_nodeids=[1, 2],
        target_ids=[0, 0],
        target_weights=[1.5, -0.5],
    )
