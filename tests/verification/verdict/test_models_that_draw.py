"""What a verifier hands on, and to whom: copies with seeds, or models whose draws are compared by distribution."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from surgery.base.errors import WorkerError
from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.model.runtime.engine import FEW_WEIGHTS, RunOutcome
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.inputs.defaults import without_defaults
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.verdict import verifier as verifiers
from surgery.verification.verdict.verifier import Verifier

BODY = "g (float[2] x) => (float[2] y) { y = Neg(x) }"
ORIGINAL = text.parse(BODY).SerializeToString(deterministic=True)
EQUAL = Verdict(Status.EQUAL, message="equal")


class _Notes:
    """A stand-in that notes the calls of its methods, and answers with its name and theirs."""

    def __init__(self, title: str, **known: Any) -> None:
        self.__dict__.update(known)
        self.title = title
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self.asked.append((name, *arguments, *([options] if options else [])))
            return f"{self.title}: {name}"

        return call


class _Draws:
    """Draws that can be paired in some models."""

    outputs, note = frozenset({"y"}), "noted"

    def __init__(self, *paired: bytes) -> None:
        self.paired = paired

    def seeded(self, model: bytes) -> bytes:
        return b"seeded " + model

    def judge(self, candidate: bytes, promise: Parity, alike: Callable[[bytes], Any]) -> Any:
        return alike(self.seeded(candidate)) if candidate in self.paired else None


def _verifier(*paired: bytes, draws: bool = True, **spec: Any) -> Any:
    """A verifier whose parts only note what they are asked."""
    made: Any = Verifier(ORIGINAL, verify=VerifySpec(**spec))
    made._draws = _Draws(*paired) if draws else None
    made.changes = _Notes("changes", whole=_Notes("whole", accepted=None))
    made._unseeded = lambda: _Notes("distribution", original=_Notes("other original"))
    made.accuracy = _Notes("accuracy")
    plan = SimpleNamespace(listed=10)
    made.original = _Notes(
        "original",
        weights=FEW_WEIGHTS - 10,
        problem=None,
        skeleton=b"seeded original",
        runs=[1],
        engine="an engine",
        inputs=SimpleNamespace(plan=plan),
        holds=lambda weights: weights != 666,
    )
    return made


@pytest.fixture
def deployments(monkeypatch: pytest.MonkeyPatch) -> list[_Notes]:
    """The checks of models as deployed, in the order in which they are made."""
    made: list[_Notes] = []

    def build(original: Any, judge: Any, target: str) -> _Notes:
        made.append(_Notes("deployment", target=target))
        return made[-1]

    monkeypatch.setattr(verifiers, "DeploymentCheck", build)
    return made


def test_copies_with_seeds_are_compared_where_the_draws_can_be_paired() -> None:
    found = _verifier(b"new")
    assert found.verify(b"new", Parity.EXACT, b"old", (2, b"later")) == "changes: verify"
    assert found.verify(b"new") == "changes: verify"
    assert found.changes.asked == [
        ("verify", b"seeded new", Parity.EXACT, b"seeded old", (2, b"seeded later")),
        ("verify", b"seeded new", Parity.CLOSE, None, None),
    ]
    assert "_by_distribution" not in vars(found)


def test_models_that_draw_nothing_are_compared_as_they_are() -> None:
    found = _verifier(draws=False)
    found.verify(b"new", Parity.EXACT, b"old", (2, b"later"))
    found.compare_ahead(b"old", b"new", Parity.CLOSE)
    assert found.changes.asked == [
        ("verify", b"new", Parity.EXACT, b"old", (2, b"later")),
        ("compare_ahead", b"old", b"new", Parity.CLOSE),
    ]
    assert found.is_original(b"seeded original") and not found.is_original(b"original")


def test_a_model_whose_draws_cannot_be_paired_is_compared_by_distribution_from_then_on() -> None:
    found = _verifier()
    hand = {
        "verify": (b"new", Parity.CLOSE, b"old", (2, b"later")),
        "confirm": (b"new", EQUAL, Parity.EXACT),
        "look_inside": (b"old", b"new", Parity.EXACT, EQUAL),
    }
    for name, arguments in hand.items():
        assert getattr(found, name)(*arguments) == f"distribution: {name}"
    assert found.deploy(b"new", with_original=True) == "distribution: deploy"
    assert found._by_distribution.asked == [
        *((name, *arguments) for name, arguments in hand.items()),
        ("deploy", b"new", {"target": "", "with_original": True}),
    ]
    assert found.changes.asked == []


def test_other_models_are_handed_on_with_seeds() -> None:
    found = _verifier()
    found.verify(b"apart")
    assert found.confirm(b"new", EQUAL, Parity.EXACT) == "changes: confirm"
    assert found.look_inside(b"old", b"new", Parity.EXACT, EQUAL) == "changes: look_inside"
    assert found.compare_ahead(b"old", b"new", Parity.EXACT) == "changes: compare_ahead"
    assert found.changes.asked == [
        ("confirm", b"seeded new", EQUAL, Parity.EXACT),
        ("look_inside", b"seeded old", b"seeded new", Parity.EXACT, EQUAL),
        ("compare_ahead", b"seeded old", b"seeded new", Parity.EXACT),
    ]
    assert found.measure(b"new", optimized=True, sets=(1,)) == "accuracy: measure"
    assert found.accuracy.asked == [("measure", b"seeded new", {"optimized": True, "sets": (1,)})]
    assert found.changes.asked[-1] == ("prepare_whole",)
    assert found.is_original(b"original") and not found.is_original(b"seeded original")


def test_an_accepted_model_is_accepted_by_distribution_too() -> None:
    found = _verifier()
    found.accept(b"first")
    assert found.changes.whole.accepted == b"seeded first" and "_by_distribution" not in vars(found)
    found.verify(b"new")
    found.accept(b"second")
    asked = found._by_distribution.asked
    assert [one for one in asked if one[0] == "accept"] == [("accept", b"first"), ("accept", b"second")]
    untouched = _verifier()
    untouched.verify(b"new")
    assert [one[0] for one in untouched._by_distribution.asked] == ["verify"]


# As deployed


@pytest.mark.parametrize(
    ("more", "asked", "counted"), [(0, False, True), (1, False, False), (1, True, True), (0, True, True)]
)
def test_the_original_is_deployed_too_if_it_is_light_or_if_asked(
    deployments: list[_Notes], more: int, asked: bool, counted: bool
) -> None:
    found = _verifier(b"new")
    found.original.weights += more
    expected = "deployment: with_original" if counted else "deployment: check"
    assert found.deploy(b"new", with_original=asked) == expected
    (one,) = deployments
    calls = [("check", b"seeded new"), ("with_original", "deployment: check")]
    assert one.asked == calls[: 1 + counted] and one.target == ""
    assert ("rest",) in found.changes.asked and found.original.asked[0] == ("prepare",)
    found.deploy(b"new")
    assert len(deployments) == 1


def test_targets_have_deployments_of_their_own(deployments: list[_Notes]) -> None:
    found = _verifier(draws=False)
    for target in ("", "cuda", "", "cuda", "openvino"):
        found.deploy(b"new", target=target)
    assert [one.target for one in deployments] == ["", "cuda", "openvino"]
    # Elsewhere, the same seed draws other numbers.
    drawing = _verifier(b"new")
    assert drawing.deploy(b"new", target="cuda") == "distribution: deploy" and len(deployments) == 3


def test_a_model_that_takes_too_much_memory_is_not_deployed(deployments: list[_Notes]) -> None:
    found = _verifier(b"new", memory=5)
    found.original.weights = 666
    verdict = found.deploy(b"new").verdict
    assert (verdict.status, verdict.reason) == (Status.UNVERIFIED, "not-run") and not deployments
    assert ("rest",) not in found.changes.asked


@pytest.mark.parametrize(
    ("spec", "draws", "more", "problem", "begins"),
    [
        ({}, False, 0, None, True),
        ({"deployment": "off"}, False, 0, None, False),
        ({}, True, 0, None, False),
        ({}, False, 1, None, False),
        ({}, False, 0, "it fails", False),
    ],
)
def test_a_light_original_runs_ahead(
    deployments: list[_Notes], spec: dict[str, Any], draws: bool, more: int, problem: str | None, begins: bool
) -> None:
    found = _verifier(draws=draws, **spec)
    found.original.weights += more
    found.original.problem = problem
    found.deploy_ahead()
    assert [one.asked for one in deployments] == ([[("begin",)]] if begins else [])
    assert found.original.asked == [("prepare",)]


# Runs


@pytest.mark.parametrize(
    ("outcome", "found"),
    [
        (RunOutcome(runs=[{"y": 1}, "rejected"], seconds=[0.0, 0.0]), [{"y": 1}, "rejected"]),
        (RunOutcome(crash=WorkerError("it died", stage="run")), None),
    ],
)
def test_other_inputs_are_run_in_a_process_that_then_ends(outcome: RunOutcome, found: list[Any] | None) -> None:
    verifier = _verifier()
    engine = _Notes("engine", run=lambda skeleton, feeds: outcome if skeleton == b"seeded original" else None)
    verifier.original.engine_for = lambda title: engine if title == "an engine" else None
    feeds = [{"x": 1}, {"x": 2}]
    assert verifier.run(feeds) == (found or [outcome.failure] * 2)
    assert engine.asked == [("close",)] and verifier.original.asked == [("prepare",)]


def test_shapes_are_seen_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def see(original: Any, engine: Callable[[], Any], changed: bytes, names: Any) -> list[Any]:
        seen.append((engine(), changed, names))
        return []

    monkeypatch.setattr(verifiers, "seen", see)
    verifier = _verifier()
    verifier.original.engine_for = lambda title: _Notes(title)
    verifier.seen()
    verifier.seen(b"new", ["v"])
    assert [one[1:] for one in seen] == [(b"", ()), (b"seeded new", ["v"])] and seen[0][0] is seen[1][0]
    verifier._rest()
    assert seen[0][0].asked == [("close",)] and verifier.changes.asked == [("rest",)]


def test_outputs_with_other_shapes_are_found_in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifiers, "misdeclared", lambda skeleton, runs: (skeleton, runs))
    verifier = _verifier()
    assert verifier.misdeclared() == (b"seeded original", [1]) and verifier.original.asked == [("prepare",)]


def test_all_is_closed(deployments: list[_Notes]) -> None:
    found = _verifier()
    found.verify(b"new")
    found.deployment("cuda")
    found._overriding = _Notes("overriding")
    found.close()
    for part in (*deployments, found.accuracy, found.changes, found._overriding, found._by_distribution):
        assert ("close",) in part.asked
    assert found.original.asked == [("abandon",)] and found.original.runs == []
    plain = _verifier()
    plain.close()
    assert "_by_distribution" not in vars(plain)


# Inputs with a default


def test_a_model_is_compared_with_values_for_its_defaults_too() -> None:
    model = text.parse("g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }")
    model.graph.initializer.append(onnx.helper.make_tensor("w", 1, [2], [1.0, 2.0]))
    data = model.SerializeToString(deterministic=True)
    found: Any = Verifier(data)
    names = frozenset({"w"})
    assert found._overridable == names
    assert found._overriding.original.skeleton == without_defaults(data, names)
    found._overriding = _Notes("overriding")
    assert found._override(data, Parity.EXACT) == "overriding: verify"
    found.accept(data)
    bare = without_defaults(data, names)
    assert found._overriding.asked == [("verify", bare, Parity.EXACT), ("accept", bare)]
    assert Verifier(ORIGINAL)._overriding is None
