"""Runs of an original that are given by hand: how inputs are probed, when it runs again, and what is judged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from surgery.base.errors import WorkerError
from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.model.runtime.engine import RunOutcome
from surgery.verification.comparing.arbiter import CHEAP_DOUBT, DOUBT, Float64Arbiter, Ruling, _blame
from surgery.verification.comparing.compare import ComparisonRules
from surgery.verification.comparing.details import Arbitration, Element, Status
from surgery.verification.comparing.distances import Float64Finding
from surgery.verification.comparing.output_judge import Findings, OutputJudge
from surgery.verification.comparing.probing import Probing, SearchEnded
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.input_sets import CHEAP, TRIVIAL
from surgery.verification.inputs.search import Found
from surgery.verification.inputs.spec import InputsSpec, VerifySpec

MODEL = text.parse("g (float[N] x) => (float[N] y) { y = Neg(x) }").SerializeToString()
ONE = np.ones(2, np.float32)


class _Engine:
    """An engine with prepared outcomes, which notes what it is asked."""

    title = "ONNX Runtime"

    def __init__(self, *outcomes: RunOutcome) -> None:
        self.outcomes = [*outcomes]
        self.asked: list[Any] = []
        self.closed = 0

    def run(self, skeleton: bytes, feeds: Any, **options: Any) -> RunOutcome:
        self.asked.append((len(feeds), options))
        return self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]

    def close(self) -> None:
        self.closed += 1


def _ran(*outputs: Any) -> RunOutcome:
    return RunOutcome(
        runs=[one if isinstance(one, str) else {"y": one} for one in outputs], seconds=[1.0] * len(outputs)
    )


def _crash(signal: str | None = None) -> RunOutcome:
    return RunOutcome(crash=WorkerError("it died", stage="run", signal=signal))


# Probing


def _probing(
    *outcomes: RunOutcome, cost: float = TRIVIAL / 2, empty: Any = (), **plan: Any
) -> tuple[Probing, _Engine, list[Any]]:
    engine, kept = _Engine(*outcomes), list[Any]()
    dims: dict[str, Any] = {"names": ("N",), "wishes": {}}
    inputs: Any = SimpleNamespace(
        worker=engine,
        cost=lambda binding: cost,
        feed=lambda binding: {},
        given_dims={},
        plan=SimpleNamespace(dims=SimpleNamespace(**{**dims, **plan})),
    )
    return Probing(b"", inputs, {*empty}, 0, lambda *made: kept.append(made)), engine, kept


def test_a_probe_keeps_what_the_original_computes() -> None:
    probing, engine, kept = _probing(_ran(ONE), _ran("bad size"))
    binding = Binding({"N": 2})
    assert probing.probe(binding) is None and engine.asked == [(1, {"keep": True})]
    assert [made[0] for made in kept] == [binding] and probing._found.sizes == {binding.dim_key: 8}
    assert probing.probe(Binding({"N": 3})) == "bad size" and len(kept) == 1


def test_what_ends_a_search() -> None:
    probing, _, _ = _probing(RunOutcome(unsupported="no kernel"))
    with pytest.raises(SearchEnded):
        probing.probe(Binding({"N": 2}))
    assert probing.gap == "no kernel"
    # A crash at one size may be none at another, unless there is no other, or it took too long; three are enough.
    for binding, signal in ((Binding(), None), (Binding({"N": 2}), "timeout")):
        probing, _, _ = _probing(_crash(signal))
        with pytest.raises(SearchEnded):
            probing.probe(binding)
    probing, _, _ = _probing(_crash())
    assert [probing.probe(Binding({"N": n})) for n in (2, 3)] == ["it died"] * 2
    with pytest.raises(SearchEnded):
        probing.probe(Binding({"N": 4}))


def test_empty_outputs_are_accepted_only_at_the_first_size_of_an_expensive_model() -> None:
    none = np.ones(0)
    probing, engine, _ = _probing(_ran(none))
    assert probing.probe(Binding({"N": 2})) == "an output is empty" and probing.empty and not probing.empty_large
    assert probing.probe(Binding({"N": 3})) == "an output is empty" and len(engine.asked) == 2
    # Declared to be empty, or nothing else is left.
    assert _probing(_ran(none), empty="y")[0].probe(Binding({"N": 2})) is None
    probing.content = True
    assert probing.probe(Binding({"N": 2})) is None
    # Expensive at first: as it is. Then, where small sizes were empty, one large one decides.
    probing, _, _ = _probing(_ran(none), cost=TRIVIAL)
    assert probing.probe(Binding({"N": 2})) is None
    probing.empty = True
    assert probing.probe(Binding({"N": 2})) == "an output is empty" and probing.empty_large
    assert probing.probe(Binding({"N": 2})) == "an output is empty at other sizes"
    probing, engine, _ = _probing(_ran(none), cost=CHEAP * 1.01)
    probing.empty = True
    assert probing.probe(Binding({"N": 2})) == "an output is empty at other sizes" and not engine.asked
    # A sequence with elements.
    assert _probing(_ran([none, ONE]))[0].probe(Binding({"N": 2})) is None
    assert _probing(_ran([none, none]))[0].probe(Binding({"N": 2})) == "an output is empty"


def test_why_every_input_failed() -> None:
    found = Found(refused=[(Binding({"N": 2}), "odd")])
    probing, _, _ = _probing(_ran(ONE))
    assert probing.rejection(Found(), "nothing") is None and probing.rejection(found, "nothing") == ("nothing", True)
    assert _probing(_ran(ONE), wishes={"N": (2,)})[0].rejection(found, "nothing") == ("odd", False)
    probing.crashes = [WorkerError("it died", stage="run")]
    assert probing.rejection(Found(), "nothing") == ("nothing", True)
    assert _probing(_ran(ONE), names=())[0].rejection(found, "nothing") == ("odd", False)
    probing.crashes = [WorkerError("it took too long", stage="run", signal="timeout")]
    assert probing.rejection(found, "nothing") is None


def test_why_nothing_was_accepted() -> None:
    given: Any = SimpleNamespace(left_out=[])
    refused = Found(refused=[(Binding({"N": 2, "M": 3}), "odd")], demands=["N is M", "other"])
    probing, _, _ = _probing(_ran(ONE))
    assert probing.explain(refused, given) == (
        "no legal input found: give the sizes of N, M with --dims, or inputs with --inputs; N is M; at first: odd"
    )
    nothing = (
        "no legal input found: give sizes with --dims, or inputs with --inputs; at first: the search ran out of time"
    )
    assert probing.explain(Found(), given) == nothing
    fixed = Found(refused=[(Binding(), "odd")])
    assert probing.explain(fixed, given) == "no legal input found: give inputs with --inputs; at first: odd"
    left: Any = SimpleNamespace(left_out=[(Binding(), "rank 1")])
    assert probing.explain(Found(), left) == "none of the given input sets fits the model: rank 1"
    assert probing.explain(refused, left).startswith("no legal input found")
    probing.crashes = [WorkerError("it died", stage="run")]
    assert probing.explain(refused, given) == "the original fails in ONNX Runtime: it died"
    probing.gap = "no kernel"
    assert probing.explain(refused, given) == "no kernel"


def test_what_was_accepted_earlier_is_tried_first() -> None:
    earlier = Found(accepted=[Binding({"N": 2}), Binding({"N": 3})], demands=["N is odd"], meets=[("N", ["M"])])
    probing, engine, _ = _probing(_ran(ONE))
    found = Found()
    assert probing._accepts_all(earlier, found) and len(engine.asked) == 2
    assert found.accepted == earlier.accepted and found.demands == ["N is odd"] and found.meets == earlier.meets
    assert not probing._accepts_all(Found(), Found())
    assert not probing._accepts_all(Found(accepted=[Binding({"M": 2})]), Found()) and len(engine.asked) == 2
    probing, _, _ = _probing(_ran(np.ones(0)))
    assert not probing._accepts_all(earlier, found := Found()) and not found.accepted and not probing.empty


def test_given_sets_are_tried_and_their_dims_are_used() -> None:
    said: list[Any] = []
    binding: Any = SimpleNamespace(feed={}, dims={"N": 7})
    given: Any = SimpleNamespace(sets=[binding] * 2, accepted=[binding], accept=lambda *one: said.append(one[1]))
    probing, _, _ = _probing(_ran(ONE), _ran("bad"))
    probing._try(given)
    assert said == [None, "bad"] and given.accepted == []
    with pytest.raises(SearchEnded):
        _probing(RunOutcome(invalid="broken"))[0]._try(given)
    _probing(_crash())[0]._try(given)
    assert said[2:] == ["it died"] * 2
    given.accepted = [binding, binding]
    found = Found()
    probing, engine, _ = _probing(_ran("bad"), _ran(ONE))
    probing._borrow(given, found)
    assert found.accepted == [Binding({"N": 7})] and len(engine.asked) == 2


# The reference run


def _reference(*runs: Run, cost: float = TRIVIAL, engine: _Engine | None = None) -> ReferenceRun:
    found = ReferenceRun(MODEL, InputsSpec(), VerifySpec(seed=5))
    plan = SimpleNamespace(opening=1.0, listing=0.25, problem=None)
    found._inputs = SimpleNamespace(  # type: ignore[assignment]
        cost=lambda binding: cost * max(1, binding.dims.get("N", 1)),
        plan=plan,
        worker=engine or _Engine(_ran(ONE)),
        feed=lambda binding: {"x": binding.dims["N"]},
        points=lambda: [Binding({"N": 2}), Binding({"N": 3})],
    )
    found.runs = [*runs]
    return found


def _run(y: Any = ONE, n: int = 2, kind: str = "normal") -> Run:
    return Run(Binding({"N": n}, kind), {"x": y}, {"y": y})


def test_inputs_that_were_used_and_rejected() -> None:
    found = _reference(_run())
    found._found.refused += [(Binding({"N": 9}), "odd"), (Binding({"N": 9}), "odd")]
    found._dropped = [(Binding({"N": 8}), "late")]
    assert [entry.get("refused") for entry in found.bindings] == [None, "odd", "late"]
    assert len(found.refused) == 3 and found.bounds == (300.0, None) and found.seed == 5


@pytest.mark.parametrize(
    ("cost", "again", "differs", "unsteady", "asked"),
    [
        (TRIVIAL, [ONE, ONE], False, set(), 2),
        (TRIVIAL, [ONE, ONE * 2], True, {"y"}, 2),
        # The cheaper of two expensive runs.
        (CHEAP, [ONE], False, set(), 1),
    ],
)
def test_an_original_runs_against_itself_once(
    cost: float, again: list[Any], differs: bool, unsteady: set[str], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = _Engine(_ran(*again))
    found = _reference(_run(n=3), _run(n=2), _run(n=4), cost=cost)
    monkeypatch.setattr(found, "_engine", lambda anew: engine if anew else None)
    assert found.control() is differs and found.nondeterministic == unsteady
    assert engine.asked == [(asked, {})] and engine.closed == 1
    assert not found.control() and len(engine.asked) == 1


def test_an_original_that_does_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for outcome, reason in ((_ran("bad", ONE), "bad"), (RunOutcome(unsupported="no kernel"), "no kernel")):
        found = _reference(_run(), _run())
        monkeypatch.setattr(found, "_engine", lambda anew, outcome=outcome: _Engine(outcome))
        assert not found.control() and found.problem == f"the original ran once and then failed: {reason}"
    # Random outputs are expected to differ.
    found = _reference(_run(), _run())
    found.random = frozenset("y")
    monkeypatch.setattr(found, "_engine", lambda anew: _Engine(_ran(ONE * 2, ONE)))
    assert not found.control() and not found.nondeterministic


def test_remembered_outputs_are_not_computed_again() -> None:
    engine = _Engine(_ran(ONE * 3, ONE * 4))
    found = _reference(engine=engine)
    bindings = [Binding({"N": n}) for n in (100, 2, 3)]
    for binding, y in zip(bindings, (ONE, ONE * 2)):
        found._remember(binding, {"y": y})
    # Only expensive ones are remembered.
    outcome = found._run(bindings, [{}] * 3)
    assert engine.asked == [(2, {"keep": True})]
    assert [run["y"][0] for run in outcome.runs if not isinstance(run, str)] == [1, 3, 4]
    found._counts_runs = True
    found._remember(Binding({"N": 200}), {"y": ONE})
    assert len(found._probed) == 1
    failed = RunOutcome(invalid="broken")
    assert _reference(engine=_Engine(failed))._run(bindings, [{}] * 3) is failed


def test_another_binding_is_tried_unless_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    for outcome, accepted in ((_ran(ONE), True), (_ran("bad"), False), (RunOutcome(invalid="broken"), False)):
        found, engine = _reference(), _Engine(outcome)
        monkeypatch.setattr(found, "engine_for", lambda name, engine=engine: engine)
        assert found.accepts(Binding({"N": 2})) is accepted and engine.closed == 1
        assert not found.accepts(Binding({"N": 1000})) and len(engine.asked) == 1
        assert found.inputs.worker.closed == 2  # type: ignore[attr-defined]


def test_inputs_of_a_model_that_does_not_run() -> None:
    found = _reference()
    assert [run.feed for run in found.trials()] == [{"x": 2}, {"x": 3}]
    found.inputs.plan.problem = "it has no inputs"  # type: ignore[misc]
    assert found.trials() == []
    runs = [_run()]
    assert _reference(*runs).trials() == runs and ReferenceRun(MODEL, InputsSpec(), VerifySpec()).trials() == []


def test_the_cost_of_all_runs() -> None:
    found = _reference(_run(n=2), _run(n=3), cost=1.0)
    assert found.cost_of_all() == 6.25 and found.cost_of_all(0.5) == 5.75
    found.weights = 1 << 30
    assert 5.0 < found.cost_of_all() < 6.25


def test_copies_of_a_reference_run() -> None:
    found = _reference(_run(), _run(n=3))
    found.random, found.problem = frozenset("y"), "large"
    inner = found.inner(b"inner", [_run(n=4)])
    assert inner.skeleton == b"inner" and inner.problem is None and not inner.random and not inner.control()
    assert inner.vacuous[Parity.EXACT] == {} == inner.vacuous[Parity.CLOSE] and len(found.runs) == 2
    other = found.computed_elsewhere({1: {"y": ONE * 2}}, frozenset("z"))
    assert [run.binding.dims["N"] for run in other.runs] == [3] and other.nondeterministic == {"z"}
    assert not other.control() and other.rules(Parity.CLOSE).random == {"y", "z"}


# Judging


def _judge(*runs: Run, unsteady: Any = (), vacuous: Any = None, **more: Any) -> OutputJudge:
    original = _reference(*runs)
    original._controlled = not unsteady
    original.vacuous = {promise: vacuous or {} for promise in Parity}
    for name, value in more.items():
        setattr(original, name, value)

    def control() -> bool:
        is_new = not original._controlled
        original._controlled, original.nondeterministic = True, frozenset(unsteady)
        return is_new

    original.control = control  # type: ignore[method-assign]
    return OutputJudge(original, lambda: RunOutcome(unsupported="random numbers"))


def test_outputs_that_agree() -> None:
    runs = [_run(), _run(n=3)]
    equal = _judge(*runs).judge(runs, [{"y": ONE}] * 2, Parity.CLOSE)
    assert (equal.status, equal.message) == (Status.EQUAL, "bit-identical in 2 runs")
    close = _judge(*runs).judge(runs, [{"y": ONE}, {"y": ONE + np.float32(1e-6)}], Parity.CLOSE)
    assert close.status is Status.CLOSE and close.message.endswith("instead of 1 (N=3, normal data)")
    assert close.needed is not None and 0 < close.needed["factor"] < 1
    half = {"precision": {"y": np.dtype(np.float16)}}
    assert _judge(*runs, **half).judge(runs, [{"y": ONE}] * 2, Parity.CLOSE).message == (
        "bit-identical in 2 runs; 'y' by the tolerance of float16, in which it is computed"
    )
    known = _judge(*runs, engine="reference", gap="no kernel")
    known._original.inputs.evaluated = ["com.microsoft::Gelu"]  # type: ignore[misc]
    assert known.judge(runs, [{"y": ONE}] * 2, Parity.CLOSE).message.endswith(
        "; in the reference evaluator with our own form of com.microsoft::Gelu, for no kernel"
    )


def test_outputs_that_differ_are_compared_again_if_the_original_differs_from_itself() -> None:
    runs = [_run()]
    far = [{"y": ONE * 2}]
    assert _judge(*runs).judge(runs, far, Parity.CLOSE).status is Status.DIFFERENT
    found = _judge(*runs, unsteady="y").judge(runs, far, Parity.CLOSE)
    assert (found.status, found.message) == (Status.UNVERIFIED, "the original differs between its own runs in 'y'")
    found = _judge(*runs, problem="it failed").judge(runs, far, Parity.CLOSE)
    assert (found.status, found.message) == (Status.UNVERIFIED, "it failed")


def test_outputs_that_prove_nothing() -> None:
    runs, empty = [_run()], {"y": "is always zero", "a": "is empty"}
    found = _judge(*runs, vacuous=empty).judge(runs, [{"y": ONE}], Parity.CLOSE)
    assert found.message == "nothing is proven: 'a' is empty; 'y' is always zero" and found.reason == "vacuous"
    asked: list[Any] = []

    def inside(verdict: Any, names: Any) -> Any:
        asked.append((verdict.status, dict(names)))
        return "decided"

    assert _judge(*runs, vacuous=empty).judge(runs, [{"y": ONE}], Parity.CLOSE, inside) == "decided"
    assert asked == [(Status.EQUAL, empty)]
    # Not asked where all outputs prove something.
    assert _judge(*runs).judge(runs, [{"y": ONE}], Parity.CLOSE, inside).status is Status.EQUAL and len(asked) == 1


def test_a_model_that_kept_all_bits_has_to_keep_them() -> None:
    runs = [_run(), _run(n=3)]
    judge = _judge(*runs)
    assert judge.changed_since([{"y": ONE}] * 2, runs, [{"y": ONE}] * 2) is None
    found = judge.changed_since([{"y": ONE}] * 2, runs, [{"y": ONE}, {"y": ONE + np.float32(1e-6)}])
    assert found is not None and found.startswith("declared bit-identical to the previous step, but output 'y'[0]: ")
    assert found.endswith("(N=3, normal data)")


def test_float64_is_asked_only_in_doubt() -> None:
    runs, near = [_run()], [{"y": ONE + np.float32(5e-5)}]  # a third of the tolerance
    asked: list[int] = []

    def judge(*_: Any) -> Ruling:
        asked.append(1)
        return Ruling("right", "", Arbitration(1.0, 2.0))

    for doubt, promise, times in (
        (None, Parity.CLOSE, 1),
        (0.5, Parity.CLOSE, 0),
        (0.01, Parity.CLOSE, 1),
        (None, Parity.EXACT, 0),
    ):
        asked.clear()
        found = _judge(*runs)
        found._arbiter.judge = judge  # type: ignore[method-assign]
        findings = Findings(promise)
        found.find(runs, near, findings, doubt=doubt)
        assert len(asked) == times and findings.runs == 1
        # What is equal in further runs says nothing more.
        found.find(runs, [{"y": ONE}], findings, doubt=doubt)
        assert len(asked) == times and findings.runs == 2
    # No tolerance helps, and so no float64.
    _judge(*runs).find(runs, [{"y": ONE[:1]}], findings := Findings(Parity.CLOSE))
    assert findings.ruling is None


def test_the_share_of_the_tolerance_that_is_doubted() -> None:
    for cost, doubt in ((TRIVIAL / 2, CHEAP_DOUBT), (TRIVIAL, DOUBT)):
        arbiter = Float64Arbiter(_reference(_run(n=2), cost=cost))
        assert arbiter.doubt(ComparisonRules(Parity.CLOSE)) == doubt
        assert (
            arbiter.doubt(ComparisonRules(Parity.EXACT))
            == 1.0
            == arbiter.doubt(ComparisonRules(Parity.CLOSE, rtol=0.1))
        )
    assert (DOUBT, CHEAP_DOUBT) == (0.25, 1 / 32)


def test_float64_runs_once_and_says_why_it_does_not_know() -> None:
    asked: list[int] = []
    arbiter = Float64Arbiter(_reference(_run()), lambda: asked.append(1) or RunOutcome(unsupported="no kernel"))  # type: ignore[func-returns-value]
    for _ in range(2):
        ruling = arbiter.judge([_run()], [{"y": ONE}], ComparisonRules(Parity.CLOSE))
        assert (ruling.kind, ruling.message, ruling.arbitration.unavailable) == ("unknown", "no kernel", "no kernel")
    assert asked == [1]
    original = _reference(_run())
    original.operators = frozenset({"RandomUniform", "Multinomial"})
    ruling = Float64Arbiter(original).judge([_run()], [{"y": ONE}], ComparisonRules(Parity.CLOSE))
    assert ruling.message == "random numbers (Multinomial, RandomUniform)"


@pytest.mark.parametrize(
    ("kind", "times", "words"),
    [
        ("wrong", 0.0, "output 'y': 2 instead of 1"),
        ("wrong", 12.3, "output 'y': 2 instead of 1, 12 times as far from float64 (1.5) as the original is"),
        ("wrong", 1e7, "output 'y': 2 instead of 1, where float64 (1.5) agrees with the original"),
        (
            "suspicious",
            12.3,
            "within the tolerance, but output 'y': 2 instead of 1, "
            "12 times as far from float64 (1.5) as the original is",
        ),
    ],
)
def test_an_element_is_blamed(kind: Any, times: float, words: str) -> None:
    assert _blame(Float64Finding(kind, _run(), Element("y", (), (), 1.0, 2.0), times, 1.5)) == words
