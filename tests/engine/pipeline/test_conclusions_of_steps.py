"""How steps and runs end: committed, undone or failed, with a record, and what is stored in a cache."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from surgery.base.errors import PassError, RaisedError
from surgery.base.promises import Parity
from surgery.engine import recipe as recipes
from surgery.engine.bridges.run_pass import PassResult
from surgery.engine.pipeline import transaction
from surgery.engine.pipeline.candidate import Candidate, State
from surgery.engine.pipeline.delta_debugging import Guilts
from surgery.engine.pipeline.records import DEPLOYED, Journal, RefusedSite, Silent
from surgery.engine.pipeline.step_cache_interface import Judged, NoCache
from surgery.engine.pipeline.transaction import RefusedEndError, Transaction, Workbench, _remark, _with_kept, account
from surgery.engine.recipe.schema import PassStep
from surgery.engine.registry.passes import Pass
from surgery.model.graph import text
from surgery.model.graph.graph import EXCEPTED
from surgery.model.graph.state import Defect, Refused, Site
from surgery.model.runtime.executed import Executed
from surgery.verification.comparing.deployment import Deployed
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN

FIRST, LAST = (
    State.of(model, model.SerializeToString())
    for model in (
        text.parse("g (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }"),
        text.parse("g (float[2] x) => (float[2] y) { y = Neg(x) }"),
    )
)
CLOSE, DIFFERENT = Verdict(Status.CLOSE), Verdict(Status.DIFFERENT, message="output y differs")
SITES = (Site(1, "a", (), ()), Site(2, "b", (), ()))


class Cache(NoCache):
    def __init__(self, **known: Any) -> None:
        self.known = known
        self.noted: list[Any] = []

    def find_whole(self, name: str, state: State) -> Any:
        return self.known.get("whole")

    def note_whole(self, name: str, state: State, verdict: Verdict) -> None:
        self.noted.append(verdict)

    def find_deployed(self, state: State) -> Any:
        return self.known.get("deployed")

    def note_deployed(self, state: State, deployed: Deployed) -> None:
        self.noted.append(deployed)


def bench(cache: Any = None, spec: Any = None, judge: Any = None, model: Any = None) -> Workbench:
    given: Any = {"deployment": "end", "mode": "auto", "timeout": None, "memory": None, "custom_op_library": ()}
    given["unverified"] = "refuse"
    given |= spec or {}
    known = SimpleNamespace(state=LAST, target=SimpleNamespace(runtime=None), stored=None, **(model or {}))
    return Workbench(
        known,  # type: ignore[arg-type]
        SimpleNamespace(**given),  # type: ignore[arg-type]
        SimpleNamespace(**(judge or {})),  # type: ignore[arg-type]
        Journal(Silent()),
        Guilts(),
        contained=False,
        cache=cache or Cache(),
    )


RAN, WRONG = Deployed(CLOSE, Executed({("A", "CPU"): 1})), Deployed(DIFFERENT)


class Deploying:
    def __init__(self, found: Deployed) -> None:
        self.found = found
        self.calls: list[bool] = []

    def __call__(self, state: State, with_original: bool) -> Deployed:
        self.calls.append(with_original)
        return self.found


@pytest.mark.parametrize(
    ("known", "with_original", "runtime", "calls", "noted"),
    [
        (None, False, None, [False], True),
        (None, True, None, [True], True),
        (RAN, False, None, [], False),
        (RAN, True, None, [True], True),  # the original was not counted
        (Deployed(CLOSE, RAN.executed, RAN.executed), True, None, [], False),
        # What another runtime did is not cached.
        (RAN, False, "openvino", [False], False),
    ],
)
def test_a_model_is_run_as_deployed_unless_that_is_known(
    known: Deployed | None, with_original: bool, runtime: str | None, calls: list[bool], noted: bool
) -> None:
    cache, deploy = Cache(deployed=known), Deploying(RAN)
    made = bench(cache, judge={"deploy": deploy})
    made.model.target.runtime = runtime  # type: ignore[misc]
    assert made.check_deployed(FIRST, with_original=with_original) == (known if not calls else RAN)
    assert deploy.calls == calls and cache.noted == ([RAN] if noted else [])


@pytest.mark.parametrize(("spec", "original"), [({"deployment": "off"}, FIRST), ({"mode": "off"}, FIRST), ({}, LAST)])
def test_a_model_is_not_run_as_deployed_without_need(spec: Any, original: State) -> None:
    assert bench(spec=spec, judge={"deploy": pytest.fail}).check_deployed(original) is None


@pytest.mark.parametrize("known", [None, WRONG])
def test_a_model_that_is_wrong_as_deployed_is_refused_or_recorded(known: Deployed | None) -> None:
    made = bench(Cache(deployed=known), judge={"deploy": Deploying(WRONG)})
    with pytest.raises(RefusedEndError) as error:
        made.check_deployed(FIRST)
    record = error.value.record
    assert (record.name, record.status, record.exit_code, record.nodes_after) == (DEPLOYED, "rolled_back", 1, 1)
    assert record.message == "output y differs; so the model was run as deployed after each step"
    assert record.cached is (known is not None) and record.verdict == DIFFERENT
    made = bench(Cache(deployed=known), {"deployment": "each"}, {"deploy": Deploying(WRONG)})
    assert made.check_deployed(FIRST) is WRONG
    (record,) = made.journal.records
    assert (record.status, record.message) == ("failed", "output y differs")


@pytest.mark.parametrize(
    ("known", "complaint", "message"),
    [(None, "", ""), (CLOSE, "", ""), (None, "it differs", "it differs; so each step was verified")],
)
def test_a_model_is_verified_as_a_whole(known: Verdict | None, complaint: str, message: str) -> None:
    cache = Cache(whole=known)
    calls: list[str] = []

    def verify(state: State, name: str) -> Verdict:
        calls.append(name)
        return CLOSE

    judge = {"is_open": lambda _: True, "verify_whole": verify, "conclude_whole": lambda verdict: (verdict, complaint)}
    made = bench(cache, judge=judge)
    if complaint:
        with pytest.raises(RefusedEndError) as error:
            made.verify_committed("(end)")
        record = error.value.record
    else:
        made.verify_committed("(end)")
        (record,) = made.journal.records
    assert calls == ([] if known else ["(end)"]) and cache.noted == [CLOSE]
    assert (record.status, record.exit_code) == (("rolled_back", 1) if complaint else ("committed", 0))
    assert (record.message, record.cached, record.name) == (message, known is not None, "(end)")
    assert record.verdict is not None and record.verdict.cached is (known is not None)


def test_nothing_is_verified_or_recorded_without_need() -> None:
    cache = Cache()
    made = bench(cache, judge={"is_open": lambda _: False})
    made.verify_committed("(end)")
    judge = {"is_open": lambda _: True, "verify_whole": lambda *_: CLOSE, "conclude_whole": lambda _: None}
    made = bench(cache, judge=judge)
    made.verify_committed("(end)")
    assert made.journal.records == [] and cache.noted == [CLOSE]


STEP: Any = recipes.parse("steps: [drop-identity]", "r.yaml").steps[0]


class Concluding:
    """A model and a judge that note what a conclusion does."""

    def __init__(self, moves: bool = False) -> None:
        self.done: list[str] = []
        self.moves = moves

    def bench(self) -> Workbench:
        def noting(name: str) -> Any:
            return lambda *_, **__: self.done.append(name)

        judge = {
            "moves_baseline": lambda _: self.moves,
            "adopt": noting("adopt"),
            "trusts": False,
            "join": noting("join"),
        }
        judge |= {"is_open": lambda _: bool(self.done.append("verify"))}
        return bench(judge=judge, model={"refuse": noting("refuse"), "enter": noting("enter")})


def candidate(**more: Any) -> Candidate:
    given: dict[str, Any] = {"proto": LAST.proto, "data": b"new", "changed": True, "sites": SITES, "verdict": CLOSE}
    return Candidate(**{"step": STEP, **given, **more})


@pytest.mark.parametrize(
    ("judged", "moves", "status", "done"),
    [
        (Judged(candidate()), False, "committed", ["enter", "adopt"]),
        (Judged(candidate()), True, "committed", ["verify", "enter", "adopt"]),
        (Judged(candidate(changed=False)), False, "unchanged", []),
        (Judged(candidate(changed=False), refused=(RefusedSite(1, "a", "w"),)), False, "rolled_back", []),
        (Judged(candidate(complaint="wrong", exit_code=1)), False, "failed", ["refuse"]),
        (Judged(candidate(proto=None, complaint="crashed", exit_code=3)), False, "failed", ["refuse"]),
        (Judged(candidate(complaint="wrong", step=replace(STEP, on_failure="keep"))), False, "committed",
         ["enter", "adopt"]),
    ],
)  # fmt: skip
def test_a_step_is_committed_or_undone(judged: Judged, moves: bool, status: str, done: list[str]) -> None:
    found = Concluding(moves)
    record = Transaction(STEP, found.bench()).conclude(replace(judged, cached=True))
    assert (record.status, found.done, record.cached) == (status, done, True)
    assert record.exit_code == (0 if status == "committed" else judged.candidate.exit_code)
    assert record.refused_sites == judged.refused and record.nodes_before == 1


def test_the_record_of_a_step_says_the_most_important() -> None:
    def message(**more: Any) -> str:
        refused = more.pop("refused", ())
        return account(candidate(**more), "committed", FIRST, LAST, 1.5, refused).message

    sites = tuple(RefusedSite(number, f"n{number}", "w") for number in range(4))
    excepted = (Refused("s", f"{EXCEPTED}n'"),)
    assert message(complaint="wrong", remarks=("fast",), refused=sites) == "wrong"
    assert message(remarks=("fast",), refused=sites).startswith("refused site 0 at 'n0': w; refused site 1")
    assert message(remarks=("fast",), refused=sites).endswith("refused site 2 at 'n2': w; and 1 more")
    assert message(defects=(Defect("n", "IndexError"),)) == "IndexError at 'n', which stays as it is"
    assert message(remarks=("fast", "small")) == "fast; small" and message() == ""
    assert message(verdict=Verdict(Status.UNVERIFIED, NOT_RUN)) == NOT_RUN
    left_alone = "1 match site touches what 'except' leaves alone: 'n'"
    assert message(refusals=excepted, remarks=("fast",)) == f"{left_alone}; fast"
    record = account(candidate(), "committed", FIRST, LAST, 1.5)
    assert (record.nodes_before, record.nodes_after, record.sites, record.seconds) == (2, 1, 2, 1.5)
    assert record.where == f"r.yaml:{STEP.line}" and account(candidate(), "unchanged", FIRST).nodes_after == 2
    assert account(candidate(step=PassStep("drop-identity")), "committed", FIRST).where == ""


def own(graph: Any) -> None: ...


@pytest.mark.parametrize(
    ("declared", "proto", "is_foreign"),
    [
        (Pass("own", Parity.EXACT, "graph", own), None, True),
        (Pass("own", Parity.EXACT, "graph", own), LAST.proto, False),
        (None, None, False),
    ],
)
def test_a_pass_of_the_user_that_failed_is_foreign(
    declared: Pass | None, proto: onnx.ModelProto | None, is_foreign: bool
) -> None:
    step = STEP if declared is None else PassStep("own", declared=declared)
    assert account(candidate(step=step, proto=proto, complaint="x"), "failed", FIRST).is_foreign is is_foreign


@pytest.mark.parametrize(
    ("verdict", "remark"),
    [
        (None, ""),
        (CLOSE, ""),
        (DIFFERENT, ""),
        (Verdict(Status.UNVERIFIED, NOT_RUN), NOT_RUN),
        (Verdict(Status.UNVERIFIED, NOT_RUN, message="no kernel"), "no kernel"),
    ],
)
def test_a_verdict_without_a_comparison_is_remarked(verdict: Verdict | None, remark: str) -> None:
    assert _remark(verdict) == remark


class _Kept(SimpleNamespace):
    def __init__(self, name: str, why: str = "") -> None:
        super().__init__(name=name, why=why)

    def __str__(self) -> str:
        return str(self.name)


def test_sites_that_stay_are_added_to_the_message() -> None:
    kept: list[Any] = [_Kept(name) for name in "abcd"]
    assert _with_kept("close", []) == "close"
    assert _with_kept("close", kept[:1]) == "close; 1 site stays unchanged: a"
    assert _with_kept("close", kept) == "close; 4 sites stay unchanged: a; b; c; and 1 more"
    kept[2:] = [_Kept("c", "no kernel"), _Kept("d", "no memory")]
    because = "with 2 of them, the converted model fails as deployed: no kernel"
    assert _with_kept("close", kept) == f"close; 4 sites stay unchanged: a; b; c; and 1 more; {because}"


@pytest.mark.parametrize(
    ("made", "may"),
    [
        (candidate(complaint="wrong", verdict=DIFFERENT), True),
        (candidate(complaint="no kernel", verdict=Verdict(Status.UNVERIFIED, NOT_RUN)), True),
        (candidate(complaint="wrong", verdict=DIFFERENT, final=True), False),
        (candidate(complaint="crashed", proto=None), False),
        (candidate(complaint="wrong", changed=False), False),
    ],
)
def test_a_failed_step_is_tried_in_part_if_it_made_a_model(made: Candidate, may: bool) -> None:
    assert Transaction(STEP, bench())._may_hold_in_part(made) is may


def test_defects_are_refusals_if_the_original_is_invalid() -> None:
    found = candidate(defects=(Defect("n", "IndexError"),), refusals=(Refused("a", "no"),))
    sound, wrong = ({"fault": lambda _, text=text: text} for text in ("", "no such type"))
    assert Transaction(STEP, bench(judge=sound))._excused(found) is found
    excused = Transaction(STEP, bench(judge=wrong))._excused(found)
    assert excused.defects == () and excused.changed
    assert [one.reason for one in excused.refusals] == ["no", "the input model is invalid: no such type"]
    lost = Transaction(STEP, bench(judge=wrong))._excused(replace(found, proto=None, complaint="IndexError"))
    assert (lost.proto, lost.complaint, lost.changed) == (LAST.proto, "", False)
    fine = candidate()
    assert Transaction(STEP, bench(judge={"fault": pytest.fail}))._excused(fine) is fine


class Live:
    """A live graph that passes run on, and how often."""

    def __init__(self) -> None:
        self.graph = SimpleNamespace(
            refusals=[Refused("r", "why")], spared=frozenset(), excepted={}, ir=SimpleNamespace(graph=[], functions={})
        )
        self.runs: list[frozenset[str]] = []

    def bench(self) -> Workbench:
        return bench(model={"editable": lambda: self.graph, "keeps_empty": False, "graph": self.graph})


@pytest.mark.parametrize(
    ("places", "promise", "runs"),
    [
        ([], Parity.EXACT, 1),
        (["a"], Parity.EXACT, 2),
        (["a", "b"], Parity.CLOSE, 3),
        (["a", "a"], Parity.EXACT, None),
        ([""], Parity.EXACT, None),
        (["a"], Parity.INTENDED, None),
        ([f"n{number}" for number in range(16)], Parity.EXACT, 17),
        ([f"n{number}" for number in range(17)], Parity.EXACT, None),
    ],
)
def test_a_pass_runs_again_without_the_nodes_at_which_it_raises(
    monkeypatch: pytest.MonkeyPatch, places: list[str], promise: Parity, runs: int | None
) -> None:
    live, left = Live(), list(places)

    def run_pass(declared: Any, graph: Any, options: Any, *limits: Any, skip: Any, contained: bool) -> PassResult:
        live.runs.append(graph.spared)
        if left:
            raise RaisedError("IndexError", at=left.pop(0))
        return PassResult(None, (), (), live=True)

    monkeypatch.setattr(transaction, "run_pass", run_pass)
    step = PassStep("own", declared=Pass("own", promise, "graph", own))
    made = Transaction(step, live.bench())
    if runs is None:
        with pytest.raises(RaisedError):
            made._made(frozenset())
    else:
        assert [defect.anchor for defect in made._made(frozenset()).defects] == places
        assert len(live.runs) == runs and live.runs[-1] == frozenset(places)
    assert live.graph.spared == frozenset() and live.graph.excepted == {}


def test_a_pass_that_raised_is_a_candidate_without_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    made = Transaction(STEP, Live().bench())
    raised = made._failed(RaisedError("IndexError at 'n'", at="n"))
    assert raised.defects == (Defect("", raised.complaint),) and raised.exit_code == 3 and raised.proto is None
    error = PassError("it crashed")
    error.printed = "printed\n"
    broke = made._failed(error)
    assert (broke.complaint, broke.exit_code, broke.refusals) == ("it crashed", 3, (Refused("r", "why"),))
    assert capsys.readouterr().err == "printed\n" and broke.defects == ()
    other = made._failed(KeyError("x"))
    assert other.exit_code == 3 and "KeyError" in other.complaint
