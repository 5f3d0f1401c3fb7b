"""`surgery diff`: pairs of models with one difference each, and what is told of it."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from support import ROOT
from support.breadth import sampled

import surgery
from surgery.base.errors import ModelFileError
from surgery.features.differences.difference import Difference
from surgery.interface import commands as cli
from surgery.model.graph import text

MODELS = ROOT / "models"
MODEL = """<ir_version: 10, opset_import: ["" : 21]>
g (float[n,8] x) => (float[n,8] y, int64[2] s) <float[8] b = {0,1,2,3,4,5,6,7}>
{ [mm] t = MatMul(x, w) [add] u = Add(t, b) [act] r = Relu(u) [soft] y = Softmax <axis = 1> (r)
  [shape] s = Shape(r) }"""


def weight(name: str, seed: int = 0, shape: tuple[int, ...] = (8, 8)) -> TensorProto:
    return numpy_helper.from_array(np.random.default_rng(seed).standard_normal(shape).astype(np.float32), name)


def model(source: str = MODEL) -> onnx.ModelProto:
    made = text.parse(source)
    made.graph.initializer.append(weight("w"))
    return made


def initializer(of: onnx.ModelProto, name: str) -> TensorProto:
    return next(tensor for tensor in of.graph.initializer if tensor.name == name)


def kinds(found: Difference) -> dict[str, int]:
    return {f"{kind.change} ({kind.by})": len(kind.examples) for kind in found.nodes.kinds}


def causes(found: Difference) -> dict[str, str]:
    return {lone.entry.name: lone.cause for lone in (*found.nodes.removed, *found.nodes.added)}


def command(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# What is no difference


def test_a_model_is_the_same_as_itself() -> None:
    found = surgery.diff(model(), model())
    assert found.same
    assert found.nodes.total == found.nodes.unexplained == 0
    assert found.nodes.matched == {"name": 5}


def test_names_of_nodes_values_and_weights_are_ignored() -> None:
    other = MODEL
    for old, new in (("[mm] t", "[n0] v0"), ("Add(t, b)", "Add(v0, bias)"), ("float[8] b", "float[8] bias")):
        other = other.replace(old, new)
    found = surgery.diff(model(), model(other))
    assert found.same
    assert [(pair.before.name, pair.after.name, pair.how) for pair in found.constants.renamed] == [
        ("b", "bias", "reader")
    ]
    assert [pair["after"]["name"] for pair in found.nodes.to_json()["renamed"]] == ["n0"]


def test_the_order_of_nodes_and_weights_is_not_a_difference() -> None:
    other = model()
    other.graph.node.insert(3, other.graph.node.pop())
    other.graph.initializer.insert(0, other.graph.initializer.pop())
    assert surgery.diff(model(), other).same


def test_an_explicit_default_attribute_is_not_a_difference() -> None:
    other = model()
    other.graph.node[4].attribute.append(onnx.helper.make_attribute("start", 0))
    assert surgery.diff(model(), other).same


def test_a_weight_stored_outside_is_not_a_difference(tmp_path: Path) -> None:
    big = model()
    initializer(big, "w").CopyFrom(weight("w", shape=(64, 512)))
    onnx.save(big, tmp_path / "in.onnx")
    onnx.save(big, tmp_path / "out.onnx", save_as_external_data=True, size_threshold=0, location="out.data")
    found = surgery.diff(tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert found.same


# Nodes


def test_shifted_exporter_numbers_do_not_mislead() -> None:
    body = "[Neg_1] a = Neg(x) [Exp_1] b = Exp(a) [Neg_2] y = Neg(b)"
    before = text.parse(f"g (float[n] x, float[n] z) => (float[n] y, float[n] q) {{ [Neg_0] q = Neg(z) {body} }}")
    shifted = "[Neg_0] a = Neg(x) [Exp_1] b = Exp(a) [Neg_1] y = Neg(b)"
    after = text.parse(f"g (float[n] x, float[n] z) => (float[n] y, float[n] q) {{ q = Abs(z) {shifted} }}")
    found = surgery.diff(before, after)
    pairs = {pair.before.name: pair.after.name for pair in found.nodes.pairs}
    assert pairs == {"Neg_1": "Neg_0", "Exp_1": "Exp_1", "Neg_2": "Neg_1"}
    assert [str(group) for group in found.nodes.groups] == ["Neg 'Neg_0' -> Abs -> q"]
    assert found.nodes.unexplained == 0


def test_layers_that_are_all_alike_are_matched_in_their_order() -> None:
    before = " ".join(f"i{n} = Identity(r{n}) m{n} = Neg(i{n}) r{n + 1} = Relu(m{n})" for n in range(50))
    after = " ".join(f"[k{n}] n{n} = Neg(s{n}) [l{n}] s{n + 1} = Relu(n{n})" for n in range(50))
    head, tail = "g (float[n] x) => (float[n] y) {", "}"
    found = surgery.diff(
        text.parse(f"{head} {before.replace('r0', 'x')} y = Exp(r50) {tail}"),
        text.parse(f"{head} {after.replace('s0', 'x')} y = Exp(s50) {tail}"),
    ).nodes
    assert len(found.pairs) == 101 and not found.changed
    assert {lone.cause for lone in found.removed} == {"bypassed"} and len(found.removed) == 50


def test_a_changed_attribute_is_reported_with_its_values() -> None:
    found = surgery.diff(model(), model(MODEL.replace("axis = 1", "axis = 0")))
    assert not found.same
    assert kinds(found) == {"Softmax: attribute axis 1 -> 0 (matched by name)": 1}
    (pair,) = found.nodes.changed
    assert pair.changes[0].to_json() == {"what": "attribute axis", "before": 1, "after": 0}


def test_an_operand_that_is_another_value_is_reported() -> None:
    found = surgery.diff(model(), model(MODEL.replace("Shape(r)", "Shape(u)")))
    assert [str(change) for pair in found.nodes.changed for change in pair.changes] == ["input 0 r -> u"]
    assert found.operators and not any(count.difference for count in found.operators)
    assert not found.same


def test_an_operand_that_was_left_out_is_reported() -> None:
    source = "g (float[n] x) => (float[n] y) <float lo = {0}, float hi = {6}> { [c] y = Clip(x, lo, hi) }"
    found = surgery.diff(text.parse(source), text.parse(source.replace("lo, hi)", ", hi)")))
    assert [str(change) for pair in found.nodes.changed for change in pair.changes] == ["input 1 lo -> -"]


def test_consequences_of_a_change_are_not_reported_twice() -> None:
    after = MODEL.replace("[act] r = Relu(u)", "[neg] v = Neg(u) [act] r = Relu(v)")
    found = surgery.diff(model(), model(after))
    assert causes(found) == {"neg": "bypassed"}
    assert found.nodes.changed == []


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("[d] d = Neg(x) y = Abs(x)", "y = Abs(x)", {"d": "dead"}),
        ("[i] i = Identity(x) y = Abs(i)", "y = Abs(x)", {"i": "bypassed"}),
        ("[a] a = Abs(x) [b] b = Abs(x) y = Add(a, b)", "[a] a = Abs(x) y = Add(a, a)", {"b": "duplicate"}),
        ("[a] a = Abs(x) [e] e = Exp(x) y = Add(a, e)", "[a] a = Abs(x) y = Add(a, x)", {"e": "bypassed"}),
        ("[a] a = Abs(x) [e] e = Exp(a) y = Add(x, e)", "y = Add(x, x)", {"e": "bypassed"}),
        ("[i] i = Identity(x) [a] a = Abs(i) y = Neg(a)", "y = Neg(x)", {"a": "bypassed"}),
        ("[s] s = Shape(x) [e] e = Expand(x, s) y = Neg(e)", "y = Neg(x)", {"e": "bypassed"}),
    ],
)
def test_removed_nodes_have_a_cause(before: str, after: str, expected: dict[str, str]) -> None:
    models = [text.parse(f"g (float[n] x) => (float[n] y) {{ {body} }}") for body in (before, after)]
    assert causes(surgery.diff(*models)) == expected
    # And the other way round the node is new for the same cause.
    found = surgery.diff(*reversed(models)).nodes
    assert {lone.entry.name: lone.cause for lone in found.added} == expected


def test_nodes_needed_only_by_a_folded_node_are_grouped_with_it() -> None:
    before = text.parse(
        "g (float[2,3] x) => (float[3,2] y) { [s] s = Shape(x) [n] n = Neg(s) [m] m = Neg(n) [r] y = Reshape(x, m) }"
    )
    after = text.parse("g (float[2,3] x) => (float[3,2] y) <int64[2] k = {3,2}> { [r] y = Reshape(x, k) }")
    (lone,) = surgery.diff(before, after).nodes.removed
    assert (lone.entry.name, lone.cause, lone.now) == ("m", "constant", "constant 'k'")
    assert [entry.name for entry in lone.others] == ["s", "n"]


def test_a_node_needed_by_several_changes_names_them() -> None:
    body = "[k] k = Exp(x) [p] p = Mul(x, k) [q] q = Div(x, k) [m] m = MatMul(p, q) y = Neg(m)"
    before = text.parse(f"g (float[4,4] x) => (float[4,4] y) {{ {body} }}")
    after = text.parse("g (float[4,4] x) => (float[4,4] y) { [m] m = MatMul(x, x) y = Neg(m) }")
    found = surgery.diff(before, after)
    assert causes(found) == {"k": "unneeded", "p": "bypassed", "q": "bypassed"}
    assert found.nodes.removed[0].needed_by == ("Mul 'p'", "Div 'q'")


def test_differences_to_an_unrelated_model_are_not_explained() -> None:
    found = surgery.diff(MODELS / "convnext-tiny.onnx", MODELS / "resnet-tiny.onnx").nodes
    assert found.unexplained > 0.9 * found.total


def test_removed_nodes_without_a_counterpart_are_not_explained() -> None:
    before = text.parse("g (float[n] x) => (float[n] y, float[n] z) { y = Neg(x) [a] a = Exp(x) [b] z = Abs(a) }")
    after = text.parse("g (float[n] x) => (float[n] y) { y = Neg(x) }")
    found = surgery.diff(before, after)
    assert causes(found) == {"a": "other", "b": "other"}
    assert (found.nodes.total, found.nodes.unexplained) == (2, 2)


@pytest.mark.parametrize("name", sampled(["bert-tiny", "resnet-tiny", "convnext-tiny"], 3))
def test_groups_are_reported_with_their_place(name: str, short_models: Path, tmp_path: Path) -> None:
    path = short_models / f"{name}.onnx"
    assert surgery.apply(path, "default", output=tmp_path / "after.onnx").ok
    found = surgery.diff(path, tmp_path / "after.onnx").nodes
    assert found.unexplained <= 0.05 * found.total
    assert any(len(kind.examples) > 5 and "*" in kind.where for kind in found.kinds)


# Scopes

BODIES = """<ir_version: 10, opset_import: ["" : 21]>
g (bool c, float[2] x) => (float[2] y) { [outer] o = Abs(x) [choose] y = If(c) <
    then_branch = t () => (float[2] p) { [in] p = Neg(o) },
    else_branch = e () => (float[2] q) { [else] q = Exp(o) }> }"""


def test_bodies_of_a_renamed_node_correspond() -> None:
    renamed = BODIES.replace("[choose]", "[pick]").replace("[in] p", "[i] r")
    found = surgery.diff(text.parse(BODIES), text.parse(renamed))
    assert found.same
    assert len(found.nodes.pairs) == 4


def test_a_change_in_a_body_is_reported() -> None:
    found = surgery.diff(text.parse(BODIES), text.parse(BODIES.replace("Exp(o)", "Exp(x)")))
    assert [str(pair.after) for pair in found.nodes.changed] == ["Exp 'else'"]
    found = surgery.diff(text.parse(BODIES), text.parse(BODIES.replace("[else] q = Exp(o)", "q = Tanh(o)")))
    assert kinds(found) == {"Exp -> Tanh (matched by value)": 1}


def test_a_removed_node_is_grouped_with_its_subgraphs() -> None:
    after = text.parse("g (bool c, float[2] x) => (float[2] y) { [outer] o = Abs(x) y = Relu(o) }")
    (group,) = surgery.diff(text.parse(BODIES), after).nodes.groups
    assert {entry.name for entry in (*group.before, *group.dropped)} == {"choose", "in", "else"}
    assert group.after[0].op == "Relu"


FUNCTION = """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
g (float[n] x) => (float[n] y) { [call] y = local.f(x) }
<domain: "local", opset_import: ["" : 21]> f (a) => (c) { b = Neg(a) c = Exp(b) }"""


def test_a_function_is_added() -> None:
    inline = text.parse("g (float[n] x) => (float[n] y) { b = Neg(x) y = Exp(b) }")
    found = surgery.diff(inline, text.parse(FUNCTION))
    assert [str(change) for change in found.functions] == ["function local::f - -> (a) -> (c), 2 nodes"]
    assert [change.what for change in found.opsets] == ["opset local"]
    assert found.nodes.groups[0].kind == "Neg + Exp -> local::f"
    assert found.nodes.unexplained == 0


def test_a_change_in_a_function_is_reported() -> None:
    found = surgery.diff(text.parse(FUNCTION), text.parse(FUNCTION.replace("Exp(b)", "Exp(a)")))
    assert not found.same
    assert found.nodes.total


# Constants


def test_a_weight_that_changed_is_reported_by_how_much() -> None:
    other = model()
    array = numpy_helper.to_array(initializer(other, "w")).copy()
    array[3, 4] += 1e-3
    initializer(other, "w").CopyFrom(numpy_helper.from_array(array, "w"))
    found = surgery.diff(model(), other)
    (pair,) = found.constants.changed
    assert pair.distance is not None and not found.same
    assert (pair.distance.different, pair.distance.elements) == (1, 64)
    assert pair.distance.largest == pytest.approx(1e-3, rel=1e-3)
    assert pair.distance.relative == pytest.approx(1e-3 / np.abs(array).max(), rel=1e-3)


@pytest.mark.parametrize("place", [0, 300_000, 2_500_000])
def test_one_changed_bit_of_a_large_weight_is_found(place: int, tmp_path: Path) -> None:
    tensor = weight("w", shape=(2_500_001,))
    for name in ("a", "b"):
        source = "g (float[2500001] x) => (float[2500001] y) { y = Add(x, w) }"
        made = text.parse(source)
        made.graph.initializer.append(tensor)
        onnx.save(made, tmp_path / f"{name}.onnx")
        array = numpy_helper.to_array(tensor).copy()
        array[place] = np.nextafter(array[place], np.float32(9))
        tensor = numpy_helper.from_array(array, "w")
    (pair,) = surgery.diff(tmp_path / "a.onnx", tmp_path / "b.onnx").constants.changed
    assert pair.distance is not None and pair.distance.different == 1


def test_not_a_number_is_counted_apart() -> None:
    other = model()
    array = numpy_helper.to_array(initializer(other, "w")).copy()
    array[0, 0], array[1, 1] = np.nan, np.inf
    initializer(other, "w").CopyFrom(numpy_helper.from_array(array, "w"))
    (pair,) = surgery.diff(model(), other).constants.changed
    assert pair.distance is not None
    assert (pair.distance.different, pair.distance.not_finite, pair.distance.largest) == (2, 2, 0.0)
    json.loads(json.dumps(pair.to_json(), allow_nan=False))


def test_another_type_is_compared_as_numbers() -> None:
    other = model()
    halves = numpy_helper.to_array(initializer(other, "w")).astype(np.float16)
    initializer(other, "w").CopyFrom(numpy_helper.from_array(halves, "w"))
    (pair,) = surgery.diff(model(), other).constants.changed
    assert (pair.before.type, pair.after.type) == ("float", "float16")
    assert pair.distance is not None and 0 < (pair.distance.relative or 0) < 1e-3


def test_other_dims_have_no_distance() -> None:
    other = model()
    initializer(other, "w").CopyFrom(weight("w", shape=(8, 4)))
    (pair,) = surgery.diff(model(), other).constants.changed
    assert (pair.after.dims, pair.distance) == ((8, 4), None)


SHARED = """<ir_version: 10, opset_import: ["" : 21]>
g (float[n,8] x) => (float[n,8] y) { [one] t = MatMul(x, w) [two] y = MatMul(t, w) }"""


def test_a_tied_weight_that_is_split_is_untied() -> None:
    other = model(SHARED)
    other.graph.initializer.append(weight("w2"))
    other.graph.node[1].input[1] = "w2"
    found = surgery.diff(model(SHARED), other).constants
    assert [tie.to_json() for tie in found.ties] == [{"what": "untied", "before": ["w"], "after": ["w", "w2"]}]
    found = surgery.diff(other, model(SHARED)).constants
    assert [tie.what for tie in found.ties] == ["tied"]
    assert [constant.name for constant in found.removed] == ["w2"]


def test_a_constant_node_that_becomes_an_initializer_moved() -> None:
    before = text.parse("g (float[n] x) => (float[n] y) { k = Constant <value = float {2}> () y = Mul(x, k) }")
    after = text.parse("g (float[n] x) => (float[n] y) <float k = {2}> { y = Mul(x, k) }")
    found = surgery.diff(before, after)
    assert [pair.after.name for pair in found.constants.moved] == ["k"]
    assert causes(found) == {"Constant -> k": "constant"}


# Signature and the rest


@pytest.mark.parametrize(
    ("old", "new", "where", "what"),
    [
        ("float[n,8] x", "float[batch,8] x", "signature", "input x"),
        ("int64[2] s)", "int64[k] s)", "signature", "output s"),
        ("21]", "20]", "opsets", "opset ai.onnx"),
        ("ir_version: 10", "ir_version: 9", "opsets", "IR version"),
    ],
)
def test_changed_declarations(old: str, new: str, where: str, what: str) -> None:
    found = surgery.diff(model(), model(MODEL.replace(old, new)))
    assert not found.same
    assert [change.what for change in getattr(found, where)] == [what]


def test_metadata_are_compared() -> None:
    other = model()
    other.metadata_props.add(key="labels", value="cat,dog")
    found = surgery.diff(model(), other)
    assert [change.to_json() for change in found.metadata] == [
        {"what": "metadata labels", "before": None, "after": "cat,dog"}
    ]


def test_sizes_are_compared() -> None:
    found = surgery.diff(model(), model(MODEL.replace("[act] r = Relu(u)", "[neg] v = Neg(u) [act] r = Relu(v)")))
    assert {change.what: (change.before, change.after) for change in found.sizes} == {
        "nodes": (5, 6),
        "depth": (4, 5),
    }


def test_costs_are_compared_when_asked_for() -> None:
    more = model(MODEL.replace("[act] r = Relu(u)", "[mm2] v = MatMul(u, w) [act] r = Relu(v)").replace("n,", "2,"))
    found = surgery.diff(model(MODEL.replace("n,", "2,")), more, costs=True)
    assert {change.what: (change.before, change.after) for change in found.sizes}["MACs"] == (128, 256)


# The command


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(model(), "a.onnx")
    onnx.save(model(), "same.onnx")
    onnx.save(model(MODEL.replace("[act] r = Relu(u)", "[copy] v = Identity(u) [act] r = Relu(v)")), "copy.onnx")
    onnx.save(model(MODEL.replace("Relu(u)", "Abs(u)")), "wrong.onnx")


@pytest.mark.usefixtures("files")
def test_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(capsys, "diff", "a.onnx", "same.onnx", "--exit-code")[0] == 0
    assert command(capsys, "diff", "a.onnx", "copy.onnx", "--exit-code")[0] == 1
    assert command(capsys, "diff", "a.onnx", "copy.onnx")[0] == 0


@pytest.mark.usefixtures("files")
def test_the_text_lists_kinds_and_each_change_when_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = command(capsys, "diff", "a.onnx", "copy.onnx")
    assert (code, err) == (0, "")
    assert "1 of 1 differing nodes are explained (100.0%)" in out
    assert "Identity added" in out and "inserted" in out
    code, out, _ = command(capsys, "diff", "a.onnx", "wrong.onnx", "-v")
    assert "Relu 'act' -> Abs 'act'" in out


@pytest.mark.usefixtures("files")
def test_parity_is_shown_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command(capsys, "diff", "a.onnx", "copy.onnx", "--verify", "--dims", "n=2,3")
    assert (code, "equal on" in out) == (0, True)
    code, out, _ = command(capsys, "diff", "a.onnx", "wrong.onnx", "--verify", "--format", "json")
    assert (code, json.loads(out)["parity"]["verdict"]) == (1, "different")


def test_the_json_is_as_documented(capsys: pytest.CaptureFixture[str], files: None) -> None:
    documented = (MODELS.parent / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
    _, out, _ = command(capsys, "diff", "a.onnx", "wrong.onnx", "--format", "json")
    found = json.loads(out)
    for part in (found, found["nodes"], found["constants"], found["nodes"]["kinds"][0], found["nodes"]["groups"][0]):
        assert [key for key in part if f"`{key}`" not in documented] == []
    assert found["same"] is False
    again = command(capsys, "diff", "a.onnx", "wrong.onnx", "--format", "json")[1]
    assert again == out


@pytest.mark.usefixtures("files")
def test_wrong_input(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = command(capsys, "diff", "a.onnx", "nix.onnx")
    assert (code, out) == (2, "") and "nix.onnx" in err and len(err.splitlines()) == 1
    Path("broken.onnx").write_bytes(b"no model at all")
    code, _, err = command(capsys, "diff", "broken.onnx", "a.onnx")
    assert code == 2 and "broken.onnx" in err
    code, _, err = command(capsys, "diff", "a.onnx", "same.onnx", "--dims", "n=2")
    assert code == 2 and "add --verify" in err
    code, _, err = command(capsys, "diff", "a.onnx", "same.onnx", "--verify", "--dims", "m=2")
    assert code == 2 and "'m'" in err
    with pytest.raises(ModelFileError):
        surgery.diff(tmp_path, model())


def test_a_model_that_is_not_valid_is_compared_all_the_same() -> None:
    twice = text.parse("g (float[n] x) => (float[n] y) { [a] t = Neg(x) [a] u = Neg(t) y = Abs(u) }")
    twice.graph.node[1].input[0] = "nowhere"
    twice.graph.node.append(twice.graph.node[0])
    assert surgery.diff(twice, twice).same
    assert not surgery.diff(twice, model()).same
