"""What is inferred of results when the shape of one operand is unknown, next to the results in onnx's own tests."""

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from support import lacking

from surgery import Graph
from surgery.model import storage

_SMALL = 64
"""Up to so many elements, integers of other inputs become initializers: sizes, axes and indices."""


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    """All node tests of onnx whose inputs and outputs are arrays."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = [case for case in collect_testcases(None) if len(case.model.graph.node) <= 6]  # type: ignore[no-untyped-call]
    return [case for case in made if all(isinstance(array, np.ndarray) for part in case.data_sets[0] for array in part)]


def hidden(case: Any, index: int) -> onnx.ModelProto:
    """Return the model of a test in which one input passes through an unknown operator, which hides its shape."""
    model = copy.deepcopy(case.model)
    graph = model.graph
    kept = []
    for position, (declared, array) in enumerate(zip(list(graph.input), case.data_sets[0][0])):
        if position == index:
            for node in graph.node:
                node.input[:] = ["hidden" if name == declared.name else name for name in node.input]
            graph.node.insert(0, helper.make_node("Unknown", [declared.name], ["hidden"], domain="acme"))
            kept.append(declared)
        elif array.dtype.kind in "iub" and array.size < _SMALL:
            graph.initializer.append(numpy_helper.from_array(array, declared.name))
        else:
            kept.append(declared)
    del graph.input[:], graph.value_info[:]
    graph.input.extend(kept)
    for output in graph.output:
        output.type.tensor_type.ClearField("shape")
    model.opset_import.append(helper.make_opsetid("acme", 1))
    return model


def contradictions(case: Any) -> Iterator[str]:
    """Return what is inferred of the outputs of a test and is not so, for each input with a hidden shape."""
    results = {output.name: array.shape for output, array in zip(case.model.graph.output, case.data_sets[0][1])}
    for index in range(len(case.data_sets[0][0])):
        stored = storage.from_proto(hidden(case, index))
        for node in Graph(storage.ir_from_proto(stored.proto, stored.weights)).nodes():
            for value in node.outputs:
                found, right = value.shape, results.get(value.name)
                if found is None or right is None:
                    continue
                if len(found) != len(right) or any(isinstance(a, int) and a != b for a, b in zip(found, right)):
                    yield f"{case.name}: {found} instead of {right}, without the shape of input {index}"


_GUESSED = ("Attention", "Compress", "Expand", "FlexAttention")
"""Operators whose result the package guesses from the other operands."""


@pytest.mark.parametrize("operator", _GUESSED)
def test_results_are_not_guessed_from_the_other_operands(cases: list[Any], operator: str) -> None:
    ours = [case for case in cases if case.model.graph.node[-1].op_type == operator]
    if operator not in {schema.name for schema in onnx.defs.get_all_schemas()}:
        pytest.skip(f"this release of onnx has no {operator}")
    assert ours
    assert [found for case in ours for found in contradictions(case)] == []


@pytest.mark.slow
def test_no_result_is_guessed_if_a_shape_is_unknown(cases: list[Any]) -> None:
    assert len(cases) > (900 if lacking.are_old() else 1000)  # an older onnx brings fewer of them
    assert [found for case in cases for found in contradictions(case)] == []
