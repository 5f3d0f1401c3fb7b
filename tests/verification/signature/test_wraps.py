"""Nodes around the original where a pass says how an input or an output follows from the previous ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from surgery.base.errors import PassError
from surgery.model.graph import text
from surgery.model.graph.signature_mappings import Joined, Pieces, Relation
from surgery.model.proto.dataflow import Flow
from surgery.model.proto.signature import SignaturePort, signature
from surgery.verification.comparing.ports import PortMatch, by_name
from surgery.verification.inputs.spec import DataSpec, GeneratorSpec, InputsSpec, TensorSpec, VerifySpec
from surgery.verification.signature import carrying
from surgery.verification.signature.carrying import carry
from surgery.verification.signature.piecewise import Piecewise
from surgery.verification.signature.relating import (
    Amid,
    Behind,
    Instead,
    NodesUpstream,
    Settled,
    _RelationLines,
    settle,
)
from surgery.verification.signature.terms import Freed, _differ_in_type, _follow, _freed, see

MODEL = "g (float[2] x, float[2] w) => (float[2] y) { a = Neg(x) b = Mul(a, w) y = Exp(b) }"


def _model(source: str = MODEL) -> onnx.ModelProto:
    return text.parse(source, opset=18)


def _lines(model: onnx.ModelProto) -> list[str]:
    """Return the nodes as text."""
    return [f"{', '.join(node.output)} = {node.op_type}({', '.join(node.input)})" for node in model.graph.node]


def _ports(model: onnx.ModelProto) -> list[str]:
    return [port.name for port in model.graph.input]


def _port(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])


# Wraps


def test_nodes_upstream_take_the_place_of_an_input() -> None:
    wrap = NodesUpstream(text.parse_nodes("x = Abs(image)"), "x", [_port("image"), _port("w")])
    found = wrap.apply(_model())
    assert _lines(found) == ["x = Abs(image)", "a = Neg(x)", "b = Mul(a, w)", "y = Exp(b)"]
    assert _ports(found) == ["image", "w"] and _ports(_model()) == ["x", "w"]
    # A value with the name of a new input gets another name, and a default of the previous input is dropped.
    model = _model()
    for name in ("x", "w"):
        model.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), name))
    found = NodesUpstream(text.parse_nodes("x = Abs(a)"), "x", [_port("a")]).apply(model)
    assert _lines(found)[:3] == ["x = Abs(a)", "value_0 = Neg(x)", "b = Mul(value_0, w)"]
    assert _ports(found) == ["a", "w"] and [tensor.name for tensor in found.graph.initializer] == ["w"]
    # The input may keep its name.
    found = NodesUpstream(text.parse_nodes("x = Abs(x)"), "x", [_port("x")])
    assert _lines(found.apply(_model()))[:2] == ["value_0 = Abs(x)", "a = Neg(value_0)"]
    assert _ports(found.apply(_model())) == ["x", "w"]


def test_nodes_of_another_domain_import_it() -> None:
    found = NodesUpstream(text.parse_nodes("x = d.Abs(image)"), "x", [_port("image")]).apply(_model())
    assert {item.domain: item.version for item in found.opset_import} == {"": 18, "d": 1}
    assert len(Behind(text.parse_nodes("z = Abs(y)"), "z").apply(_model()).opset_import) == 1


def test_nodes_downstream() -> None:
    assert _lines(Behind(text.parse_nodes("z = Abs(y)"), "z").apply(_model()))[-1] == "z = Abs(y)"
    # A value with the name of the new one gets another name, also where the nodes read it.
    assert _lines(Behind(text.parse_nodes("b = Add(b, y)"), "b").apply(_model()))[1:] == [
        "value_0 = Mul(a, w)", "y = Exp(value_0)", "b = Add(value_0, y)",
    ]  # fmt: skip


def test_nodes_at_a_value_are_read_in_its_place() -> None:
    wrap = Amid(
        text.parse_nodes("f = Cast<to = 10>(a)"), text.parse_nodes("again = Cast<to = 1>(f)"), "a", "f", "again"
    )
    assert _lines(wrap.apply(_model())) == [
        "a = Neg(x)", "f = Cast(a)", "again = Cast(f)", "b = Mul(again, w)", "y = Exp(b)",
    ]  # fmt: skip
    # Also by nodes of branches, and by their outputs.
    body = "t () => (float[2] p) { p = Abs(a) }"
    model = _model(f"g (float[2] x, bool c) => (float[2] y) {{ a = Neg(x) y = If(c) <then_branch = {body}, "
                   f"else_branch = e () => (float[2] q) {{ q = Identity(a) }}> }}")  # fmt: skip
    model.graph.node[1].attribute[1].g.output[0].name = "a"
    found = wrap.apply(model).graph.node[3]
    assert found.attribute[0].g.node[0].input[0] == "again" and found.attribute[1].g.output[0].name == "again"
    # At an input, they come first.
    wrap = Amid(text.parse_nodes("f = Abs(x)"), text.parse_nodes("again = Neg(f)"), "x", "f", "again")
    assert _lines(wrap.apply(_model()))[:3] == ["f = Abs(x)", "again = Neg(f)", "a = Neg(again)"]


def test_nodes_in_place_of_another() -> None:
    held = numpy_helper.from_array(np.ones(2, np.float32), "a")
    assert _lines(Instead("b", text.parse_nodes("b = Add(a, w)")).apply(_model())) == [
        "a = Neg(x)", "b = Add(a, w)", "b_1 = Mul(a, w)", "y = Exp(b)",
    ]  # fmt: skip
    found = Instead("a", constants=[held]).apply(_model())
    assert _lines(found)[:2] == ["a_1 = Neg(x)", "b = Mul(a, w)"] and [*found.graph.initializer] == [held]
    assert Instead("none", constants=[held]).apply(_model()) == _model()


def test_pieces_are_split_run_and_joined() -> None:
    model = _model("g (float[2,3] x, float[3] w) => (float[2,3] y, float[3] v) { a = Neg(x) y = Mul(a, w) v = Exp(w) }")
    model.graph.node[0].name = "n"
    found = Piecewise({"x": 0}, {"y": 0}, 2).apply(model)
    assert _lines(found) == [
        "piece_0/x, piece_1/x = Split(x)",
        *(line for n in (0, 1) for line in (
            f"piece_{n}/a = Neg(piece_{n}/x)", f"piece_{n}/y = Mul(piece_{n}/a, w)", f"piece_{n}/v = Exp(w)",
        )),
        "y = Concat(piece_0/y, piece_1/y)",
        "v = Identity(piece_0/v)",
    ]  # fmt: skip
    assert found.graph.node[1].name == "piece_0/n" and not found.graph.node[2].name
    shapes = [
        [dim.dim_value for dim in port.type.tensor_type.shape.dim] for port in (*found.graph.input, *found.graph.output)
    ]
    assert shapes == [[4, 3], [3], [4, 3], [3]]
    assert helper.get_node_attr_value(found.graph.node[0], "num_outputs") == 2
    model.opset_import[0].version = 17
    model.graph.node[1].output[0] = "piece_"
    found = Piecewise({"x": 1}, {}, 2).apply(model)
    assert [attribute.name for attribute in found.graph.node[0].attribute] == ["axis"]
    assert _lines(found)[0] == "_piece_0/x, _piece_1/x = Split(x)"
    # An input that is an output is whole already.
    both = _model("g (float[2] x) => (float[2] x, float[2] y) { y = Neg(x) }")
    assert _lines(Piecewise({"x": 0}, {"x": 0, "y": 0}, 2).apply(both))[3:] == ["y = Concat(piece_0/y, piece_1/y)"]


# Accounts of passes


def _settled(*accounts: Any, changed: str = MODEL, match: PortMatch | None = None, original: str = MODEL) -> Settled:
    first, second = _model(original), _model(changed)
    return settle(accounts, first, second, match or by_name(first, second))


def test_an_input_that_follows_from_another() -> None:
    changed = MODEL.replace("float[2] x", "float[1,2] image").replace("Neg(x)", "Neg(image)")
    match = PortMatch((("x", "x"), ("w", "w")), (("y", "y"),))
    relation = Relation("input", "x", "s = Squeeze(i, axes)", {"i": "image"}, {"axes": np.array([0])})
    found = _settled(relation, changed=changed, match=match)
    lines = ["relation_0/axes = Constant()", "x = Squeeze(image, relation_0/axes)", "a = Neg(x)"]
    assert _lines(found.around(_model()))[:3] == lines
    assert (found.gone, found.outdated, found.inputs) == ({"x"}, {"x"}, [("image", "image")])
    assert found.inverses == [] and found.outputs == []
    # The next step has a number of its own.
    again = _model()
    again.graph.node[0].output[0] = again.graph.node[1].input[0] = "relation_4/a"
    second = settle([relation], again, _model(changed), match)
    assert _lines(second.around(again))[0] == "relation_5/axes = Constant()"


def test_an_input_with_an_inverse() -> None:
    changed = MODEL.replace("float[2] x", "float[2] image").replace("Neg(x)", "Neg(image)")
    match = PortMatch((("x", "x"), ("w", "w")), (("y", "y"),))
    relation = Relation("input", "x", "t = Neg(i)", {"i": "image"}, inverse="i = Neg(t)")
    found = _settled(relation, changed=changed, match=match)
    ((nodes, name),) = found.inverses
    assert name == "image" and [[*node.input, *node.output] for node in nodes] == [["given/x", "image"]]
    # An input that stays may be read, too.
    relation = Relation("input", "x", "t = Mul(i, w)", {"i": "image"})
    found = _settled(relation, changed=changed, match=match)
    assert _lines(found.around(_model()))[0] == "x = Mul(image, w)" and ("w", "w") in found.inputs


def test_an_account_that_makes_no_sense() -> None:
    with pytest.raises(PassError, match="input 'x' is related to 'image', but the changed model has no such input"):
        _settled(Relation("input", "x", "x = Neg(image)"))
    with pytest.raises(PassError, match="an output 'z' is related to an output of the previous model that does not"):
        _settled(Relation("output", "z", "z = Neg(y)"))
    with pytest.raises(PassError, match="a relation of 'z' has no effect: ''"):
        _RelationLines(Relation("output", "z", ""), "", "")
    # What the original does not have is not compared.
    assert _settled(Relation("input", "none", "none = Neg(x)")).wraps == []
    assert _settled(Relation("output", "y", "y = Neg(none)")).wraps == []


def test_an_output_that_follows_from_others() -> None:
    changed = MODEL.replace("float[2] y", "float[2] z").replace("y = Exp", "z = Exp")
    match = PortMatch((("x", "x"), ("w", "w")), (("y", "y"),))
    relation = Relation("output", "z", "t = Neg(y) z = Add(t, x)")
    found = _settled(relation, changed=changed, match=match)
    assert _lines(found.around(_model()))[-2:] == ["relation_0/0/t = Neg(y)", "z = Add(relation_0/0/t, x)"]
    assert found.outputs == [("z", "z")] and not found.outdated and not found.gone
    # The previous output with the same name, and one that reads an output of the same step.
    found = _settled(Relation("output", "y", "y = Neg(y)"), Relation("output", "y", "y = Abs(y)"))
    assert _lines(found.around(_model()))[2:] == ["value_0 = Exp(b)", "y = Neg(value_0)", "y_1 = Abs(y)"]
    assert found.outputs == [("y", "y"), ("y_1", "y")] and found.outdated == {"y"}


def test_values_inside_the_original_that_are_inputs_of_a_changed_piece() -> None:
    piece = "g (float[2] a, float[2] w) => (float[2] y) { b = Mul(a, w) y = Exp(b) }"
    match = PortMatch((("w", "w"),), (("y", "y"),), (("a", "a"),))
    # An inner value that becomes a constant.
    bound = _model(piece.replace("float[2] a, ", ""))
    bound.graph.initializer.append(numpy_helper.from_array(np.float32([5, 6]), "a"))
    found = settle([], _model(), bound, match)
    (tensor,) = found.around(_model()).graph.initializer
    assert tensor.name == "a" and numpy_helper.to_array(tensor).tolist() == [5, 6]
    # One that gets another form is computed inside the original, there and back.
    halved = piece.replace("float[2] a", "float16[2] h").replace("Mul(a", "Mul(h")
    relation = Relation("input", "a", "a = Cast<to = 1>(h)", inverse="h = Cast<to = 10>(a)")
    found = settle([relation], _model(), _model(halved), match)
    assert _lines(found.around(_model()))[:4] == [
        "a = Neg(x)", "h = Cast(a)", "relation_0/again = Cast(h)", "b = Mul(relation_0/again, w)",
    ]  # fmt: skip
    assert found.inner == [("h", "h")] and not found.gone
    # Without an inverse, it is computed from inputs that stay.
    relation = Relation("input", "a", "a = Neg(w)")
    lines = _lines(settle([relation], _model(), _model(piece.replace("float[2] a, ", "")), match).around(_model()))
    assert lines[:2] == ["a = Neg(w)", "a_1 = Neg(x)"]
    assert settle([relation], _model(), _model(piece), match).wraps == []


@pytest.mark.parametrize(
    ("forth", "back"),
    [("h = Mul(a, w)", "a = Neg(h)"), ("h = Neg(w)", "a = Neg(h)"), ("h = Neg(a)", "a = Mul(h, w)")],
)
def test_values_inside_the_original_that_do_not_follow_back(forth: str, back: str) -> None:
    piece = _model("g (float[2] h, float[2] w) => (float[2] y) { b = Mul(h, w) y = Exp(b) }")
    match = PortMatch((("w", "w"),), (("y", "y"),), (("a", "a"),))
    found = settle([Relation("input", "a", back, inverse=forth)], _model(), piece, match)
    assert _lines(found.around(_model())) == [*_lines(_model()), forth] and found.inner == [("h", "h")]


def test_names_that_values_of_the_original_have() -> None:
    # `w` is another input now, and the previous one is computed from one whose name was taken for that.
    changed = _model("g (float[2] w, float[2] w_1) => (float[2] y) { b = Mul(w, w_1) y = Exp(b) }")
    accounts = [Relation("input", "x", "x = Neg(w)"), Relation("input", "v", "v = Clip(w_1, , w)")]
    found = settle(accounts, _model(), changed, PortMatch((("x", "x"), ("w", "v")), (("y", "y"),)))
    assert found.inputs == [("w_1", "w"), ("w_1_1", "w_1")]
    assert _lines(found.around(_model()))[:2] == ["w = Clip(w_1_1, , w_1)", "x = Neg(w_1)"]
    # An output that has the name of an input that is gone.
    changed = _model("g (float[2] image, float[2] w) => (float[2] x) { b = Mul(image, w) x = Exp(b) }")
    accounts = [Relation("input", "x", "x = Neg(image)"), Relation("output", "x", "x = Neg(y)")]
    found = settle(accounts, _model(), changed, PortMatch((("x", "x"), ("w", "w")), (("y", "y"),)))
    assert found.outputs == [("x_1", "x")] and found.outdated == {"x"}
    # An output that has the name that another one had.
    relation = Relation("output", "y", "y = Neg(z)")
    found = _settled(relation, match=PortMatch((("x", "x"), ("w", "w")), (("y", "z"),)))
    assert found.outputs == [("y_1", "y")] and not found.outdated
    # What a current input does not say about another is no inverse of it.
    relation = Relation("input", "x", "x = Neg(image)", inverse="other = Neg(x)")
    found = settle([relation], _model(), changed, PortMatch((("x", "x"), ("w", "w")), ()))
    assert found.inverses == []


def test_pieces_and_joined_models() -> None:
    found = _settled(Pieces({"x": 0, "w": 0}, {"y": 0, "none": 0}, 2))
    (wrap,) = found.wraps
    assert wrap == Piecewise({"x": 0, "w": 0}, {"y": 0}, 2) and found.outdated == {"x", "w", "y"}
    assert _settled(Pieces({"x": 0, "none": 0}, {"y": 0}, 2)).wraps == []
    other = _model("g (float[2] i, float[2] k) => (float[2] o) { o = Add(i, k) }").SerializeToString()
    changed = MODEL.replace("float[2] w)", "float[2] w, float[2] p_k)").replace(
        "float[2] y)", "float[2] y, float[2] p_o)"
    )
    found = _settled(Joined(other, {"i": "y"}, "p_"), changed=changed)
    assert _lines(found.around(_model()))[-2:] == ["p_i = Identity(y)", "p_o = Add(p_i, p_k)"]
    assert (found.inputs, found.outputs) == ([("p_k", "p_k")], [("p_o", "p_o")])
    with pytest.raises(
        PassError, match="the model that is joined cannot be compared: the other model has no input 'j'"
    ):
        _settled(Joined(other, {"j": "y"}, "p_"))


# What is compared


def test_inputs_and_outputs_are_followed() -> None:
    original, changed = (
        _model(),
        _model("g (float[2] u, float[2] b) => (float[2] y, float[2] a, float[2] new) { y = Exp(b) }"),
    )
    match = PortMatch((("x", "x"), ("w", "w")), (("y", "z"),))
    found = _follow(match, signature(changed), {"x": "u", "z": "y"}, Flow(original.graph), Settled())
    assert found == PortMatch((("x", "u"),), (("y", "y"), ("a", "a")), (("b", "b"),))
    settled = Settled(gone={"x"}, inputs=[("w", "u")], outputs=[("y", "new")], inner=[("a", "b")])
    found = _follow(match, signature(changed), {"z": "new"}, Flow(original.graph), settled)
    assert found == PortMatch((("w", "u"),), (("y", "new"), ("y", "y"), ("a", "a")), (("a", "b"),))


def test_the_original_is_seen_through_another_signature() -> None:
    original = _model(
        "g (float[4,n] x, float[2] w, float[2] k) => (float[2] y, float[2] z) { y = Neg(x) z = Mul(w, k) }"
    )
    changed = _model("g (float[m,n] x, float[2] new) => (float[2] z) { z = Neg(x) }")
    changed.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "w"))
    match = by_name(original, changed)
    found = see(original, changed, match)
    # An input takes the value of the changed model, and one without a value is varied.
    assert _ports(found) == ["x", "k"] and [tensor.name for tensor in found.graph.initializer] == ["w"]
    assert [output.name for output in found.graph.output] == ["z"]
    # A dim that was a number stays that number.
    dims = found.graph.input[0].type.tensor_type.shape.dim
    assert (dims[0].dim_value, dims[1].dim_param) == (4, "n")
    assert [*_freed(original, changed, match)] == [Freed("x", 0, 4)]
    original.ir_version = 3
    assert _ports(see(original, changed, match)) == ["x", "w", "k"]
    # Also where the new dim has no name.
    changed.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    assert see(original, changed, match).graph.input[0].type.tensor_type.shape.dim[0].dim_value == 4


def test_types_that_differ() -> None:
    other = _model(MODEL.replace("float[2] y", "float16[2] y"))
    match = by_name(_model(), other)
    assert _differ_in_type(signature(_model()), signature(other), match)
    assert not _differ_in_type(signature(_model()), signature(_model()), match)
    assert not _differ_in_type(signature(_model()), signature(other), PortMatch(match.inputs, ()))


def test_settings_of_inputs_are_carried_over() -> None:
    before = _model("g (float[n,m] x, int64[2] i, float[2] w) => (float[2] y) { y = Neg(x) }")
    after = _model("g (float[k,3] u, int32[2] i, float[2] w) => (float[2] y) { y = Neg(u) }")
    tensors = {name: TensorSpec(range=(0, 1)) for name in ("x", "i", "w")}
    generator = GeneratorSpec(Path("g.py"), "make")
    inputs = InputsSpec({"n": (4,), "m": (3,)}, tensors, generator=generator, only_given=True)
    ones = {"i": np.ones(2), "w": np.ones(2)}
    given = [
        DataSpec(Path("unread")),
        DataSpec(Path("fits"), {"x": np.ones((9, 3)), **ones, "y": np.ones(2), "label": 1}),
        DataSpec(Path("wide"), {"x": np.ones((9, 4)), **ones}),
        DataSpec(Path("flat"), {"x": np.ones(3), **ones}),
        DataSpec(Path("few"), {"x": np.ones((9, 3))}),
    ]
    found, remarks = carry(inputs, given, signature(before), after, VerifySpec(), names={"x": "u"})
    assert found.dims == {"n": (4,), "m": (3,), "k": (4,)}
    # The type of one has changed.
    assert {*found.tensors} == {"u", "w"} and found.only_given
    (kept,) = found.data
    assert kept.arrays is not None and {*kept.arrays} == {"u", "i", "w", "y"} and kept.found
    assert remarks == tuple(
        f"the inputs '{name}' no longer fit the model and are left out" for name in ("wide", "flat", "few")
    )
    assert found.generator is not None and found.generator.gone == frozenset()
    # What has another form is not carried over, and without sets nothing is given.
    found, _ = carry(inputs, given, signature(before), after, VerifySpec(), settled=Settled(outdated={"x", "w"}))
    assert found.data == () and not found.only_given and not found.tensors and found.generator is not None
    assert found.generator.gone == {"x", "w"}
    assert carry(inputs, [], signature(before), after, VerifySpec())[0].only_given


@pytest.mark.parametrize(
    ("inverses", "outcome", "found"),
    [
        (["image = Neg(x)"], None, [-1, -2]),
        (["t = Neg(x) image = Mul(w, t)"], None, [-3, -8]),
        (["none = Neg(x)", "image = Neg(x)"], None, [-1, -2]),
        (["none = Neg(x)"], None, None),
        (["image = Neg(x)"], SimpleNamespace(failure="it crashed", runs=()), None),
        (["image = Neg(x)"], SimpleNamespace(failure=None, runs=["it failed"]), None),
    ],
)
def test_sets_of_inputs_in_another_form(
    inverses: list[str], outcome: Any, found: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    class Engine:
        def __init__(self, *_: Any) -> None:
            pass

        def run(self, data: bytes, feeds: list[dict[str, Any]]) -> Any:
            model = onnx.load_model_from_string(data)
            assert _ports(model) == [*feeds[0]]
            names = [output.name for output in model.graph.output]
            made = [dict(zip(names, ReferenceEvaluator(model).run(None, feed))) for feed in feeds]
            return outcome or SimpleNamespace(failure=None, runs=made)

        def close(self) -> None:
            closed.append(self)

    monkeypatch.setattr(carrying, "Engine", Engine)
    before = _model()
    after = _model(MODEL.replace("float[2] x", "float[2] image").replace("Neg(x)", "Neg(image)"))
    names = {name: f"given/{name}" for name in ("x", "w")}
    settled = Settled(outdated={"x"})
    for line in inverses:
        nodes = text.parse_nodes(line)
        for node in nodes:
            node.input[:] = [names.get(name, name) for name in node.input]
        settled.inverses.append((nodes, nodes[-1].output[0]))
    given = [DataSpec(Path("a set"), {"x": np.array([1.0, 2.0], np.float32), "w": np.array([3.0, 4.0], np.float32)})]
    carried, remarks = carry(InputsSpec(), given, signature(before), after, VerifySpec(), settled=settled)
    assert len(closed) == len(inverses)
    if found is None:
        assert not carried.data and remarks == ("the inputs 'a set' no longer fit the model and are left out",)
    else:
        (one,) = carried.data
        assert one.arrays is not None and {*one.arrays} == {"image", "w"} and not remarks
        assert one.arrays["image"].tolist() == found


@pytest.mark.parametrize(
    ("value", "kind", "dims", "fits"),
    [
        (np.ones((2, 3)), "tensor(float)", (2, "n"), True),
        (np.ones((2, 3)), "tensor(float)", (3, "n"), False),
        (np.ones(2), "tensor(float)", (2, "n"), False),
        (np.ones((2, 3)), "tensor(float)", None, True),
        ([np.ones(2)], "seq(tensor(float))", (3,), True),
        (np.ones(2), "seq(tensor(float))", (3,), True),
    ],
)
def test_whether_an_array_fits(value: Any, kind: str, dims: tuple[int | str, ...] | None, fits: bool) -> None:
    assert carrying._fits(value, SignaturePort("x", kind, dims)) == fits
