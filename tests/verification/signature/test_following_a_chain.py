"""Which comparison the models of a chain get, and what is said of it; the comparisons themselves are given by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from surgery.base.errors import SurgeryError
from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.model.proto.signature import signature
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN, VACUOUS
from surgery.verification.comparing.ports import PortMatch
from surgery.verification.inputs.spec import DataSpec, InputsSpec, VerifySpec
from surgery.verification.signature import intended as trial
from surgery.verification.signature import tracker as following
from surgery.verification.signature.tracker import SignatureTracker, match_by_order

EQUAL, DIFFERENT = Verdict(Status.CLOSE, message="equal"), Verdict(Status.DIFFERENT, message="it differs")
OPEN = Verdict(Status.UNVERIFIED, VACUOUS, message="nothing")
UNRUN = Verdict(Status.UNVERIFIED, NOT_RUN, message="no run")


def _model(inputs: str = "float[n] x", outputs: str = "float[n] y", body: str = "y = Neg(x)") -> onnx.ModelProto:
    return text.parse(f"g ({inputs}) => ({outputs}) {{ {body} }}")


MODEL = _model()
DATA = MODEL.SerializeToString()


class _Verifier:
    """A verifier that gives a known verdict, and notes what it is asked."""

    def __init__(self, verdict: Verdict = EQUAL, together: bool = True) -> None:
        self.verdict, self.together = verdict, together
        self.asked: list[tuple[Any, ...]] = []
        self.original = SimpleNamespace(name="an original")
        self.accuracy = SimpleNamespace(limits=("a limit",))
        self.calibration = SimpleNamespace(feeds=[{"x": 1, "z": 2}], synthetic=True)
        self.deployed = 0

    def verify(self, *asked: Any) -> Verdict:
        self.asked.append(("verify", *asked))
        return self.verdict

    def look_inside(self, *asked: Any) -> Verdict:
        self.asked.append(("inside", *asked))
        return EQUAL

    def compare_ahead(self, *asked: Any) -> bool:
        self.asked.append(("ahead", *asked))
        return self.together

    def deploy_ahead(self) -> None:
        self.deployed += 1

    def deploy(self, *asked: Any, **options: Any) -> Any:
        self.asked.append(("deploy", *asked, options))
        return "deployed"

    def measure(self, *asked: Any, **options: Any) -> Any:
        self.asked.append(("measure", *asked, options))
        return "measured"


class _Terms:
    """Terms in which a model is seen under another name."""

    def __init__(self, name: str = "t", problem: Verdict | None = None, hint: str = "", **more: Any) -> None:
        self.name, self.signature, self.hinted = name, signature(MODEL), hint
        self.verifier: Any = _Verifier(**more)
        self.broken = problem
        self.incomparable: tuple[str, ...] = ()
        self.remarks: tuple[str, ...] = ()
        self.freed: Any = {}
        self.match = PortMatch((("x", "first"),), ())

    def problem(self, model: Any) -> Verdict | None:
        return self.broken

    def align(self, model: Any, data: Any) -> Any:
        return self.name, data

    def hint(self, model: Any) -> str:
        return self.hinted

    def inputs_for(self, model: Any, spec: Any) -> Any:
        return InputsSpec(only_given=True), {}


class _References:
    def __init__(self, terms: _Terms, other: _Terms | None = None, accurate: _Terms | None = None) -> None:
        self.terms = terms
        self.other = other or terms
        self.accurate = accurate
        self.committed = b"committed"
        self.is_right = True
        self.is_closed = False

    def comparable(self, *_: Any) -> _Terms:
        return self.other

    def accurate_terms(self, *_: Any) -> _Terms:
        return self.accurate or self.other

    def fresh_terms(self, *_: Any) -> _Terms:
        return self.other

    def aligned(self) -> str:
        return "before"

    def close(self) -> None:
        self.is_closed = True


def _tracker(references: Any, **spec: Any) -> SignatureTracker:
    tracker = SignatureTracker(DATA, InputsSpec(), replace(VerifySpec(), **spec))
    tracker.references = references
    return tracker


# What a changed model is compared with


@pytest.mark.parametrize(
    ("spec", "promise", "right", "same", "before"),
    [
        ({"mode": "each", "compare": "region"}, Parity.CLOSE, True, True, "before"),
        ({"mode": "each", "compare": "region"}, Parity.CLOSE, False, True, None),
        ({"mode": "each", "compare": "region"}, Parity.CLOSE, True, False, None),
        ({"mode": "each", "compare": "both"}, Parity.CLOSE, True, True, None),
        ({"mode": "final", "compare": "region"}, Parity.CLOSE, True, True, None),
    ],
)
def test_regions_are_compared_with_the_committed_model_once_that_is_right(
    spec: dict[str, str], promise: Parity, right: bool, same: bool, before: str | None
) -> None:
    references = _References(_Terms(), None if same else _Terms("other"))
    references.is_right = right
    tracker = _tracker(references, **spec)
    assert tracker.verify(MODEL, b"new", promise, {}) == EQUAL
    name = "t" if same else "other"
    assert references.other.verifier.asked == [("verify", (name, b"new"), promise, before, None)]
    assert tracker._compares_regions(Parity.LOSSY) is False
    ahead = tracker.compare_ahead((MODEL, b"old"), (MODEL, b"new"), promise)
    assert ahead is False
    expected = ("ahead", ("t", b"old"), ("t", b"new"), promise)
    assert (expected in references.terms.verifier.asked) == (right and spec == {"mode": "each", "compare": "region"})


def test_what_cannot_be_compared_ahead_is_compared_as_a_whole() -> None:
    tracker = _tracker(_References(_Terms(together=False)), mode="each", compare="region")
    assert tracker.compare_ahead((MODEL, b"old"), (MODEL, b"new"), Parity.CLOSE) is True


@pytest.mark.parametrize(
    ("made", "compare", "seen"),
    [
        (MODEL, "region", (3, ("t", b"later"))),
        (_model("float[n] x, float[n] z"), "region", None),
        (MODEL, "both", None),
    ],
)
def test_a_later_model_is_at_hand_where_it_has_the_same_signature(
    made: onnx.ModelProto, compare: str, seen: Any
) -> None:
    references = _References(_Terms())
    tracker = _tracker(references, mode="each", compare=compare)
    tracker.verify(MODEL, b"new", Parity.CLOSE, {}, (), (3, (made, b"later")))
    before = "before" if compare == "region" else None
    assert references.terms.verifier.asked == [("verify", ("t", b"new"), Parity.CLOSE, before, seen)]


def test_a_model_keeps_its_terms_unless_its_signature_changes_or_it_says_how_values_follow() -> None:
    tracker = _tracker(_References(_Terms()))
    wider = _model("float[n] x, float[n] z")
    renamed = _model("float[n] w", body="y = Neg(w)")
    account: Any = ("an account",)
    assert tracker.keeps_terms(MODEL, Parity.CLOSE, {}, ())
    assert tracker.keeps_terms(MODEL, Parity.LOSSY, {}, ())
    assert not tracker.keeps_terms(MODEL, Parity.INTENDED, {}, ())
    assert not tracker.keeps_terms(MODEL, Parity.CLOSE, {}, account)
    assert not tracker.keeps_terms(wider, Parity.CLOSE, {}, ())
    assert not tracker.keeps_terms(renamed, Parity.CLOSE, {}, ())
    assert not tracker.keeps_terms(renamed, Parity.CLOSE, {"x": "w"}, ())


@pytest.mark.parametrize(
    ("spec", "verdict", "right", "looks"),
    [
        ({"mode": "each", "compare": "both"}, OPEN, True, True),
        ({"mode": "each", "compare": "both"}, OPEN, False, False),
        ({"mode": "each", "compare": "both"}, UNRUN, True, False),
        ({"mode": "each", "compare": "model"}, OPEN, True, False),
        ({"mode": "final", "compare": "both"}, OPEN, True, False),
    ],
)
def test_regions_are_looked_into_where_outputs_prove_nothing(
    spec: dict[str, str], verdict: Verdict, right: bool, looks: bool
) -> None:
    references = _References(_Terms(verdict=verdict))
    references.is_right = right
    found = _tracker(references, **spec).verify(MODEL, b"new", Parity.CLOSE, {})
    inside = [asked for asked in references.terms.verifier.asked if asked[0] == "inside"]
    assert inside == ([("inside", "before", ("t", b"new"), Parity.CLOSE, OPEN)] if looks else [])
    assert found == (EQUAL if looks else verdict)


def test_regions_are_not_looked_into_under_other_terms() -> None:
    other = _Terms("other", verdict=OPEN)
    tracker = _tracker(_References(_Terms(), other), mode="each", compare="both")
    assert tracker.verify(MODEL, b"new", Parity.CLOSE, {}).reason == VACUOUS
    assert [asked[0] for asked in other.verifier.asked] == ["verify"]


def test_a_problem_takes_the_place_of_a_comparison() -> None:
    broken = _Terms(problem=DIFFERENT)
    for promise in (Parity.CLOSE, Parity.LOSSY):
        assert _tracker(_References(broken)).verify(MODEL, b"new", promise, {}) == DIFFERENT
    assert _tracker(_References(broken)).verify_whole(MODEL, b"new") == DIFFERENT
    assert _tracker(_References(broken)).measure(MODEL, b"new", {}).failure == "it differs"
    assert _tracker(_References(broken)).deploy(MODEL, b"new", {}).verdict == DIFFERENT
    assert not broken.verifier.asked


def test_a_lossy_change_is_compared_in_the_terms_of_its_accuracy() -> None:
    accurate = _Terms("accurate")
    references = _References(_Terms(), accurate=accurate)
    assert _tracker(references).verify(MODEL, b"new", Parity.LOSSY, {}) == EQUAL
    assert accurate.verifier.asked == [("verify", ("accurate", b"new"), Parity.LOSSY)]
    assert not references.terms.verifier.asked


def test_an_intended_change_is_run_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def examine(*arguments: Any) -> Verdict:
        asked.append(arguments)
        return EQUAL

    monkeypatch.setattr(trial, "examine", examine)
    terms, fresh = _Terms(), _Terms("fresh")
    assert _tracker(_References(terms, fresh)).verify(MODEL, b"new", Parity.INTENDED, {}) == EQUAL
    assert asked == [(fresh.verifier.original, terms.verifier, terms.match)]


@pytest.mark.parametrize(
    ("verdict", "data", "before", "right"),
    [
        (EQUAL, b"committed", False, True),
        (EQUAL, b"new", False, False),
        (DIFFERENT, b"committed", False, False),
        (DIFFERENT, b"new", True, True),
    ],
)
def test_the_committed_model_is_right_once_it_has_passed(
    verdict: Verdict, data: bytes, before: bool, right: bool
) -> None:
    references = _References(_Terms(verdict=verdict))
    references.is_right = before
    _tracker(references).verify(MODEL, data, Parity.CLOSE, {})
    assert references.is_right is right


def test_a_model_with_new_dynamic_dims_runs_at_other_sizes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    closed: list[bytes] = []

    class Fresh:
        def __init__(self, data: bytes, inputs: InputsSpec, spec: VerifySpec) -> None:
            assert not inputs.only_given and not inputs.data
            self.data, self.original = data, f"original of {data.decode()}"

        def close(self) -> None:
            closed.append(self.data)

    def elsewhere(original: Any, freed: Any) -> Verdict | None:
        ran.append((original, freed))
        return answers.pop()

    monkeypatch.setattr(following, "Verifier", Fresh)
    monkeypatch.setattr(trial, "runs_elsewhere", elsewhere)
    answers = [DIFFERENT, None]
    for freed, verdict, found in (
        ({"n": 2}, EQUAL, EQUAL),
        ({"n": 2}, EQUAL, DIFFERENT),
        ({}, EQUAL, EQUAL),
        ({"n": 2}, OPEN, OPEN),
    ):
        other = _Terms("other", verdict=verdict)
        other.freed = freed
        assert _tracker(_References(_Terms(), other)).verify(MODEL, b"new", Parity.CLOSE, {}) == found
    assert ran == [("original of new", {"n": 2})] * 2 and closed == [b"new"] * 2
    same = _Terms()
    same.freed = {"n": 2}
    assert _tracker(_References(same)).verify(MODEL, b"new", Parity.CLOSE, {}) == EQUAL and len(ran) == 2


# What is said of it


def test_a_verdict_names_what_changed_in_the_signature_and_what_is_not_compared() -> None:
    wide = _model("float[n] x, float[n] a, float[n] b, float[n] c, float[n] d")
    other = _Terms("other")
    other.signature, other.incomparable, other.remarks = signature(wide), ("y", "z"), ("a remark",)
    message = _tracker(_References(_Terms(), other)).verify(wide, b"new", Parity.CLOSE, {}).message
    changes = [one.text for one in signature(MODEL).compare(signature(wide))]
    assert len(changes) == 4
    told = f"{'; '.join(changes[:3])}; and 1 more"
    assert message == f"equal; {told}; output 'y' is not compared; output 'z' is not compared; a remark"
    same = _Terms()
    same.remarks = ("a remark",)
    assert _tracker(_References(same)).verify(MODEL, b"new", Parity.CLOSE, {}).message == "equal"


@pytest.mark.parametrize(
    ("verdict", "hint", "message"),
    [(UNRUN, "a hint", "no run; a hint"), (UNRUN, "", "no run"), (OPEN, "a hint", "nothing")],
)
def test_a_hint_is_given_where_nothing_ran(verdict: Verdict, hint: str, message: str) -> None:
    tracker = _tracker(_References(_Terms(verdict=verdict, hint=hint)))
    assert tracker.verify(MODEL, b"new", Parity.CLOSE, {}).message == message


def test_only_undeclared_changes_are_complained_of() -> None:
    tracker = _tracker(_References(_Terms()))
    wide = _model("float[n] x, float[n] a", "float[m] y")
    found = signature(MODEL).compare(signature(wide))
    assert len({one.change for one in found}) == 2
    for declared in found:
        (complaint,) = tracker.complaints(wide, {declared.change}, {})
        (other,) = (one for one in found if one is not declared)
        assert complaint == f"{other.text}; the pass does not declare that it changes {other.change}"
    assert not [*tracker.complaints(MODEL, (), {})]


# Names


def test_names_are_matched_by_order_only_where_a_pass_says_that_they_change() -> None:
    tracker = _tracker(_References(_Terms()))
    renamed = _model("float[n] w", "float[n] v", "v = Neg(w)")
    account: Any = ("an account",)
    assert tracker.names(renamed, {"names"}, {}) == {"x": "w", "y": "v"}
    assert tracker.names(renamed, {"names"}, {"x": "said"}) == {"x": "said"}
    assert tracker.names(renamed, {"names"}, {}, account) == {}
    assert tracker.names(renamed, {"inputs"}, {}) == {}


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ("float[n] x, int64[n] i", "float[m] a, int64[n] b", {"x": "a", "i": "b"}),
        ("float[n] x, int64[n] i", "int64[n] a, float[n] b", {}),
        ("float[n] x, float[n] z", "float[n] z, float[n] a", {"x": "a"}),
        ("float[n] x, float[n] z", "float[n] x", {}),
        ("float[n] x", "float[n] x", {}),
    ],
)
def test_ports_are_matched_in_order_if_their_types_agree(before: str, after: str, names: dict[str, str]) -> None:
    mine, theirs = (signature(_model(ports, "float[1] y", "y = C()")) for ports in (before, after))
    assert match_by_order(mine, theirs) == names


# Whole models, deployment and accuracy


def test_a_whole_model_that_passes_is_right_and_then_measured() -> None:
    references = _References(_Terms())
    references.is_right = False
    tracker = _tracker(references)
    assert tracker.verify_whole(MODEL, b"new") == EQUAL
    verifier = references.terms.verifier
    assert (
        references.is_right and verifier.asked == [("verify", ("t", b"new"), Parity.CLOSE)] and verifier.deployed == 1
    )
    accurate = _Terms("accurate", verdict=OPEN)
    references = _References(_Terms(), accurate=accurate)
    tracker = _tracker(references)
    tracker.deploys_on = "somewhere"
    assert tracker.verify_whole(MODEL, b"new") == OPEN and references.terms.verifier.deployed == 0
    assert accurate.verifier.asked == [("verify", ("accurate", b"new"), Parity.LOSSY)]
    failing = _References(_Terms(verdict=DIFFERENT), accurate=_Terms("accurate"))
    failing.is_right = False
    assert _tracker(failing).verify_whole(MODEL, b"new") == DIFFERENT and not failing.is_right
    assert not failing.accurate.verifier.asked  # type: ignore[union-attr]
    broken = _References(_Terms(), accurate=_Terms("accurate", problem=UNRUN))
    assert _tracker(broken).verify_whole(MODEL, b"new") == UNRUN


def test_a_model_that_is_right_stays_so() -> None:
    for verdict, before, right in ((EQUAL, False, True), (DIFFERENT, False, False), (DIFFERENT, True, True)):
        references = _References(_Terms(verdict=verdict))
        references.is_right = before
        _tracker(references).verify_whole(MODEL, b"new")
        assert references.is_right is right


def test_data_must_fit_the_original() -> None:
    unfit = (DataSpec(Path("some.npz"), {"y": np.ones(2)}),)
    accuracy = VerifySpec().accuracy
    for inputs, spec in (
        (replace(InputsSpec(), calibration=replace(InputsSpec().calibration, data=unfit)), VerifySpec()),
        (InputsSpec(), VerifySpec(accuracy=replace(accuracy, samples=replace(accuracy.samples, data=unfit)))),
    ):
        with pytest.raises(SurgeryError, match=r"some\.npz: no value is given for input 'x'"):
            SignatureTracker(DATA, inputs, spec)


def test_a_verdict_of_an_earlier_run_counts_where_it_was_accepted() -> None:
    for verdict, before, right in ((EQUAL, False, True), (DIFFERENT, False, False), (DIFFERENT, True, True)):
        references = _References(_Terms())
        references.is_right = before
        _tracker(references).take_whole(verdict)
        assert references.is_right is right


def test_only_a_model_that_is_right_is_compared_as_deployed() -> None:
    references = _References(_Terms())
    tracker = _tracker(references)
    tracker.deploys_on = "somewhere"
    deployed: Any = tracker.deploy(MODEL, b"new", {}, with_original=True)
    options = {"target": "somewhere", "with_original": True}
    assert deployed == "deployed" and references.terms.verifier.asked == [("deploy", ("t", b"new"), options)]
    references.is_right = False
    found = tracker.deploy(MODEL, b"new", {}).verdict
    assert (found.status, found.reason) == (Status.UNVERIFIED, NOT_RUN) and "as written" in found.message
    assert len(references.terms.verifier.asked) == 1


def test_a_loss_is_measured_in_the_terms_of_accuracy() -> None:
    references = _References(_Terms(), accurate=_Terms("accurate"))
    measured: Any = _tracker(references).measure(MODEL, b"new", {}, optimized=True, sets=(1, 2))
    assert measured == "measured"
    options = {"optimized": True, "sets": (1, 2)}
    assert references.accurate.verifier.asked == [("measure", ("accurate", b"new"), options)]  # type: ignore[union-attr]


def test_a_loss_is_measured_upstream_of_custom_operators() -> None:
    before, after = (
        _model(body=f"{body} b = acme.Odd(a) y = Abs(b)") for body in ("a = Neg(x)", "t = Exp(x) a = Log(t)")
    )
    accurate, terms = _Terms("accurate"), _Terms()
    tracker = _tracker(_References(terms, accurate=accurate))
    accurate.verifier.part, terms.verifier.part = None, "a part"
    assert tracker.measured(before, after) == (before, after, "") and not tracker.unmeasured(before)
    accurate.verifier.part, terms.verifier.part = "a part", None
    assert tracker.unmeasured(before) == {"b", "y"}
    one, other, where = tracker.measured(before, after)
    assert where == "before acme:Odd"
    assert [[node.op_type for node in model.graph.node] for model in (one, other)] == [["Neg"], ["Exp", "Log"]]
    # Models without the operators have no such parts.
    for pair in ((before, MODEL), (MODEL, after)):
        assert tracker.measured(*pair) == (*pair, "")


def test_calibration_has_the_names_of_the_committed_model() -> None:
    tracker = _tracker(_References(_Terms()))
    assert tracker.calibration() == [{"first": 1, "z": 2}] and tracker.draws_calibration
    accurate = _Terms("accurate")
    accurate.match = PortMatch((("z", "last"),), ())
    accurate.verifier.calibration.synthetic = False
    tracker = _tracker(_References(_Terms(), accurate=accurate))
    assert tracker.calibration() == [{"x": 1, "last": 2}] and not tracker.draws_calibration
    assert [*map(str, tracker.limits)] == ["a limit"] and tracker.verifier.verdict == EQUAL  # type: ignore[attr-defined]
    tracker.close()
    assert tracker.references.is_closed  # type: ignore[attr-defined]
