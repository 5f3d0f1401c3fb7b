"""Tree ensembles with long lists."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

TREES = 20_000


def trees(first: float, weight: float = 1.0, read: str = "a", made: str = "b") -> onnx.NodeProto:
    """Return trees of one decision each, `read`[0] <= threshold, that add `weight` or 0."""
    numbers = np.arange(TREES)
    values = np.zeros((TREES, 3), np.float32)
    values[:, 0] = first + numbers
    return helper.make_node(
        "TreeEnsembleRegressor",
        [read],
        [made],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=np.repeat(numbers, 3).tolist(),
        nodes_nodeids=[0, 1, 2] * TREES,
        nodes_featureids=[0] * 3 * TREES,
        nodes_values=values.reshape(-1).tolist(),
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"] * TREES,
        nodes_truenodeids=[1, 0, 0] * TREES,
        nodes_falsenodeids=[2, 0, 0] * TREES,
        target_treeids=np.repeat(numbers, 2).tolist(),
        target_nodeids=[1, 2] * TREES,
        target_ids=[0, 0] * TREES,
        target_weights=[weight, 0.0] * TREES,
    )
