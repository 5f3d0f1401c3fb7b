"""Changes that are assumed to hold until they are judged: in which order, together with which, and what is dropped."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest

from surgery.base.promises import Parity
from surgery.engine.pipeline import speculation
from surgery.engine.pipeline.candidate import Candidate, State
from surgery.engine.pipeline.records import StepRecord
from surgery.engine.pipeline.speculation import Speculation, pays
from surgery.engine.recipe.schema import PassStep
from surgery.engine.registry.passes import Pass
from surgery.model.graph import text

PROTO = text.parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
STATE = State(PROTO, b"", {})


def own(graph: Any) -> None: ...


def candidate(name: str, promise: Parity = Parity.EXACT, size: int = 1) -> Candidate:
    return Candidate(PassStep(name, declared=Pass(name, promise, "graph", own)), PROTO, b"x" * size, True)


class Fake:
    """A judge that notes what it is asked; `wrong` are the names of steps that it refuses."""

    def __init__(self, wrong: str = "", whole: str = "", broken: str = "") -> None:
        self.wrong, self.whole, self.broken = wrong, whole, broken
        self.compared: list[str] = []
        self.judged: list[tuple[str, int | None, str]] = []
        self.adopted: list[str] = []
        self.killed = 0
        self.may_begin = threading.Event()
        self.may_begin.set()
        self.checker = SimpleNamespace(kill=self.kill)

    def kill(self) -> None:
        self.killed += 1

    def find(self, given: Candidate) -> list[str]:
        self.may_begin.wait()
        return [f"finding of {given.step.name}"]

    def compare_ahead(self, before: State, given: Candidate, findings: list[str]) -> bool:
        assert findings == [f"finding of {given.step.name}"]
        self.compared.append(given.step.name)
        return given.step.name in self.whole

    def judge(self, given: Candidate, declared: Pass, findings: list[str], later: Any) -> Candidate:
        if given.step.name in self.broken:
            raise KeyError(given.step.name)
        self.judged.append((given.step.name, *((later.steps, later.candidate.step.name) if later else (None, ""))))
        return replace(given, complaint="wrong") if given.step.name in self.wrong else given

    def adopt(self, given: Candidate) -> None:
        self.adopted.append(given.step.name)


def taken(judge: Fake, *given: Candidate) -> Speculation:
    made = Speculation(judge)  # type: ignore[arg-type]
    for number, one in enumerate(given):
        made.take(one, one.step.find(), STATE, STATE, float(number))
    return made


def names(made: Speculation, wait: bool = True) -> list[tuple[str, bool]]:
    return [(ahead.step.name, found.ok) for ahead, found in made.judged(wait=wait)]


def test_changes_are_judged_in_order() -> None:
    judge = Fake()
    made = taken(judge, candidate("a"), candidate("b", Parity.CLOSE), candidate("c"))
    assert len(made) == 3
    assert names(made) == [("a", True), ("b", True), ("c", True)] and len(made) == 0
    assert judge.compared == judge.adopted == ["a", "b", "c"]
    assert judge.judged == [("a", None, ""), ("b", None, ""), ("c", None, "")]


def test_after_a_change_that_is_wrong_none_is_judged() -> None:
    judge = Fake(wrong="b")
    made = taken(judge, candidate("a"), candidate("b"), candidate("c"), candidate("d"))
    assert [found.ok for _, found in islice(made.judged(wait=True), 2)] == [True, False]
    made.note(candidate("e"), StepRecord("e", "unchanged", 1, 1))
    assert [step.name for step in made.take_back()] == ["c", "d", "e"] and len(made) == 0
    assert [one[0] for one in judge.judged] == ["a", "b"] and judge.adopted == ["a"]


@pytest.mark.parametrize(
    ("promises", "together"),
    [
        # Those with identical bits go together, up to the last of them; others wait for the rest.
        ([Parity.EXACT, Parity.EXACT], [(1, "b"), (0, "b")]),
        ([Parity.EXACT, Parity.CLOSE], [(0, "a"), (0, "b")]),
        ([Parity.CLOSE, Parity.CLOSE, Parity.CLOSE], [(2, "c"), (1, "c"), (0, "c")]),
        ([Parity.CLOSE, Parity.EXACT, Parity.EXACT], [(2, "c"), (1, "c"), (0, "c")]),
        ([Parity.EXACT, Parity.EXACT, Parity.CLOSE, Parity.CLOSE], [(1, "b"), (0, "b"), (1, "d"), (0, "d")]),
    ],
)
def test_changes_are_compared_together(promises: list[Parity], together: list[tuple[int, str]]) -> None:
    judge = Fake(whole="abcd")
    made = taken(judge, *(candidate(name, promise) for name, promise in zip("abcd", promises)))
    assert all(ok for _, ok in names(made))
    assert [(steps, last) for _, steps, last in judge.judged] == together


def test_large_changes_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speculation, "_MOST_HELD", 10)
    judge = Fake(whole="abc")
    made = taken(
        judge, candidate("a", Parity.CLOSE, 5), candidate("b", Parity.CLOSE, 5), candidate("c", Parity.CLOSE, 1)
    )
    # The third exceeds the limit, so that all three are decided.
    assert [one.judgement.result().step.name for one in made._changes] == ["a", "b", "c"]
    assert [(steps, last) for _, steps, last in judge.judged] == [(2, "c"), (1, "c"), (0, "c")] and made._held == 0
    two = taken(Fake(whole="ab"), candidate("a", Parity.CLOSE, 5), candidate("b", Parity.CLOSE, 5))
    assert two._held == 10 and not two._changes[0].judgement._gathered.is_set()
    two.close()


def test_what_is_not_judged_yet_is_not_yielded_without_waiting() -> None:
    judge = Fake()
    judge.may_begin.clear()
    made = taken(judge, candidate("a"), candidate("b"))
    assert names(made, wait=False) == [] and len(made) == 2
    judge.may_begin.set()
    assert names(made) == [("a", True), ("b", True)]


def test_judgements_that_have_not_begun_are_called_off() -> None:
    judge = Fake(whole="a")
    made = taken(judge, candidate("a", Parity.CLOSE), candidate("b"))
    made.close()
    for one in made._changes:
        one.judgement._thread.join()
    assert judge.killed == 1 and judge.judged == [] and judge.adopted == []
    empty = taken(judge)
    empty.close()
    assert judge.killed == 1


def test_an_error_of_the_judge_is_raised_where_the_change_is_due() -> None:
    judge = Fake(broken="b")
    made = taken(judge, candidate("a"), candidate("b"), candidate("c"))
    found = made.judged(wait=True)
    assert next(found)[0].step.name == "a"
    with pytest.raises(KeyError, match="b"):
        next(found)
    assert judge.adopted == ["a"] and len(made) == 1


@pytest.mark.parametrize(
    ("mode", "compare", "weights", "expected"),
    [
        ("each", "auto", speculation.FEW_WEIGHTS, True),
        ("each", "auto", speculation.FEW_WEIGHTS + 1, False),
        ("each", "region", speculation.FEW_WEIGHTS + 1, True),
        ("end", "auto", speculation.FEW_WEIGHTS + 1, True),
    ],
)
def test_running_ahead_pays_unless_the_weights_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch, mode: str, compare: str, weights: int, expected: bool
) -> None:
    monkeypatch.setattr(speculation, "weight_bytes", lambda proto: weights)
    judge: Any = SimpleNamespace(spec=SimpleNamespace(mode=mode, compare=compare))
    stored: Any = SimpleNamespace(proto=PROTO)
    assert pays(stored, judge) is expected
