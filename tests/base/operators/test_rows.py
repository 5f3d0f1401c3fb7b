"""What is known about operators is complete: each question has a row for each operator that it concerns."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import onnx
import onnx.defs
import onnx.parser
import onnx.reference
import pytest
from support.operators_without_rows import asked_for, questions, without_rows

from surgery.base.operators import ranges, schemas, traits
from surgery.base.operators.forms import Schema
from surgery.model.proto.draws import draws
from surgery.model.proto.randomness import counts_runs, origins
from surgery.model.targets.kernels import registered

FLOATS = ("T", ["tensor(float)"], "")


def test_every_question_has_a_row_for_every_operator() -> None:
    assert without_rows(asked_for()) == {}


def test_all_operators_of_onnx_and_the_runtime_are_covered() -> None:
    listed = {schema.key for schema in asked_for()}
    runs = {f"{domain}::{op}" for domain, op, *_ in registered() if domain == "com.microsoft"}
    assert {"Add", "DFT", "ai.onnx.ml::LabelEncoder", "com.microsoft::Trilu"} <= listed
    assert {key for key in listed if key.startswith("com.microsoft::")} == runs
    assert "Upsample" not in listed, "it is deprecated"


@pytest.fixture
def made_up(request: pytest.FixtureRequest) -> Iterator[Schema]:
    """An operator that nobody has heard of, registered as long as the test runs."""
    from onnx.defs import OpSchema

    inputs, attributes, outputs = request.param
    schema = OpSchema(
        "MadeUp",
        "ai.onnx.ml",
        1,
        inputs=[OpSchema.FormalParameter(name, kind) for name, kind in inputs],
        outputs=[OpSchema.FormalParameter("y", kind) for kind in outputs],
        type_constraints=[FLOATS],
        attributes=[OpSchema.Attribute(name, kind, required=False) for name, kind in attributes],
    )
    onnx.defs.register_schema(schema)
    try:
        yield Schema.of(onnx.defs.get_schema("MadeUp", 1, "ai.onnx.ml"))
    finally:
        onnx.defs.deregister_schema("MadeUp", 1, "ai.onnx.ml")
        schemas._versions.cache_clear()


_Type = onnx.defs.OpSchema.AttrType


@pytest.mark.parametrize(
    ("made_up", "question", "missing"),
    [
        (([("x", "T")], [], ["T"]), "operations", ["operations"]),
        (([("x", "T"), ("places", "tensor(int64)")], [], ["T"]), "legal_inputs", ["input 1 (places)"]),
        (([("x", "T"), ("keep", "tensor(bool)")], [], ["T"]), "legal_inputs", ["input 1 (keep)"]),
        (([("words", "tensor(string)")], [], ["T"]), "legal_inputs", ["input 0 (words)"]),
        (([("x", "T"), ("y_scale", "T")], [], ["T"]), "legal_inputs", ["input 1 (y_scale)"]),
        (([("x", "T")], [("seed", _Type.FLOAT)], ["T"]), "traits", ["it may be random"]),
        (([("x", "T")], [("body", _Type.GRAPH)], ["T"]), "subgraphs", ["subgraph body"]),
        (([("x", "T")], [("dtype", _Type.INT)], ["T"]), "result_types", ["attribute dtype"]),
        (([("x", "T")], [("threshold", _Type.FLOAT)], ["T"]), "thresholds", ["thresholds"]),
    ],
    indirect=["made_up"],
)
def test_a_new_operator_has_no_row(made_up: Schema, question: str, missing: list[str]) -> None:
    assert without_rows(asked_for())[question] == {"ai.onnx.ml::MadeUp": missing}


def test_a_version_without_a_documented_change_has_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    from surgery.features.inspection import silent_changes

    monkeypatch.setattr(silent_changes, "CHANGED_MEANING", {})
    found = without_rows(asked_for())["silent_changes"]
    assert found["Pad"] == ["version 19"]
    assert found["Max"] == ["version 8"]


def test_sums_of_products_have_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    from surgery.base.operators import cost

    monkeypatch.setattr(cost, "_PRODUCTS", {})
    found = without_rows(asked_for())["cost"]
    known = {op for op in ("Attention", "Conv", "MatMul") if onnx.defs.has(op)}
    assert known | {"com.microsoft::FusedGemm"} <= set(found)


def test_each_question_documents_which_operators_need_a_row() -> None:
    assert len(questions()) >= 8
    for name, question in questions().items():
        text = sys.modules[question.__module__].__doc__
        assert text is not None and "Needs a row" in text, name


SAMPLING = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (int32[1,4] ids, int32[1] most) => (int32[1,M] y) {
    y = com.microsoft.Sampling<eos_token_id = 1, pad_token_id = 1, decoder =
        decoder (int32[1,4] i) => (float[1,4,9] logits) { logits = RandomFree(i) }
    >(ids, most)
}"""


def test_a_decoder_that_samples_is_random() -> None:
    model = onnx.parser.parse_model(SAMPLING)
    found = origins(model)
    assert found.random == {"y"}
    assert found.operators == {"Sampling"}
    assert counts_runs(model)
    assert draws(model) is None


@pytest.mark.parametrize("op", sorted(traits.UNARY_ELEMENTWISE - ranges.KEEPING))
def test_other_unary_operators_do_not_keep_the_sign_of_zero(op: str) -> None:
    attributes = {"Cast": {"to": 1}}.get(op, {})
    node = onnx.helper.make_node(op, ["x"], ["y"], **attributes)
    ports = [onnx.helper.make_tensor_value_info(name, 1, [3]) for name in "xy"]
    opset = onnx.helper.make_opsetid("", 21)
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", ports[:1], ports[1:]), opset_imports=[opset])
    if op not in {"BitwiseNot", "IsInf", "IsNaN", "Not"}:
        with np.errstate(all="ignore"):
            (made,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": np.full(3, -0.0, np.float32)})
        assert not (np.signbit(made) & (made == 0)).any()
