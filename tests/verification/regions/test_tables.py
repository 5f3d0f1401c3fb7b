"""Lists of numbers in attributes that differ where no tried input reads them."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import surgery
from surgery.base.promises import Parity
from surgery.verification.verdict.verifier import Verifier

TREE = {
    # x <= 1 gives 10, else x <= 0 gives 20, which no x reaches, else 30.
    "nodes_nodeids": [0, 1, 2, 3, 4],
    "nodes_featureids": [0, 0, 0, 0, 0],
    "nodes_values": [1.0, 0.0, 0.0, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 3, 0, 0],
    "nodes_falsenodeids": [2, 0, 4, 0, 0],
}


def _model(node: onnx.NodeProto, version: int = 3) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets, ir_version=8)


def _forest(unread: float = 20.0, read: float = 30.0, trees: int = 1, backwards: bool = False) -> onnx.ModelProto:
    order = range(trees)[::-1] if backwards else range(trees)
    lists: dict[str, Any] = {name: values * trees for name, values in TREE.items()}
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=[tree for tree in order for _ in range(5)],
        target_treeids=[tree for tree in order for _ in range(3)],
        target_nodeids=[1, 3, 4] * trees,
        target_ids=[0, 0, 0] * trees,
        target_weights=[10.0, unread, read] * trees,
        **lists,
    )
    return _model(node)


def _tensors(unread: float = 20.0, read: float = 30.0) -> onnx.ModelProto:
    """Return the same tree as an operator of opset 5, whose numbers are tensors."""
    numbers = {"nodes_splits": [1.0, 0.0], "leaf_weights": [10.0, unread, read]}
    node = helper.make_node(
        "TreeEnsemble",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        tree_roots=[0],
        nodes_featureids=[0, 0],
        nodes_truenodeids=[0, 1],
        nodes_trueleafs=[1, 1],
        nodes_falsenodeids=[1, 2],
        nodes_falseleafs=[0, 1],
        leaf_targetids=[0, 0, 0],
        nodes_modes=numpy_helper.from_array(np.zeros(2, np.uint8)),
        **{name: numpy_helper.from_array(np.array(values, np.float32)) for name, values in numbers.items()},
    )
    return _model(node, 5)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (_forest, "target_weights"),
        (lambda **numbers: _forest(trees=5000, **numbers), "target_weights"),
        (_tensors, "leaf_weights"),
    ],
    ids=["small", "in the file", "tensors"],
)
def test_numbers_that_no_input_reads_are_not_verified(make: Any, name: str, tmp_path: Any) -> None:
    for file, model in (("a", make()), ("b", make(unread=21.0)), ("c", make()), ("d", make(read=31.0))):
        onnx.save(model, tmp_path / f"{file}.onnx")
    found = surgery.verify(tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert found.verdict.status == "unverified"
    assert f"the stored {name} of 'y' differ, but no tried input reads them" in found.verdict.message
    assert surgery.verify(tmp_path / "a.onnx", tmp_path / "c.onnx").verdict.status == "equal"
    assert surgery.verify(tmp_path / "a.onnx", tmp_path / "d.onnx").verdict.status == "different"


def test_a_changed_step_is_not_verified_either() -> None:
    before, after = (model.SerializeToString() for model in (_forest(), _forest(unread=21.0)))
    with closing(Verifier(before)) as verifier:
        verdict = verifier.verify(after, Parity.EXACT, before)
    assert verdict.status == "unverified" and "target_weights of 'y' differ" in verdict.message


def test_an_ensemble_of_another_structure_is_judged_by_its_runs() -> None:
    found = surgery.verify(_forest(trees=3), _forest(trees=3, backwards=True))
    assert found.verdict.status == "equal", found.verdict.message


def test_scaled_leaves_are_judged_by_what_is_computed_from_them() -> None:
    """Half of each leaf, doubled afterwards, is the same number, under the same names."""
    models = []
    for factor in (1.0, 2.0):
        model = _forest(20.0 / factor, 30.0 / factor)
        for attribute in model.graph.node[0].attribute:
            if attribute.name == "target_weights":
                attribute.floats[0] = 10.0 / factor
        model.graph.node[0].output[0] = "t"
        model.graph.node.append(helper.make_node("Mul", ["t", f"f{factor}"], ["y"]))
        model.graph.initializer.append(numpy_helper.from_array(np.array(factor, np.float32), f"f{factor}"))
        models.append(model)
    found = surgery.verify(*models)
    assert found.verdict.status == "equal", found.verdict.message
