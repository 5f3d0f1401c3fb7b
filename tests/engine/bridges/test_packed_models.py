"""What a tool receives of a model, and what comes back into its result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from surgery.base.errors import PassError
from surgery.engine.bridges import tool_packing
from surgery.engine.bridges.tool_packing import FOLDING, SMALL, Packed, Packing, read_names
from surgery.model import storage
from surgery.model.graph import text

COUNT = SMALL // 4  # floats


def stored(folder: Path, body: str, ir_version: int = 8, **sizes: int) -> storage.StoredModel:
    """Write a model with a constant of that many floats for each name, and open it."""
    model = text.parse(f"g (float[n] x) => (float[n] y) {{ {body} }}")
    model.ir_version = ir_version
    for number, (name, size) in enumerate(sizes.items()):
        model.graph.initializer.append(numpy_helper.from_array(np.full(size, number, np.float32), name))
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="w", size_threshold=0)
    return storage.opened(folder / "m.onnx")


def packed(given: storage.StoredModel, packing: Packing) -> Packed:
    return Packed(given.proto, given.weights, packing)


def sent(model: onnx.ModelProto) -> tuple[list[str], list[str], list[str]]:
    """Return the names of inputs, of tensors by value, and of references."""
    tensors = {tensor.name: storage.is_external(tensor) for tensor in model.graph.initializer}
    inputs = [value.name for value in model.graph.input]
    return inputs, [name for name, out in tensors.items() if not out], [name for name, out in tensors.items() if out]


BODY = "a = Add(x, u) b = Mul(a, v) y = Sub(b, w)"


@pytest.mark.parametrize(
    ("packing", "expected", "large"),
    [
        (Packing(), (["x"], ["u"], ["v", "w"]), []),
        (Packing(references=False), (["x", "v", "w"], ["u"], []), []),
        (Packing(False, frozenset({"Mul"}), 8 * COUNT), (["x", "w"], ["u", "v"], []), []),
        (Packing(False, frozenset({"Mul"}), 4 * COUNT), (["x", "w"], ["u", "v"], []), []),
        (Packing(False, frozenset({"Mul"}), 4 * COUNT - 1), (["x", "v", "w"], ["u"], []), ["v"]),
        (Packing(False, frozenset({"Mul", "Sub"}), 8 * COUNT), (["x", "v", "w"], ["u"], []), ["v", "w"]),
        (Packing(False, frozenset({"Exp"}), 1 << 30), (["x", "v", "w"], ["u"], []), []),
        (Packing(False, frozenset({FOLDING}), 1 << 30), (["x", "v", "w"], ["u"], []), []),
    ],
)
def test_large_weights_are_references_inputs_or_values(
    tmp_path: Path, packing: Packing, expected: tuple[list[str], ...], large: list[str]
) -> None:
    made = packed(stored(tmp_path, BODY, u=COUNT - 1, v=COUNT, w=2 * COUNT), packing)
    assert sent(made.model) == expected and made.large == large
    assert made.data == made.model.SerializeToString()


def test_a_node_of_constants_can_be_folded(tmp_path: Path) -> None:
    given = stored(tmp_path, "c = Mul(v, u) d = Clip(v, , c) e = Add(v, x) y = Add(e, d)", u=4, v=COUNT)
    assert packed(given, Packing(False, frozenset({FOLDING}), 1 << 30)).large == []
    inputs, values, _ = sent(packed(given, Packing(False, frozenset({FOLDING}), 1 << 30)).model)
    assert (inputs, values) == (["x"], ["u", "v"])
    assert packed(given, Packing(False, frozenset({FOLDING}), 9)).large == ["v"]


def with_default(folder: Path, ir_version: int) -> storage.StoredModel:
    given = stored(folder, "y = Add(x, u)", ir_version, u=4)
    given.proto.graph.input.append(helper.make_tensor_value_info("u", 1, [4]))
    return given


@pytest.mark.parametrize(("ir_version", "values"), [(3, ["u"]), (4, [])])
def test_defaults_of_inputs_are_withheld_and_come_back(tmp_path: Path, ir_version: int, values: list[str]) -> None:
    given = with_default(tmp_path, ir_version)
    made = packed(given, Packing())
    assert sent(made.model)[:2] == (["x", "u"], values)
    result = onnx.ModelProto.FromString(made.data)
    made.unpack(result)
    assert [tensor.name for tensor in result.graph.initializer] == ["u"]
    assert [value.name for value in result.graph.input] == ["x", "u"]


def test_withheld_weights_come_back_where_they_are_read(tmp_path: Path) -> None:
    given = stored(tmp_path, BODY, u=4, v=COUNT, w=COUNT, unread=COUNT)
    made = packed(given, Packing(references=False))
    result = onnx.ModelProto.FromString(made.data)
    assert sent(result)[0] == ["x", "v", "w", "unread"]
    del result.graph.node[1]  # the tool drops the reader of v
    result.graph.node[1].input[0] = "a"
    made.unpack(result)
    inputs, values, references = sent(result)
    assert inputs == ["x"] and {*values, *references} == {"u", "w", "unread"}
    assert storage.external_reference(result.graph.initializer[1]).length == 4 * COUNT
    # A weight that the tool wrote itself is not there twice.
    result = onnx.ModelProto.FromString(made.data)
    result.graph.initializer.append(helper.make_tensor("w", 1, [1], [7.0]))
    made.unpack(result)
    assert [tensor.name for tensor in result.graph.initializer].count("w") == 1


def test_a_large_constant_node_is_withheld_and_comes_first(tmp_path: Path) -> None:
    model = text.parse("g (float[n] x) => (float[n] y) { a = Relu(x) y = Add(a, c) }")
    tensor = numpy_helper.from_array(np.ones(COUNT, np.float32), "t")
    model.graph.node.insert(1, helper.make_node("Constant", [], ["c"], "large", value=tensor))
    onnx.save(model, tmp_path / "m.onnx")
    made = packed(storage.opened(tmp_path / "m.onnx"), Packing(references=False))
    assert [node.op_type for node in made.model.graph.node] == ["Relu", "Add"] and sent(made.model)[0] == ["x", "c"]
    result = onnx.ModelProto.FromString(made.data)
    made.unpack(result)
    assert [node.op_type for node in result.graph.node] == ["Constant", "Relu", "Add"] and sent(result)[0] == ["x"]


def test_a_model_that_is_too_large_for_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = packed(stored(tmp_path, "y = Relu(x)"), Packing())
    monkeypatch.setattr(tool_packing, "MOST", made.model.ByteSize())
    assert made.data
    monkeypatch.setattr(tool_packing, "MOST", made.model.ByteSize() - 1)
    with pytest.raises(PassError, match="more than 2 GiB without its large weights"):
        _ = made.data


def test_names_that_are_read_at_any_depth() -> None:
    model = text.parse("""g (float[2] x, bool c) => (float[2] y) { y = If(c) <
        then_branch = t () => (float[2] p) { p = Neg(u) }, else_branch = e () => (float[2] q) { q = Abs(x) }> }""")
    assert {"c", "u", "x", "y"} <= read_names(model.graph)


def test_defaults_send_references() -> None:
    assert (Packing().references, Packing().readers, Packing().budget) == (True, frozenset(), 0)
    assert SMALL == 65536 and tool_packing.MOST == 2**31 - 2**20
