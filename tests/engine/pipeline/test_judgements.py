"""How a judge decides, from what a verifier and a checker say; nothing runs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from surgery.base.errors import SurgeryError, UsageError
from surgery.base.promises import Parity
from surgery.engine.pipeline import judging
from surgery.engine.pipeline.candidate import Candidate, Later, State
from surgery.engine.pipeline.judging import Verifying
from surgery.engine.pipeline.records import DEPLOYED, Journal, Silent
from surgery.engine.recipe.schema import PassStep
from surgery.engine.registry.passes import Pass
from surgery.model.graph import text
from surgery.verification.comparing.deployment import Deployed
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN, VACUOUS
from surgery.verification.verdict.validity import Validity

PROTO = text.parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
FIRST, LAST = State(PROTO, b"first", {}), State(PROTO, b"last", {})
EQUAL, CLOSE, LOSSY = Verdict(Status.EQUAL), Verdict(Status.CLOSE), Verdict(Status.LOSSY)
DIFFERENT = Verdict(Status.DIFFERENT, message="output y differs")
NO_KERNEL, PROVES_NOTHING = (
    Verdict(Status.UNVERIFIED, NOT_RUN, message="no kernel"),
    Verdict(Status.UNVERIFIED, VACUOUS),
)


class Original:
    """The run of the original, as a verifier has it."""

    def __init__(self) -> None:
        self.problem: str | None = None
        self.engine, self.runs = "onnxruntime", ["run"]
        self.gap, self.rejection = "", ""
        self.began = 0

    def begin(self) -> None:
        self.began += 1

    def join(self) -> None: ...

    def prepare(self) -> None: ...


class Noting(Silent):
    def __init__(self) -> None:
        self.stages: list[tuple[str, str]] = []

    def stage(self, step: str, stage: str) -> None:
        self.stages.append((step, stage))


class Judged:
    """A judge over answers that are given, which notes what it asks."""

    def __init__(self, verdict: Verdict = CLOSE, **spec: Any) -> None:
        self.asked: list[Any] = []
        self.verdict, self.deployed, self.complaints = verdict, Deployed(CLOSE), list[str]()
        self.original = Original()
        self.baseline = False
        references = SimpleNamespace(
            adopt=lambda *_, **more: self.asked.append(more), moves_baseline=lambda *_: self.baseline
        )
        self.seen = 0
        verifier = SimpleNamespace(original=self.original, misdeclared=frozenset(), seen=self.look)
        tracker = SimpleNamespace(
            verifier=verifier,
            references=references,
            complaints=lambda *_: self.complaints,
            verify=self.verify,
            deploy=self.deploy,
            keeps_terms=lambda *_: True,
            compare_ahead=lambda *_: True,
            take_whole=self.asked.append,
            names=lambda *_: {"x": "renamed"},
        )
        given = {"mode": "each", "deployment": "end", "unverified": "refuse", "timeout": 5.0, "memory": None, **spec}
        self.notes = Noting()
        reference: Any = SimpleNamespace(skeleton=b"original", tracker=tracker)
        settings: Any = SimpleNamespace(**given)
        self.judge = Verifying(reference, settings, Journal(self.notes), FIRST)
        self.findings: dict[bytes, list[str]] = {}
        checker: Any = SimpleNamespace(
            check=lambda data: self.findings.get(data, []),
            new=lambda original, known, data, found, misdeclared: [one for one in found if one not in known],
            close=lambda: self.asked.append("closed"),
        )
        self.judge.checker = checker

    def verify(self, *given: Any) -> Verdict:
        self.asked.append(("verify", given[2]))
        return self.verdict

    def look(self, *_: Any) -> list[Any]:
        self.seen += 1
        return []

    def deploy(self, *_: Any, **__: Any) -> Deployed:
        self.asked.append("deploy")
        return self.deployed


def own(graph: Any) -> None: ...


def candidate(promise: Parity = Parity.CLOSE, **more: Any) -> Candidate:
    step = PassStep("own", declared=Pass("own", promise, "graph", own))
    given: dict[str, Any] = {"proto": PROTO, "data": b"new", "changed": True, **more}
    return Candidate(step, **given)


def judged(made: Judged, given: Candidate, **more: Any) -> Candidate:
    return made.judge.judge(given, given.step.find(), **more)


@pytest.mark.parametrize(
    ("made", "given", "complaint", "asked"),
    [
        (Judged(), candidate(), "", [("verify", Parity.CLOSE)]),
        (Judged(DIFFERENT), candidate(), "output y differs", [("verify", Parity.CLOSE)]),
        (Judged(NO_KERNEL), candidate(), "no kernel", [("verify", Parity.CLOSE)]),
        (Judged(PROVES_NOTHING), candidate(), VACUOUS, [("verify", Parity.CLOSE)]),
        (Judged(NO_KERNEL, unverified="accept"), candidate(), "", [("verify", Parity.CLOSE)]),
        (Judged(DIFFERENT, unverified="accept"), candidate(), "output y differs", [("verify", Parity.CLOSE)]),
        (Judged(mode="off"), candidate(), "", []),
        (Judged(mode="end"), candidate(), "", []),
        (Judged(mode="end"), candidate(Parity.LOSSY), "", [("verify", Parity.LOSSY)]),
        (Judged(mode="off"), candidate(Parity.LOSSY), "", []),
        # Deployed after each step, unless nothing can be compared.
        (Judged(deployment="each"), candidate(), "", [("verify", Parity.CLOSE), "deploy"]),
        (Judged(deployment="each"), candidate(Parity.LOSSY), "", [("verify", Parity.LOSSY)]),
        (Judged(DIFFERENT, deployment="each"), candidate(), "output y differs", [("verify", Parity.CLOSE)]),
    ],
)
def test_a_candidate_is_compared_and_complained_of(
    made: Judged, given: Candidate, complaint: str, asked: list[Any]
) -> None:
    found = judged(made, given)
    assert (found.complaint, found.exit_code) == (complaint, 1 if complaint else 0)
    assert made.asked == asked and found.verdict == (made.verdict if asked else None)


def test_what_is_wrong_as_deployed_is_wrong() -> None:
    made = Judged(deployment="each")
    made.deployed = Deployed(DIFFERENT)
    found = judged(made, candidate())
    assert found.verdict is DIFFERENT and found.complaint == "output y differs"
    assert made.notes.stages == [("own", "check"), ("own", "parity"), ("own", "as deployed")]


def test_the_signature_comes_before_the_checker_and_that_before_the_outputs() -> None:
    made = Judged()
    made.complaints = ["y is gone", "z is new"]
    found = judged(made, candidate())
    assert found.complaint == "signature: y is gone" and made.asked == [] == made.notes.stages
    made = Judged()
    made.findings[b"new"] = ["known", "new"]
    made.findings[b"original"] = ["known"]
    found = judged(made, candidate())
    assert found.complaint == "new" and made.asked == [] and made.notes.stages == [("own", "check")]
    # Findings that were made ahead are not made again.
    assert judged(made, candidate(), findings=["known"]).complaint == ""
    assert judged(made, candidate(), findings=["other"]).complaint == "other"


@pytest.mark.parametrize("more", [{"proto": None}, {"changed": False}, {"complaint": "crashed"}])
def test_what_made_no_new_model_is_not_judged(more: dict[str, Any]) -> None:
    made, given = Judged(DIFFERENT), candidate(**more)
    assert judged(made, given) is given and made.asked == []


@pytest.mark.parametrize(
    ("mode", "promise", "changes", "looks"),
    [
        ("each", Parity.CLOSE, (), 1),
        ("end", Parity.EXACT, (), 1),
        ("off", Parity.CLOSE, (), 0),
        ("each", Parity.LOSSY, (), 0),
        ("each", Parity.CLOSE, ("names",), 0),
    ],
)
def test_inferred_shapes_are_compared_with_runs(mode: str, promise: Parity, changes: Any, looks: int) -> None:
    made, given = Judged(mode=mode), candidate(promise)
    made.judge.judge(given, Pass("own", promise, "graph", own, changes=frozenset(changes)))
    assert made.seen == looks


def test_a_candidate_that_relied_on_a_wrong_shape_is_outdated() -> None:
    made = Judged()
    made.judge._doubting.found["a"] = (0,)
    found = judged(made, candidate())
    assert found.is_outdated and found.exit_code == 1 and "contradicts inferred shapes" in found.complaint
    assert not judged(made, candidate(doubts={"a"})).is_outdated and made.asked == [("verify", Parity.CLOSE)]


@pytest.mark.parametrize(
    ("error", "complaint", "code"), [(SurgeryError("it crashed"), "it crashed", 3), (KeyError("x"), "KeyError", 3)]
)
def test_an_error_of_the_verifier_is_a_complaint(error: Exception, complaint: str, code: int) -> None:
    made = Judged()

    def fail(*_: Any) -> Verdict:
        raise error

    made.judge.tracker.verify = fail  # type: ignore[method-assign]
    found = judged(made, candidate())
    assert complaint in found.complaint and found.exit_code == getattr(error, "exit_code", code)
    made.judge.tracker.verify = lambda *_: (_ for _ in ()).throw(UsageError("no such input"))  # type: ignore
    with pytest.raises(UsageError):
        judged(made, candidate())


def test_several_steps_are_compared_as_one() -> None:
    later = Later(candidate(), 2)
    assert later.remark == "compared as one with the next 2 steps, up to own"
    assert replace(later, steps=1).remark == "compared as one with the next step, up to own"
    assert later.made == (2, (PROTO, b"new")) and Later(candidate(proto=None), 2).made is None
    made = Judged(replace(CLOSE, message="close", together=2))
    found = judged(made, candidate(), later=later)
    assert found.verdict is not None and found.verdict.message == f"close; {later.remark}"


@pytest.mark.parametrize(
    ("mode", "promise", "verdict", "more", "is_open"),
    [
        ("each", Parity.CLOSE, CLOSE, {"right": True, "accepted": True, "intended": False, "lossy": False}, False),
        ("each", Parity.EXACT, CLOSE, {"right": True, "accepted": False, "intended": False, "lossy": False}, False),
        ("each", Parity.CLOSE, EQUAL, {"right": True, "accepted": False, "intended": False, "lossy": False}, False),
        ("each", Parity.CLOSE, None, {"right": False, "accepted": False, "intended": False, "lossy": False}, False),
        ("each", Parity.LOSSY, LOSSY, {"right": False, "accepted": False, "intended": False, "lossy": True}, False),
        ("each", Parity.INTENDED, EQUAL, {"right": True, "accepted": False, "intended": True, "lossy": False}, False),
        ("end", Parity.LOSSY, LOSSY, {"right": False, "accepted": False, "intended": False, "lossy": True}, True),
        ("each", Parity.CLOSE, replace(CLOSE, region=3),
         {"right": True, "accepted": True, "intended": False, "lossy": False}, True),
    ],
)  # fmt: skip
def test_a_committed_candidate_is_the_reference_of_later_ones(
    mode: str, promise: Parity, verdict: Verdict | None, more: dict[str, bool], is_open: bool
) -> None:
    made = Judged(mode=mode)
    made.judge.adopt(candidate(promise, verdict=verdict))
    assert made.asked == [more]
    assert made.judge.is_open(LAST) is is_open
    if promise in (Parity.LOSSY, Parity.INTENDED):
        assert not made.judge.is_open(replace(LAST, data=b"new"))  # the new baseline


@pytest.mark.parametrize(
    ("mode", "promise", "baseline", "moves"),
    [
        ("each", Parity.CLOSE, True, False),
        ("end", Parity.CLOSE, True, True),
        ("end", Parity.CLOSE, False, False),
        ("each", Parity.LOSSY, False, True),
        ("each", Parity.INTENDED, False, True),
    ],
)
def test_a_new_baseline(mode: str, promise: Parity, baseline: bool, moves: bool) -> None:
    made = Judged(mode=mode)
    made.baseline = baseline
    assert made.judge.moves_baseline(candidate(promise)) is moves


@pytest.mark.parametrize(
    ("mode", "state", "is_open"), [("each", LAST, False), ("end", LAST, True), ("end", FIRST, False)]
)
def test_a_model_is_open_until_it_is_compared_as_a_whole(mode: str, state: State, is_open: bool) -> None:
    assert Judged(mode=mode).judge.is_open(state) is is_open


@pytest.mark.parametrize(
    ("mode", "verdict", "can_run", "found", "end"),
    [
        ("end", CLOSE, True, (CLOSE, ""), None),
        ("end", DIFFERENT, True, (DIFFERENT, "output y differs"), None),
        ("end", NO_KERNEL, True, (NO_KERNEL, "no kernel"), None),
        ("each", CLOSE, True, None, CLOSE),
        ("each", DIFFERENT, True, (DIFFERENT, "output y differs"), None),
        ("each", NO_KERNEL, True, (NO_KERNEL, "no kernel"), None),
        ("each", NO_KERNEL, False, None, NO_KERNEL),
        ("each", PROVES_NOTHING, True, None, PROVES_NOTHING),
    ],
)
def test_the_verdict_on_the_whole_model(
    mode: str, verdict: Verdict, can_run: bool, found: Any, end: Verdict | None
) -> None:
    made = Judged(mode=mode)
    made.original.problem = None if can_run else "no kernel"
    assert made.judge.conclude_whole(verdict) == found
    assert made.judge.end is end and made.asked == [verdict]
    assert made.judge.is_open(LAST) is (mode != "each")


def test_regions_are_compared_ahead_if_the_step_is_compared() -> None:
    made = Judged()
    assert made.judge.compare_ahead(FIRST, candidate(), [])
    assert not made.judge.compare_ahead(FIRST, candidate(), ["a finding"])
    assert not made.judge.compare_ahead(FIRST, candidate(proto=None), [])
    assert not Judged(mode="end").judge.compare_ahead(FIRST, candidate(), [])
    made.judge.tracker.keeps_terms = lambda *_: False  # type: ignore[method-assign]
    assert not made.judge.compare_ahead(FIRST, candidate(), [])
    made.judge.tracker.keeps_terms = lambda *_: 1 / 0  # type: ignore
    assert not made.judge.compare_ahead(FIRST, candidate(), [])


def test_names_are_matched_for_changed_models() -> None:
    made = Judged()
    given = candidate()
    assert made.judge.names(given, given.step.find()).renamed == {"x": "renamed"} and made.original.began == 1
    for other in (candidate(proto=None), candidate(changed=False)):
        assert made.judge.names(other, other.step.find()) is other
    off = Judged(mode="off")
    off.judge.prepare()
    assert made.original.began == 1 and off.original.began == 0


@pytest.mark.parametrize(
    ("engine", "runs", "problem", "is_evaluated"),
    [
        ("reference", ["run"], None, True),
        ("onnxruntime", ["run"], None, False),
        ("reference", [], None, False),
        ("reference", ["run"], "no kernel", False),
    ],
)
def test_the_reference_evaluator_runs_the_original(
    engine: str, runs: list[str], problem: str | None, is_evaluated: bool
) -> None:
    made = Judged()
    made.original.engine, made.original.runs, made.original.problem = engine, runs, problem
    assert made.judge.is_evaluated is is_evaluated
    assert made.judge.can_run is (problem is None) and made.judge.why_unknown() == (problem or "")


def test_a_checker_that_breaks_is_a_finding() -> None:
    made = Judged()
    made.judge.checker.check = lambda data: 1 / 0  # type: ignore
    (finding,) = made.judge.find(candidate())
    assert finding.startswith("checker: ") and "ZeroDivisionError" in finding


def test_the_whole_model_is_compared_and_run_as_deployed() -> None:
    made = Judged()
    made.judge.tracker.verify_whole = lambda proto, data: CLOSE  # type: ignore
    assert made.judge.verify_whole(LAST, "(end)") is CLOSE and made.judge.deploy(LAST) == Deployed(CLOSE)
    assert made.asked == ["closed", "deploy"] and made.notes.stages == [("(end)", "parity"), (DEPLOYED, "parity")]


@pytest.mark.parametrize(
    ("mode", "findings", "gap", "fault"),
    [
        ("each", [], "", ""),
        ("each", ["no such type"], "", "no such type"),
        ("each", [], "no kernel", ""),
        ("off", ["no such type", "nor this"], "", "no such type; nor this"),
        ("off", [], "", ""),
    ],
)
def test_why_an_original_is_invalid(
    monkeypatch: pytest.MonkeyPatch, mode: str, findings: list[str], gap: str, fault: str
) -> None:
    monkeypatch.setattr(judging, "stale", lambda stored, findings: ())
    monkeypatch.setattr(judging, "listed_weights", lambda proto: ())
    made = Judged(mode=mode)
    made.findings[b"original"] = findings
    made.original.gap = gap
    found = made.judge.fault(SimpleNamespace(proto=onnx.ModelProto()))  # type: ignore[arg-type]
    assert fault in found and bool(found) is bool(fault)


@pytest.mark.parametrize(
    ("weights", "runs", "problem", "prepared", "loaded"),
    [
        (8, ["run"], None, 1, False),
        (8, [], None, 1, True),
        (8, ["run"], "no kernel", 1, True),
        (9, [], "no kernel", 0, False),  # too large to run
    ],
)
def test_an_original_that_was_not_run_is_loaded(
    monkeypatch: pytest.MonkeyPatch, weights: int, runs: list[str], problem: str | None, prepared: int, loaded: bool
) -> None:
    monkeypatch.setattr(judging, "stale", lambda stored, findings: "stale")
    monkeypatch.setattr(judging, "listed_weights", lambda proto: 2)
    monkeypatch.setattr(judging, "weight_bytes", lambda proto: weights)
    monkeypatch.setattr(judging, "most_weights", lambda memory: 8)
    found = Validity(refusal=problem or "")
    monkeypatch.setattr(judging, "validity", lambda *_: found)
    made = Judged()
    calls: list[str] = []
    made.original.prepare = lambda: calls.append("prepare")  # type: ignore[method-assign]
    made.original.runs, made.original.problem = runs, problem
    made.original.gap, made.original.rejection = "a gap", ("it fails", True)  # type: ignore[assignment]
    answer = made.judge.validity(SimpleNamespace(proto=None))  # type: ignore[arg-type]
    assert len(calls) == prepared
    if loaded:
        assert answer == (found if problem else found.with_rejection(("it fails", True)))
    else:
        assert (answer.refusal, answer.gap, answer.overridable, answer.stale) == ("a gap", True, 2, "stale")


def test_findings_about_the_original_are_looked_for_once() -> None:
    made = Judged(mode="off")
    checked: list[bytes] = []
    made.judge.checker.check = lambda data: checked.append(data) or ["bad"]  # type: ignore
    stored: Any = SimpleNamespace(proto=onnx.ModelProto())
    assert [made.judge.fault(stored) for _ in "ab"] == ["bad", "bad"] and checked == [b"original"]
    made = Judged()
    made.judge.checker.check = lambda data: checked.append(data) or (["bad"] if data == b"new" else [])  # type: ignore
    for _ in "ab":
        judged(made, candidate())
    assert checked == [b"original", b"new", b"original", b"new"]
    judged(made, candidate(), findings=[])
    assert len(checked) == 4


def test_a_judge_that_trusts_reads_the_inputs_of_the_original_once() -> None:
    begun: list[str] = []
    tracker = SimpleNamespace(
        calibration=lambda: ["feed"], draws_calibration=True, close=lambda: begun.append("closed")
    )

    def begin() -> Any:
        begun.append("begun")
        return SimpleNamespace(tracker=tracker)

    judge = judging.Trusting(begin)
    assert judge.feeds() == ["feed"] and judge.is_drawn and begun == ["begun", "closed"]
    given = candidate()
    assert judge.judge(given, given.step.find()) is given is judge.names(given, given.step.find())
    assert not judge.is_open(LAST) and not judge.moves_baseline(given) and judge.trusts and not judge.can_run
    assert judge.conclude_whole(CLOSE) is None and judge.limits == ()
    assert judge.verify_whole(LAST, "(end)").is_unverified and judge.deploy(LAST).verdict.is_unverified


def test_a_judge_closes_its_checker_and_its_runs() -> None:
    made = Judged()
    made.judge.tracker.close = lambda: made.asked.append("tracker")  # type: ignore[method-assign]
    made.judge.close()
    assert made.asked == ["closed", "tracker"]
