"""How steps that run before the last one is judged are recorded, and what runs again; results are scripted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from surgery.base.promises import Parity
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import pipeline as module
from surgery.engine.pipeline import speculation
from surgery.engine.pipeline.candidate import Candidate, State
from surgery.engine.pipeline.pipeline import Abort, Arrived, Pipeline
from surgery.engine.pipeline.records import StepRecord
from surgery.engine.pipeline.speculation import Speculation
from surgery.engine.pipeline.step_cache_interface import Judged, NoCache
from surgery.engine.recipe.schema import PassStep
from surgery.engine.registry.passes import Pass
from surgery.model import storage
from surgery.model.graph import text


def state_of(nodes: str) -> State:
    """Return a model with a node for each letter."""
    names = ["x", *(f"v{number}" for number in range(len(nodes) - 1)), "y"]
    ops = {"r": "Relu", "n": "Neg", "a": "Abs", "e": "Exp"}
    body = " ".join(f"{names[i + 1]} = {ops[letter]}({names[i]})" for i, letter in enumerate(nodes))
    proto = text.parse(f'<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) {{ {body} }}')
    return State.of(proto, proto.SerializeToString(deterministic=True))


def letters(state: State) -> str:
    return "".join(sorted(op[0].lower() * count for op, count in state.ops.items()))


def step(name: str, on_failure: Any = "rollback", promise: Parity = Parity.CLOSE) -> PassStep:
    return PassStep(name, on_failure=on_failure, declared=Pass(name, promise, "graph", lambda graph: None))


class Run:
    """A pipeline whose passes turn one model into another, as is scripted, and whose judge has scripted results."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
        self.log: list[str] = []
        self.results: dict[str, Callable[[State], State | str]] = {}
        self.refused: dict[str, list[Any]] = {}
        self.done: set[str] = set()
        self.waits: set[str] = set()
        self.foreign: set[str] = set()
        run = self

        class Scripted:
            def __init__(self, step: PassStep, bench: Any, seconds: float = 0.0) -> None:
                self.step, self.bench, self.seconds = step, bench, seconds + 1.0
                self.declared = SimpleNamespace(is_standard=step.name not in run.foreign)

            def run(self) -> Candidate:
                state = self.bench.model.state
                run.log.append(f"{self.step.name} on {letters(state)}")
                after = run.results.get(self.step.name, lambda state: state)(state)
                if isinstance(after, str):
                    return Candidate(self.step, complaint=after)
                return Candidate(self.step, after.proto, after.data, changed=after.data != state.data)

            def avoid_guilty_sites(self, candidate: Candidate) -> Candidate:
                return candidate

            def judge(self, candidate: Candidate) -> Candidate:
                run.log.append(f"judge {self.step.name}")
                return run.judged(candidate)

            def reduce(self, candidate: Candidate) -> Judged:
                return Judged(candidate)

            def conclude(self, judged: Judged) -> StepRecord:
                candidate, model = judged.candidate, self.bench.model
                run.log.append(f"conclude {self.step.name} after {self.seconds:g}")
                status = "failed" if not candidate.ok else "committed" if candidate.changed else "unchanged"
                before = model.state
                if status == "committed":
                    model.enter(State.of(candidate.proto, candidate.data), live=False)
                return module.account(candidate, status, before, model.state)  # type: ignore[arg-type]

        class Judgement:
            def __init__(self, judge: Any, before: State, candidate: Candidate, declared: Any, previous: Any) -> None:
                self.candidate, self.seconds, self.called_off = candidate, 0.5, False
                run.log.append(f"take {candidate.step.name}{'' if previous is None else ' after another'}")

            @property
            def done(self) -> bool:
                return self.candidate.step.name in run.done

            def gather(self, later: Any) -> None:
                run.log.append(f"gather {self.candidate.step.name} with {later.candidate.step.name}")

            def result(self) -> Candidate:
                return run.judged(self.candidate)

            def call_off(self) -> None:
                self.called_off = True

            def wait(self, seconds: float) -> None:
                pass

        monkeypatch.setattr(module, "Transaction", Scripted)
        monkeypatch.setattr(speculation, "Judgement", Judgement)
        monkeypatch.setattr(speculation, "allows", lambda transaction: transaction.step.name not in self.waits)
        recipe = recipes.parse("recipe: r\nsteps: [drop-identity]\n")
        first = state_of("rn")
        self.made = Pipeline(storage.from_proto(first.proto), recipe, trusted=True, contained=False, **more)
        judge: Any = SimpleNamespace(checker=SimpleNamespace(kill=lambda: None))
        self.made._speculation = Speculation(judge)

    def judged(self, candidate: Candidate) -> Candidate:
        left = self.refused.get(candidate.step.name, [])
        return replace(candidate, **left.pop(0)) if left else candidate

    def run(self, names: str, on_failure: Any = "rollback", *, settle: bool = True) -> Run:
        self.made.run(tuple(step(name, on_failure) for name in names))
        if settle:
            self.made.settle()
        return self

    @property
    def records(self) -> list[str]:
        return [f"{one.name} {one.status} {one.nodes_before}-{one.nodes_after}" for one in self.made.journal.records]

    def runs(self) -> list[str]:
        return [line for line in self.log if " on " in line]


def adding(letter: str) -> Callable[[State], State]:
    def after(state: State) -> State:
        return state_of("".join(sorted(letters(state) + letter)))

    return after


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda **more: Run(monkeypatch, **more)


def test_the_next_pass_works_on_a_change_that_is_not_judged_yet(run: Any) -> None:
    made = run()
    made.results = {"p": adding("a"), "q": adding("e")}
    made.run("pq", settle=False)
    assert made.log == ["p on nr", "take p", "q on anr", "take q after another"]
    assert made.records == [] and made.made._changes == 2 and made.made.model.nodes == 4
    assert made.made.settle() is False
    assert made.records == ["p committed 2-3", "q committed 3-4"]
    assert [one.seconds for one in made.made.journal.records] == [1.5, 1.5]
    assert "gather p with q" in made.log and made.made._changes == 2


def test_a_change_that_is_judged_meanwhile_is_recorded(run: Any) -> None:
    made = run()
    made.results = {"p": adding("a"), "q": adding("e")}
    made.done = {"p"}
    made.run("pq", settle=False)
    assert made.records == ["p committed 2-3"] and made.log[-1] == "take q" and made.made.model.nodes == 4


def test_steps_that_change_nothing_are_recorded_with_the_change_before_them(run: Any) -> None:
    made = run()
    made.results = {"p": adding("a"), "q": adding("e")}
    made.run("upvq", settle=False)
    # Before the first change there is nothing to wait for.
    assert made.records == ["u unchanged 2-2"] and made.log[:3] == ["u on nr", "judge u", "conclude u after 1"]
    made.made.settle()
    assert made.records == ["u unchanged 2-2", "p committed 2-3", "v unchanged 3-3", "q committed 3-4"]
    assert made.made.journal.records[2].seconds == 1.0


def test_what_was_built_on_a_wrong_change_runs_again(run: Any) -> None:
    made = run()
    made.results = {"p": adding("a"), "q": adding("e")}
    made.refused = {"p": [{"complaint": "wrong"}]}
    made.run("pvq", settle=False)
    assert made.made.settle() is True
    assert made.runs() == ["p on nr", "v on anr", "q on anr", "v on nr", "q on nr"]
    assert made.records == ["p rolled_back 2-2", "v unchanged 2-2", "q committed 2-3"]
    assert "conclude p after 2.5" in made.log and made.made._changes == 1
    assert made.made.failed is not None and made.made.failed.complaint == "wrong"


def test_what_follows_a_wrong_change_in_the_middle_runs_again(run: Any) -> None:
    made = run()
    made.results = {"p": adding("a"), "q": adding("e"), "s": adding("r"), "t": adding("n")}
    made.refused = {"q": [{"complaint": "wrong"}]}
    made.run("pqst")
    assert made.runs()[4:] == ["s on anr", "t on anrr"]
    assert made.records == ["p committed 2-3", "q rolled_back 3-3", "s committed 3-4", "t committed 4-5"]
    assert made.made._changes == 3


def test_a_wrong_change_ends_the_run_if_its_step_aborts(run: Any) -> None:
    made = run()
    made.results = {"p": adding("a"), "q": adding("e")}
    made.refused = {"p": [{"complaint": "wrong"}]}
    with pytest.raises(Abort):
        made.run("pq", "abort")
    assert made.records == ["p failed 2-2"] and made.made.model.nodes == 2


def test_a_wrong_change_that_is_kept_is_committed(run: Any) -> None:
    made = run()
    made.results = {"p": adding("a")}
    made.refused = {"p": [{"complaint": "wrong"}]}
    made.run("p", "keep")
    assert made.records == ["p committed 2-3"] and made.made.failed is None


def test_a_pass_that_relied_on_a_wrong_shape_runs_again(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = run()
    doubted: list[Any] = []
    monkeypatch.setattr(made.made.model, "doubt", doubted.append)
    made.made.judge = SimpleNamespace(doubts="doubts", trusts=False, close=lambda: None)
    made.results = {"p": adding("a"), "q": adding("e")}
    made.refused = {"p": [{"complaint": "outdated", "is_outdated": True}]}
    made.run("pvq")
    assert doubted == ["doubts"] and made.runs()[3:] == ["p on nr", "v on anr", "q on anr"]
    assert made.records == ["p committed 2-3", "v unchanged 3-3", "q committed 3-4"] and made.made._changes == 2


@pytest.mark.parametrize("how", ["waits", "foreign", "fails"])
def test_some_steps_wait_until_those_before_them_are_judged(run: Any, how: str) -> None:
    made = run()
    made.results = {"p": adding("a"), "q": adding("e")}
    made.waits = {"q"} if how == "waits" else set()
    made.foreign = {"q"} if how == "foreign" else set()
    if how == "fails":
        made.results["q"] = lambda state: "it raised"
    made.run("pq", settle=False)
    at = made.log.index("q on anr")
    assert (made.log[at - 1] == "gather p with p") is (how != "fails")
    assert (
        made.records
        == {
            "waits": ["p committed 2-3", "q committed 3-4"],
            "foreign": ["p committed 2-3"],
            "fails": ["p committed 2-3", "q rolled_back 3-3"],
        }[how]
    )
    assert made.log[-1] == {"waits": "conclude q after 1", "foreign": "take q", "fails": "conclude q after 1"}[how]


def test_a_step_after_a_wrong_change_waits_for_what_runs_again(run: Any) -> None:
    made = run()
    made.results = {"p": adding("a"), "q": adding("e"), "s": adding("r")}
    made.refused, made.waits = {"p": [{"complaint": "wrong"}]}, {"s"}
    made.run("pqs")
    assert made.runs() == ["p on nr", "q on anr", "q on nr", "s on enr"]
    assert made.records == ["p rolled_back 2-2", "q committed 2-3", "s committed 3-4"]


def test_a_step_whose_change_turns_out_to_be_built_on_a_wrong_one_runs_again(run: Any) -> None:
    """It has run already, and is not concluded: its candidate belongs to a model that is not there any more."""
    made = run()
    made.results = {"p": adding("a"), "q": lambda state: "it raised" if "Abs" in state.ops else state}
    made.refused = {"p": [{"complaint": "wrong"}]}
    made.run("pq")
    assert made.runs() == ["p on nr", "q on anr", "q on nr"]
    assert made.records == ["p rolled_back 2-2", "q unchanged 2-2"]


def test_a_last_change_that_is_rolled_back_is_one(run: Any) -> None:
    made = run()
    made.results = {"p": adding("a")}
    made.refused = {"p": [{"complaint": "wrong"}]}
    made.run("p", settle=False)
    assert made.made.settle() is True and made.made.settle() is False and made.records == ["p rolled_back 2-2"]


class Cache(NoCache):
    """A cache that knows the outcome of a step on a model of some nodes."""

    def __init__(self, known: dict[str, Any]) -> None:
        self.known = known
        self.noted: list[tuple[str, str, int, int]] = []

    def may_know(self, step: PassStep, before: State) -> bool:
        return step.name in self.known

    def find(self, step: PassStep, before: State) -> Judged | None:
        found: Judged | None = self.known[step.name]
        return found

    def note(self, step: PassStep, judged: Judged, record: StepRecord, before: State, after: State) -> None:
        self.noted.append((step.name, record.status, before.nodes, after.nodes))


def test_a_known_outcome_is_taken_once_the_steps_before_are_judged(run: Any) -> None:
    made = run()
    after = state_of("aenr")
    known = Judged(Candidate(step("q"), after.proto, after.data, changed=True), cached=True)
    cache = made.made._cache = Cache({"q": known, "s": None})
    made.results = {"p": adding("a"), "s": adding("r")}
    made.run("pqs")
    assert made.runs() == ["p on nr", "s on aenr"] and "gather p with p" in made.log
    assert made.records == ["p committed 2-3", "q committed 3-4", "s committed 4-5"] and made.made._changes == 3
    assert cache.noted == [("p", "committed", 2, 3), ("q", "committed", 3, 4), ("s", "committed", 4, 5)]


def test_a_wrong_change_is_noted_with_the_model_before_it(run: Any) -> None:
    made = run()
    cache = made.made._cache = Cache({})
    made.results = {"p": adding("a"), "q": adding("e")}
    made.refused = {"p": [{"complaint": "wrong"}]}
    made.run("pvq")
    assert cache.noted == [("p", "rolled_back", 2, 2), ("v", "unchanged", 2, 2), ("q", "committed", 2, 3)]


def test_a_run_stops_before_a_step_once_all_is_judged(run: Any) -> None:
    made = run(until="q")
    made.results = {"p": adding("a")}
    with pytest.raises(Arrived):
        made.run("pq", settle=False)
    assert made.records == ["p committed 2-3"] and made.runs() == ["p on nr"]


def test_without_running_ahead_each_step_is_judged_first(run: Any) -> None:
    made = run()
    made.made._speculation = None
    made.results = {"p": adding("a"), "q": adding("e")}
    made.run("puq", settle=False)
    assert made.log == [
        *("p on nr", "judge p", "conclude p after 1"),
        *("u on anr", "judge u", "conclude u after 1"),
        *("q on anr", "judge q", "conclude q after 1"),
    ]
    assert made.made._changes == 2 and made.made.settle() is False


def test_closing_calls_off_what_is_not_judged(run: Any) -> None:
    made = run()
    killed: list[int] = []
    made.made._speculation._judge.checker.kill = lambda: killed.append(1)
    made.results = {"p": adding("a")}
    made.run("p", settle=False)
    (ahead,) = made.made._speculation._changes
    made.made._speculation.close()
    assert killed == [1] and ahead.judgement.called_off
    made.made.settle()
    made.made._speculation.close()
    assert killed == [1]


def test_changes_that_promise_bits_are_compared_apart(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = run()
    for letter, name in zip("aeanr", "pqstw"):
        made.results[name] = adding(letter)
    exact, close = Parity.EXACT, Parity.CLOSE
    made.made.run(tuple(step(name, promise=one) for name, one in zip("pqs", (close, exact, exact))))
    assert [line for line in made.log if line.startswith("gather")] == []
    made.made.run((step("t", promise=close),))
    assert [line for line in made.log if line.startswith("gather")] == ["gather q with s", "gather s with s"]
    # And all of them, if they take too much memory.
    monkeypatch.setattr(
        speculation, "_MOST_HELD", sum(len(one.judgement.candidate.data) for one in made.made._speculation._changes)
    )
    made.made.run((step("w", promise=close),))
    assert [line for line in made.log if line.startswith("gather")][2:] == [f"gather {name} with w" for name in "pqstw"]
