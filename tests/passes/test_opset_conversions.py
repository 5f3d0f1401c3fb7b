"""Conversions next to plain ONNX Runtime, without surgery's own verification: a share of `support/corpus_opsets.py`.

The models here are where other converters are wrong, or stop; then some of onnx's own, to opsets further on.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import pytest
from support import corpus_opsets, opset_models, opset_tools
from support.breadth import sampled
from support.corpus_opsets import Case, Judge, Outcome
from support.opset_tools import opset

from surgery.model.graph import text

KNOWN = list(corpus_opsets.known_cases())
_, HARDMAX = opset_models.KNOWN["Hardmax over several axes"]
NEWEST = min(26, onnx.defs.onnx_opset_version())
EVERY, TARGETS = 9, (13, 18, 21, NEWEST)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    made = Judge(["surgery", "stamp"])
    yield made
    made.close()


def case(name: str, source: str) -> Case:
    model = text.parse(source)
    return Case(name, model, corpus_opsets.drawn(model), None)


def told(outcomes: list[Outcome], tool: str, *wanted: str) -> list[str]:
    return [str(item) for item in outcomes if item.tool == tool and item.status not in wanted]


@pytest.mark.parametrize("known", sampled(KNOWN, 3), ids=lambda known: known.name)
def test_conversions_that_other_tools_get_wrong_are_correct(known: Case, judge: Judge) -> None:
    found = list(judge.outcomes(known, [opset_models.KNOWN[known.name][0], NEWEST]))
    assert not told(found, "surgery", "right")


def test_onnx_models_are_correct_at_later_opsets(judge: Judge) -> None:
    chosen = [case for case in corpus_opsets.file_cases() if opset(case.model)][::EVERY]
    every = [outcome for case in chosen for outcome in judge.outcomes(case, TARGETS)]
    assert len(every) > 100
    found = [outcome for outcome in every if outcome.target >= outcome.source]
    assert not told(found, "surgery", "right", "not judged")
    right = sum(outcome.tool == "surgery" and outcome.status == "right" for outcome in found)
    assert right > len(found) / 2 * 0.8


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_opsets_reported_as_compatible_are_compatible(known: Case, judge: Judge) -> None:
    found = list(judge.outcomes(known, range(7, opset(known.model) + 1)))
    assert not told(found, "stamp", "right", "refused")


def test_onnx_models_are_correct_at_their_reported_lowest_opset(judge: Judge) -> None:
    chosen = [case for case in corpus_opsets.file_cases() if opset(case.model)][3::EVERY]
    found = [outcome for case in chosen for outcome in judge.outcomes(case, [7])]
    assert not told(found, "stamp", "right", "refused", "not judged")


def test_the_judge_finds_a_wrong_conversion(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = text.parse(HARDMAX)
    wrong.opset_import[0].version = 13
    monkeypatch.setattr(judge.converters, "ask", lambda *question: (True, wrong.SerializeToString()))
    (found,) = (item for item in judge.outcomes(case("hardmax", HARDMAX), [13]) if item.tool == "surgery")
    assert found.status == "wrong"


def test_the_judge_finds_a_changed_signature(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = text.parse(HARDMAX.replace("(float[2,3,4] y)", "(float[2,3,4] z)").replace("y = Hardmax", "z = Hardmax"))
    monkeypatch.setattr(judge.converters, "ask", lambda *question: (True, wrong.SerializeToString()))
    assert {item.status for item in judge.outcomes(case("hardmax", HARDMAX), [13])} == {"wrong"}


def test_a_converter_that_raises_or_dies_is_an_outcome(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge.converters, "ask", lambda *question: (False, "ValueError: no"))
    assert {item.status for item in judge.outcomes(case("hardmax", HARDMAX), [13])} == {"crashed"}


def test_a_blocked_conversion_is_refused(judge: Judge) -> None:
    source = """<ir_version: 5, opset_import: ["" : 10]>
    g (float[2] x) => (float[2] y, bool[2] m) { y, m = Dropout(x) }"""
    (found,) = (item for item in judge.outcomes(case("dropout", source), [13]) if item.tool == "surgery")
    assert found.status == "refused"
    assert "the mask of Dropout is read" in found.reason


def test_the_table_counts_outcomes() -> None:
    found = [
        Outcome("a", "surgery", 7, 8, "right"),
        Outcome("a", "surgery", 7, 9, "refused", "why"),
        Outcome("b", "surgery", 7, 9, "right"),
    ]
    assert corpus_opsets.table(found).splitlines()[-1] == "| surgery | 2 | 1 | 3 | 2 | 0 | 0 | 1 | 0 |"


def test_every_tool_converts() -> None:
    model = text.parse('<ir_version: 7, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Relu(x) }')
    for name, convert in opset_tools.TOOLS.items():
        copy = onnx.ModelProto.FromString(model.SerializeToString())
        made = convert(copy, 17 if name == "stamp" else 20)
        assert opset(made) == (17 if name == "stamp" else 20), name
