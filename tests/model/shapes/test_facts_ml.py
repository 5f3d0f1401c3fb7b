"""What inference says of the operators of ai.onnx.ml is what ONNX Runtime gives, for a matrix and for a vector."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument

from surgery import Graph
from surgery.model import storage

TREES = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}
LEAVES = {"treeids": [0, 0], "nodeids": [1, 2], "ids": [0, 1], "weights": [1.0, 2.0]}
CLASSES = {f"class_{name}": numbers for name, numbers in LEAVES.items()}
TARGETS = {f"target_{name}": numbers for name, numbers in LEAVES.items()}
SUPPORT: dict[str, Any] = {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 3.0], "rho": [0.0]}
OPERATORS: list[tuple[str, dict[str, Any]]] = [
    ("Binarizer", {"threshold": 0.5}),
    ("Imputer", {"imputed_value_floats": [0.0], "replaced_value_float": 1.0}),
    ("LinearClassifier", {"coefficients": [1.0, 2.0], "intercepts": [0.0], "classlabels_ints": [0, 1]}),
    ("LinearClassifier", {"coefficients": [1.0] * 4, "intercepts": [0.0] * 2, "classlabels_strings": ["a", "b"]}),
    ("LinearClassifier", {"coefficients": [1.0] * 6, "intercepts": [0.0] * 3, "classlabels_ints": [0, 1, 2]}),
    ("LinearRegressor", {"coefficients": [1.0, 2.0]}),
    ("LinearRegressor", {"coefficients": [1.0] * 6, "intercepts": [0.0] * 3, "targets": 3}),
    ("Normalizer", {"norm": "L2"}),
    ("OneHotEncoder", {"cats_int64s": [0, 1, 2]}),
    (
        "SVMClassifier",
        {
            "classlabels_ints": [0, 1],
            "coefficients": [1.0, -1.0],
            "support_vectors": [1.0, 2.0, 3.0, 4.0],
            "vectors_per_class": [1, 1],
            **SUPPORT,
        },
    ),
    ("SVMRegressor", {"coefficients": [1.0], "support_vectors": [1.0, 2.0], "n_supports": 1, **SUPPORT}),
    ("Scaler", {"offset": [0.5], "scale": [2.0]}),
    ("TreeEnsembleClassifier", {**TREES, **CLASSES, "classlabels_int64s": [0, 1]}),
    ("TreeEnsembleClassifier", {**TREES, **CLASSES, "classlabels_strings": ["a", "b", "c"]}),
    ("TreeEnsembleRegressor", {**TREES, **TARGETS, "n_targets": 2}),
    ("TreeEnsembleRegressor", {**TREES, **TARGETS, "n_targets": 3}),
]


def model(
    op: str, attributes: dict[str, Any], shape: list[int | str], places: list[int] | None = None
) -> onnx.ModelProto:
    outputs = ["label", "scores"] if op.endswith("Classifier") else ["y"]
    inputs = ["x"] if places is None else ["x", "places"]
    node = helper.make_node(op, inputs, outputs, domain="ai.onnx.ml", **attributes)
    given = [] if places is None else [onnx.numpy_helper.from_array(np.array(places), "places")]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        given,
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def inferred(proto: onnx.ModelProto) -> list[tuple[object, object]]:
    stored = storage.from_proto(proto)
    graph = Graph(storage.ir_from_proto(stored.proto, stored.weights))
    values = graph.nodes()[0].outputs
    return [(value.shape, None if value.dtype is None else value.dtype.name) for value in values]


def of_runtime(proto: onnx.ModelProto, shape: list[int]) -> list[np.ndarray[Any, Any]]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, {"x": np.ones(shape, np.float32)})]


def fits(found: tuple[object, object], array: np.ndarray[Any, Any]) -> bool:
    dims, kind = found
    kinds = {"f": "FLOAT", "i": "INT64", "O": "STRING", "U": "STRING"}
    assert isinstance(dims, tuple)
    return (
        kind == kinds[array.dtype.kind]
        and len(dims) == array.ndim
        and all(dim == extent for dim, extent in zip(dims, array.shape) if isinstance(dim, int))
    )


@pytest.mark.parametrize("shape", [[3, 2], [2]], ids=["matrix", "vector"])
@pytest.mark.parametrize(("op", "attributes"), OPERATORS, ids=[f"{n}-{op}" for n, (op, _) in enumerate(OPERATORS)])
def test_shapes_and_types_match_the_runtime(op: str, attributes: dict[str, Any], shape: list[int]) -> None:
    proto = model(op, attributes, [*shape])
    try:
        arrays = of_runtime(proto, shape)
    except (InvalidArgument, Fail):
        assert len(shape) == 1  # there is no result of which something could be known
        return
    found = inferred(proto)
    assert [fits(*pair) for pair in zip(found, arrays, strict=True)] == [True] * len(arrays), (found, arrays)


@pytest.mark.parametrize("shape", [[3, 4], [4], [2, 3, 4]], ids=str)
@pytest.mark.parametrize("places", [[0, 2], [1]], ids=str)
def test_extracted_features_match_the_runtime(shape: list[int], places: list[int]) -> None:
    proto = model("ArrayFeatureExtractor", {}, [*shape], places)
    (array,) = of_runtime(proto, shape)
    ((dims, kind),) = inferred(proto)
    assert (dims, kind) == (array.shape, "FLOAT")


def test_a_free_dim_is_kept_as_the_number_of_rows() -> None:
    assert inferred(model("Scaler", {"offset": [0.5], "scale": [2.0]}, ["N", 2])) == [(("N", 2), "FLOAT")]
    labels = {"coefficients": [1.0] * 6, "intercepts": [0.0] * 3, "classlabels_ints": [0, 1, 2]}
    assert inferred(model("LinearClassifier", labels, ["N", 2])) == [(("N",), "INT64"), (("N", 3), "FLOAT")]
