"""ONNX text: what is printed can be parsed again, whatever form numbers are stored in."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

from surgery.model.graph import text

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"]


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_printed_and_read_again(name: str) -> None:
    dtype = np.dtype(name)
    ends = (0, 1) if name == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    numbers = np.array([[*ends, 1], [0, 1, 0]], dtype)
    stored = numpy_helper.from_array(numbers, "w")
    assert stored.HasField("raw_data")
    held = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(numbers, "v"))
    made = helper.make_node("Identity", ["w"], ["y"])
    outputs = [helper.make_tensor_value_info(one, stored.data_type, [2, 3]) for one in ("y", "c")]
    model = helper.make_model(
        helper.make_graph([made, held], "g", [], outputs, [stored]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    before = model.SerializeToString()
    for printed in (text.print_graph(model), text.print_model(model)):
        assert "..." not in printed
        again = text.parse(printed)
        tensors = [again.graph.initializer[0], again.graph.node[1].attribute[0].t]
        for tensor in tensors:
            np.testing.assert_array_equal(numpy_helper.to_array(tensor), numbers)
            assert tensor.data_type == stored.data_type
    assert model.SerializeToString() == before
