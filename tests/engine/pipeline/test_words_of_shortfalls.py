"""What is said of a step that was to change the precision, and of expectations; from records built by hand."""

from __future__ import annotations

from typing import Any

import pytest

from surgery.engine import recipe as recipes
from surgery.engine.pipeline import expectations, purpose
from surgery.engine.pipeline.doubting import _kinds
from surgery.engine.pipeline.records import StepRecord
from surgery.engine.recipe.count_condition import CountCondition
from surgery.engine.recipe.schema import Share
from surgery.model.graph import text
from surgery.model.graph.state import Refused, Site
from surgery.model.runtime.executed import Executed
from surgery.verification.comparing.deployment import Deployed
from surgery.verification.comparing.details import Status, Verdict

RECIPE = recipes.parse(
    "steps:\n  - drop-identity\n  - repeat: 2\n    steps:\n      - quantize-dynamic: {min_size: 2048}\n  - to-float16\n"
)
WIDE = text.parse("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")


def record(name: str, status: Any, *reasons: str, code: int = 0) -> StepRecord:
    refusals = tuple(Refused(f"n{number}", reason) for number, reason in enumerate(reasons))
    return StepRecord(name, status, 2, 2, refusals=refusals, exit_code=code)


SMALL, EXCLUDED = "the weight is smaller than min_size", "it is excluded and stays in float32"
NO_WEIGHT = ("no factor is a constant weight", "the weight is not constant", "the weight is empty")


@pytest.mark.parametrize(
    ("records", "words", "code"),
    [
        ([], None, 0),
        ([record("drop-identity", "committed")], None, 0),
        ([record("quantize-dynamic", "skipped")], None, 0),
        ([record("quantize-dynamic", "unchanged", SMALL), record("to-float16", "committed")], None, 0),
        ([record("quantize-dynamic", "unchanged")],
         "nothing to gain: 'quantize-dynamic' found nothing that it converts", 0),
        ([record("quantize-dynamic", "unchanged", *NO_WEIGHT)],
         "nothing to gain: 'quantize-dynamic' found nothing that it converts", 0),
        ([record("quantize-dynamic", "unchanged", SMALL, SMALL, *NO_WEIGHT)],
         "nothing to quantize: 2 weights below 2 KiB "
         "(surgery run quantize-dynamic MODEL --set min_size=0 quantizes all)", 0),
        ([record("to-float16", "unchanged", EXCLUDED)],
         f"the precision was not changed: 'to-float16' found that {EXCLUDED}", 1),
        ([record("to-float16", "unchanged", EXCLUDED, EXCLUDED, SMALL, NO_WEIGHT[0])],
         f"the precision was not changed: 'to-float16' found that {EXCLUDED} (2 of 3 places)", 1),
        ([record("quantize-dynamic", "unchanged", SMALL), record("to-float16", "rolled_back", code=1)],
         "the precision was not changed: 'to-float16' was undone, see above", 1),
        ([record("quantize-dynamic", "rolled_back", code=1), record("to-float16", "rolled_back", code=3)],
         "the precision was not changed: 'quantize-dynamic' and 'to-float16' broke, see above", 3),
        ([record("to-float16", "rolled_back", code=1)] * 2,
         "the precision was not changed: 'to-float16' was undone, see above", 1),
    ],
)  # fmt: skip
def test_why_the_precision_was_not_changed(records: list[StepRecord], words: str | None, code: int) -> None:
    found = purpose.shortfall(RECIPE, records, WIDE)
    assert (None if found is None else (found.words, found.exit_code)) == (None if words is None else (words, code))


@pytest.mark.parametrize(
    ("body", "is_narrow"),
    [
        ("<float[2] w = {1, 2}> { y = Add(x, w) }", False),
        ("<float16[2] w = {1, 2}> { y = Add(x, w) }", True),
        ("<float[2] v = {1, 2}, uint8[2] w = {1, 2}> { y = Add(x, w) }", True),
        ("{ w = Constant<value = int8[2] {1, 2}>() y = Add(x, w) }", True),
        ("{ w = Constant<value = float[2] {1, 2}>() y = Add(x, w) }", False),
        ("{ w = ConstantOfShape<value = int8[1] {1}>(x) y = Add(x, w) }", False),
    ],
)
def test_a_model_with_narrow_weights_needs_no_other_precision(body: str, is_narrow: bool) -> None:
    proto = text.parse(f"g (float[2] x) => (float[2] y) {body}")
    assert (purpose.shortfall(RECIPE, [record("to-float16", "unchanged")], proto) is None) is is_narrow


def test_a_step_without_loss_has_no_such_purpose() -> None:
    lossless = recipes.parse("steps: [drop-identity]")
    assert purpose.shortfall(lossless, [record("drop-identity", "unchanged", EXCLUDED)], WIDE) is None


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ("{ops: {Relu: 2, Exp: 0, Neg: '>= 2'}}",
         [("Relu: == 2 (found 2)", True), ("Exp: == 0 (found 0)", True), ("Neg: >= 2 (found 1)", False)]),
        ("{nodes: 3}", [("nodes: == 3 (found 3)", True)]),
        ("{nodes: '< 3'}", [("nodes: < 3 (found 3)", False)]),
        ("{opset: 20}", [("opset: == 20 (found 20)", True)]),
        ("{opset: '> 20', nodes: '<= 3'}", [("nodes: <= 3 (found 3)", True), ("opset: > 20 (found 20)", False)]),
        ("{}", []),
    ],
)  # fmt: skip
def test_expectations_name_what_was_found(expected: str, found: list[tuple[str, bool]]) -> None:
    expect = recipes.parse(f"steps: [drop-identity]\nexpect: {expected}").expect
    assert list(expectations.expectations(expect, {"Relu": 2, "Neg": 1}, 20)) == found


def test_sites_are_expected_of_a_step() -> None:
    step: Any = recipes.parse("steps: [{pass: drop-identity, expect: {sites: '>= 2'}}]").steps[0]
    found = [[*expectations.expectations(step.expect, {}, 20, sites)] for sites in (1, 2)]
    assert found == [[("sites: >= 2 (found 1)", False)], [("sites: >= 2 (found 2)", True)]]
    assert [*expectations.expectations(step.expect, {}, 20)] == [("sites: >= 2 (found 0)", False)]


RAN = Deployed(Verdict(Status.CLOSE), Executed({("A", "CPU"): 2, ("B", "CPU"): 3}))
BOTH_RAN = Deployed(RAN.verdict, RAN.executed, RAN.executed)
FAILED = Deployed(Verdict(Status.UNVERIFIED, message="it failed"))


@pytest.mark.parametrize(
    ("expected", "deployed", "words", "holds"),
    [
        (CountCondition("<=", 5), RAN, "<= 5 (found 5)", True),
        (CountCondition("<", 5), RAN, "< 5 (found 5)", False),
        (Share("<=", 1.0), RAN, "<= 1x (found 5, of the original not known)", False),
        (Share("<=", 1.0), BOTH_RAN, "<= 1x (found 5, of the original 5)", True),
        (Share("<", 1.0), BOTH_RAN, "< 1x (found 5, of the original 5)", False),
        (CountCondition("<", 5), FAILED, "< 5 (not known: it failed)", False),
    ],
)  # fmt: skip
def test_executed_nodes_are_expected(expected: Any, deployed: Deployed, words: str, holds: bool) -> None:
    assert expectations.executed(expected, deployed) == (f"executed: {words}", holds)


def test_nodes_of_one_kind_share_a_rule_of_shape_inference() -> None:
    model = text.parse("""g (float[2] x) => (float[2] y, float[2] z) {
        a = Relu(x) b = Add(a, x) c = Softmax(a) d = Softmax<axis = 0>(b) e, i = TopK(d, x) y = Neg(e) z = Softmax(c)
    }""")
    kinds = _kinds(model, {"a", "b", "c", "d", "i", "z", "y"})
    assert kinds["a"] == kinds["b"] == kinds["y"] == ("elementwise", 0)
    assert kinds["c"] == kinds["z"] == (("", "Softmax", ()), 0) != kinds["d"]
    assert kinds["d"] == (("", "Softmax", ("axis",)), 0) and kinds["i"] == (("", "TopK", ()), 1)
    assert _kinds(model, {"c"}) == {"c": kinds["c"]}


def test_a_record_counts_what_its_pass_declined() -> None:
    sites = tuple(Site(number, f"s{number}", ("a", "b"), ("c",)) for number in range(1, 4))
    refusals = tuple(Refused(f"n{number}", reason) for number, reason in enumerate(["one", "two", "two", "one", "two"]))
    found = StepRecord("p", "committed", 3, 2, sites=3, refusals=refusals, applied=sites, seconds=1.23456).to_json()
    assert (found["pass"], found["status"], found["sites"], found["seconds"]) == ("p", "committed", 3, 1.2346)
    assert found["declined"] == [
        {"reason": "two", "count": 3, "anchor": "n1"},
        {"reason": "one", "count": 2, "anchor": "n0"},
    ]
    assert found["applied"][2] == {"site": 3, "anchor": "s3", "removed": ["a", "b"], "added": ["c"]}
    assert found["verdict"] is None
