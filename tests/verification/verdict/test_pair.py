"""Any two models: what is matched with what, and what follows from it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from support.breadth import sampled
from support.given_sets import BODY, arrays, expected, model, write_set

import surgery
from surgery.base.errors import ModelFileError, UsageError
from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.verification.comparing.ports import PortMatch, by_position, rename
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.verdict.verifier import Verifier

# The names of `model` in other places, so that renaming must avoid each of them.
OTHER = text.parse(
    "g (float[n, 4] i, int64[n] t) => (float[n, 4] x, int64[n] k)"
    "{ y = Relu(i) j = Identity(y) x = Neg(j) k = Identity(t) }"
)


def test_renamed_models_are_compared_by_position() -> None:
    found = surgery.verify(model(), OTHER, by="position")
    assert found.ok and found.verdict.status == "equal" and found.by == "position"
    assert found.inputs == (("x", "i"), ("i", "t"))
    assert found.outputs == (("y", "x"), ("j", "k"))
    # Shown, and not held against it.
    assert "input 'x' is missing" in found.signature and "output 'k' is new" in found.signature


def test_comparing_by_position_finds_wrong_models() -> None:
    wrong = onnx.ModelProto()
    wrong.CopyFrom(OTHER)
    wrong.graph.node[0].op_type = "Abs"
    found = surgery.verify(model(), wrong, by="position")
    assert not found.ok and found.verdict.message.startswith("output 'y'")


def test_comparing_by_name_ignores_the_order() -> None:
    other = text.parse(
        "g (int64[batch] i, float[batch, 4] x) => (int64[batch] j, float[batch, 4] y)"
        "{ t = Relu(x) y = Neg(t) j = Identity(i) }"
    )
    found = surgery.verify(model(), other)
    assert found.verdict.status == "equal"
    by_name = "values are compared by name"
    assert found.signature == (
        f"the inputs have another order: i, x; {by_name}",
        f"the outputs have another order: j, y; {by_name}",
    )
    found = surgery.verify(model(), other, by="position")
    assert found.verdict.status == "different"
    assert found.verdict.message == "input 'x' (B's 'i') is tensor(float) in A and tensor(int64) in B"


def test_comparing_different_names_suggests_by_position() -> None:
    found = surgery.verify(model(), OTHER)
    assert found.verdict.message == (
        "B needs an input 't' that A does not have; --by position matches them by their order"
    )
    renamed = text.parse("g (float[n] x) => (float[n] z) { z = Relu(x) }")
    found = surgery.verify(text.parse("g (float[n] x) => (float[n] y) { y = Relu(x) }"), renamed)
    assert found.verdict.message.startswith("output 'y' is missing")
    assert found.verdict.message.endswith("; --by position matches them by their order")


def test_counts_have_to_agree_by_position() -> None:
    fewer = text.parse("g (float[n, 4] a) => (float[n, 4] b) { b = Relu(a) }")
    with pytest.raises(UsageError) as caught:
        surgery.verify(model(), fewer, by="position")
    assert str(caught.value) == (
        "cannot match by position: A has 2 inputs (x, i), B has 1 input (a); match by name, or give both the same "
        "number"
    )


NARROWER = {
    "an input is gone": ("float[n] x, float[n] unused", "float[n] x", ["input 'unused' is missing"]),
    "a dim is pinned": (
        "float[n, 2] x",
        "float[3, 2] x",
        ["input 'x' is tensor(float)[3, 2], not tensor(float)[n, 2]"],
    ),
    "an unnamed dim is pinned": ("float[?] x", "float[2] x", ["input 'x' is tensor(float)[2], not tensor(float)[?]"]),
    "a rank is declared": ("float[] x", "float[n] x", ["input 'x' is tensor(float)[n], not tensor(float)"]),
    "dims are tied": ("float[n, m] x", "float[n, n] x", ["input 'x' is tensor(float)[n, n], not tensor(float)[n, m]"]),
    "unnamed dims are tied": (
        "float[?] x, float[?] unused",
        "float[k] x, float[k] unused",
        ["input 'unused' is tensor(float)[k], not tensor(float)[?]"],
    ),
    "a default is gone": ("float[n] x, float[1] w", "float[n] x", ["input 'w' is missing"]),
    "other names": ("float[n, m] x", "float[a, b] x", []),
    "a dim is freed": ("float[2] x", "float[n] x", []),
    "a tie is loosed": ("float[n, n] x", "float[n, m] x", []),
    "an input more": ("float[n] x", "float[n] x, float[1] w", []),
}


@pytest.mark.parametrize("case", sampled(NARROWER, 4))
def test_a_model_with_a_narrower_interface_is_not_ok(case: str) -> None:
    before, after, expected = NARROWER[case]
    head = "<ir_version: 8, opset_import: ['' : 17]>".replace("'", '"')
    models = []
    for inputs in (before, after):
        default = "<float[1] w = {1}>" if " w" in inputs else ""
        models.append(text.parse(f"{head} g ({inputs}) => (float[?] y) {default} {{ y = Relu(x) }}"))
        del models[-1].graph.output[0].type.tensor_type.shape.dim[:]
        models[-1].graph.output[0].type.tensor_type.ClearField("shape")
    found = surgery.verify(*models)
    assert list(found.narrowed) == expected
    assert found.ok is not bool(expected) and found.to_json()["ok"] is found.ok
    assert found.to_json()["narrowed"] == expected
    assert surgery.verify(*models, interface="may-narrow").ok is (found.verdict.status == "equal")


def test_comparing_by_position_finds_narrower_inputs() -> None:
    pinned = text.parse("g (float[2, 4] i, int64[m] t) => (float[2, 4] x, int64[m] k) { x = Relu(i) k = Identity(t) }")
    free = text.parse("g (float[n, 4] x, int64[m] i) => (float[n, 4] y, int64[m] j) { y = Relu(x) j = Identity(i) }")
    found = surgery.verify(free, pinned, by="position")
    assert found.narrowed == ("input 'x' (B's 'i') is tensor(float)[2, 4], not tensor(float)[n, 4]",)
    assert surgery.verify(pinned, free, by="position").ok


def test_checker_findings_only_in_the_second_model_are_not_ok() -> None:
    first = text.parse("g (float[2] x) => (float[2] y) { t = Relu(x) y = Neg(t) }")
    stale = text.parse("g (float[2] x) => (float[2] y) { t = Relu(x) y = Neg(t) }")
    stale.graph.value_info.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, [2, 7]))
    found = surgery.verify(first, stale, interface="may-narrow")
    assert found.verdict.status in ("equal", "different") and not found.ok
    (finding,) = found.findings
    assert finding.startswith("shape inference: ") and found.to_json()["findings"] == [finding]
    # What both have is no fault of the second one.
    assert surgery.verify(stale, stale).ok
    assert surgery.verify(stale, first).ok


def test_weights_that_are_listed_as_inputs_have_no_position() -> None:
    first = text.parse("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    second = text.parse("g (float[2] a) => (float[2] b) <float[2] w = {1, 2}> { b = Add(a, w) }")
    second.graph.input.insert(0, helper.make_tensor_value_info("w", TensorProto.FLOAT, [2]))
    assert surgery.verify(first, second, by="position").ok
    # The other way round, a caller may give what cannot be given any more.
    found = surgery.verify(second, first, by="position")
    assert found.narrowed == ("input 'w' is missing",) and not found.ok


# Renaming


RENAMED = {
    "passed through": "g (float[n] y) => (float[n] y, float[n] b) { b = Relu(y) }",
    "given twice": "g (float[n] a) => (float[n] b, float[n] b) { b = Relu(a) }",
    "an old name within": "g (float[n] a) => (float[n] b, float[n] c) { x = Relu(a) b = Neg(x) c = Abs(x) }",
    "in a subgraph": """g (float[n] a) => (float[n] b, float[n] c) {
        s = Constant<value = bool {1}>()
        b = If(s) <then_branch = p () => (float[n] x) { x = Relu(a) },
                   else_branch = q () => (float[n] y) { y = Neg(a) }>
        c = Identity(a)
    }""",
    "swapped": "g (float[n] a) => (float[n] z, float[n] y) { y = Relu(a) z = Neg(a) }",
}


@pytest.mark.parametrize("case", RENAMED)
def test_a_renamed_model_is_valid_and_computes_the_same(case: str) -> None:
    other = text.parse(RENAMED[case])
    ports = "g (float[n] x) => (float[n] y, float[n] z) { y = Relu(x) z = Neg(x) }"
    renamed = rename(other, by_position(text.parse(ports), other))
    onnx.checker.check_model(renamed)
    assert [value.name for value in renamed.graph.input] == ["x"]
    assert [value.name for value in renamed.graph.output] == ["y", "z"]
    before, after = (ReferenceEvaluator(item) for item in (other, renamed))
    data = np.array([-1, 2], np.float32)
    expected = before.run(None, {other.graph.input[0].name: data})
    for mine, theirs in zip(expected, after.run(None, {"x": data})):
        np.testing.assert_array_equal(mine, theirs)


def test_a_passed_through_input_is_renamed_at_its_own_output() -> None:
    # The matched outputs are not the first ones of the model: another one stands before them.
    other = text.parse("g (float[n] a) => (float[n] extra, float[n] a, float[n] b) { extra = Neg(a) b = Relu(a) }")
    renamed = rename(other, PortMatch((("x", "a"),), (("y", "a"), ("z", "b"))))
    onnx.checker.check_model(renamed)
    assert [value.name for value in renamed.graph.output] == ["extra", "y", "z"]


# Inputs


@pytest.mark.parametrize("form", ["arrays", "list", "path", "text", "spec"])
def test_inputs_in_every_form(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, **arrays())
    forms: dict[str, Any] = {
        "arrays": arrays(),
        "list": [arrays(), path],
        "path": path,
        "text": str(path),
        "spec": InputsSpec(dims={"batch": (5,)}),
    }
    found = surgery.verify(model(), model("t = Relu(x) y = Neg(t) j = Identity(i)"), inputs=forms[form])
    assert found.ok
    given = [item["character"] for item in found.bindings if item["seed"] is None]
    assert given == {"arrays": ["inputs 1"], "list": ["inputs 1", "a.npz"], "spec": []}.get(form, ["a.npz"])


def test_inputs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="inputs 1: 'x' has shape"):
        surgery.verify(model(), model(), inputs={"x": np.zeros((1, 5), np.float32), "i": np.zeros(1, np.int64)})


@pytest.mark.parametrize("given", [3, [np.zeros(4, np.float32)]], ids=["a number", "an array without a name"])
def test_an_object_that_is_no_set_of_inputs_is_named(given: Any) -> None:
    with pytest.raises(UsageError, match=r"of type \w+ is no set of inputs; pass a path, or a mapping from the names"):
        surgery.verify(model(), model(), inputs=given)


def test_the_test_set_next_to_the_first_model_is_used(tmp_path: Path) -> None:
    given = arrays()
    write_set(tmp_path / "test_data_set_0", given, {**expected(given), "y": given["x"]})
    onnx.save(model(), tmp_path / "a.onnx")
    found = surgery.verify(tmp_path / "a.onnx", tmp_path / "a.onnx")
    assert found.ok
    assert found.bindings[0]["character"] == "test_data_set_0"
    assert found.bindings[0]["expected_outputs"].startswith("output 'y'")


def test_unverified_may_be_accepted() -> None:
    first = text.parse("g (float[2] x) => (float[2] y) { y = com.acme.Foo(x) }")
    second = text.parse("g (float[2] x) => (float[2] y) { t = Identity(x) y = com.acme.Foo<a = 1>(t) }")
    for proto in (first, second):
        proto.opset_import.add(domain="com.acme", version=1)
    for policy, ok in (("refuse", False), ("accept", True)):
        found = surgery.verify(first, second, spec=VerifySpec(unverified=policy))  # type: ignore[arg-type]
        assert (
            found.verdict.reason == "not-run" and "com.acme" in found.verdict.message and "Foo" in found.verdict.message
        )
        assert found.ok is ok and found.to_json()["ok"] is ok


def test_wrong_files_are_distinguished_from_wrong_models(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError):
        surgery.verify(tmp_path / "no.onnx", model())
    assert not surgery.verify(model(), model(BODY.replace("Relu", "Abs"))).ok


def test_two_models_are_compared_with_their_signatures() -> None:
    one = text.parse("g (float[N] x) => (float[N] y) { y = Neg(x) }")
    other = text.parse("g (float[M] x) => (float[M] y) { t = Identity(x) y = Neg(t) }")
    found = surgery.verify(one, other, promise=Parity.EXACT)
    assert found.verdict.status == "equal"
    assert len(found.signature) == 2
    assert found.bindings


def test_a_model_that_is_close_is_not_taken_for_one_with_the_same_bits() -> None:
    before, after = (
        text.parse(f"g (float[64] x) => (float[64] y) <float k = {{{k}}}> {{ y = {op}(x, k) }}").SerializeToString()
        for op, k in (("Div", 10), ("Mul", 0.1))
    )
    with closing(Verifier(before)) as verifier:
        verifier.changes.whole.accepted = before
        assert verifier.changes.whole.verify(after, Parity.CLOSE).passed
        assert not verifier.changes.whole.verify(after, Parity.EXACT).passed
