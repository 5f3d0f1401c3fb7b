"""The inputs of an original whose worker is given by hand: which are drawn, what is fed, what a run tells of shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from surgery.base.errors import WorkerError
from surgery.model.graph import text
from surgery.model.runtime.engine import RunOutcome
from surgery.model.shapes.declarations import declare, inline
from surgery.verification.comparing.original_inputs import OriginalInputs
from surgery.verification.inputs.dim_constraints import dim_constraints
from surgery.verification.inputs.dims import UNKNOWN
from surgery.verification.inputs.feed_plan import Binding, with_all_values
from surgery.verification.inputs.given import GivenBinding
from surgery.verification.inputs.input_sets import TRIVIAL
from surgery.verification.inputs.spec import InputsSpec, TensorSpec, VerifySpec

PLAIN = "g (float[N] x) => (float[N] y) { y = Neg(x) }"
LOOKUP = "g (int64[N] i, float[M] t) => (float[N] y) { k = Shape(t) u = Neg(t) y = Gather(u, i) }"


class _Worker:
    """A worker with prepared answers, which notes what it is asked."""

    def __init__(self, answers: dict[Callable[..., Any], Any], *outcomes: RunOutcome) -> None:
        self.answers, self.outcomes = answers, [*outcomes]
        self.asked: list[str] = []
        self.ran: list[tuple[bytes, Sequence[dict[str, Any]]]] = []
        self.closed = 0

    def analyse(self, analysis: Callable[..., Any], **options: Any) -> Any:
        self.asked.append(analysis.__name__)
        return self.answers.get(analysis)

    def run(self, skeleton: bytes, feeds: Sequence[dict[str, Any]]) -> RunOutcome:
        self.ran.append((skeleton, feeds))
        return self.outcomes.pop(0)

    def close(self) -> None:
        self.closed += 1


class _Made:
    """A generator of a user's own."""

    def __init__(self) -> None:
        self.closed = 0

    def make(self, dims: dict[str, int], seed: int) -> dict[str, Any]:
        return {"x": np.full(dims["N"], seed, np.float32)}

    def number(self, drawn: list[Binding], first: int) -> list[Binding]:
        return [Binding(binding.dims, seed=first + which) for which, binding in enumerate(drawn)]

    def close(self) -> None:
        self.closed += 1


def _inputs(
    body: str = PLAIN, worker: Any = None, spec: InputsSpec | None = None, generator: Any = None, seed: int = 0
) -> OriginalInputs:
    model = text.parse(body)
    engine: Any = _Worker({})
    made = OriginalInputs(
        model,
        model.SerializeToString(),
        spec or InputsSpec(),
        VerifySpec(seed=seed),
        worker or engine,
        0,
    )
    made._generator = generator
    return made


@pytest.mark.parametrize(
    ("spec", "generated", "draws"),
    [
        (InputsSpec(), False, True),
        (InputsSpec(only_given=True), False, False),
        (InputsSpec(only_given=True), True, True),
        (InputsSpec(only_given=True, tensors={"x": TensorSpec()}), False, True),
    ],
)
def test_inputs_are_drawn_unless_only_given_ones_count_and_nothing_covers_the_others(
    spec: InputsSpec, generated: bool, draws: bool
) -> None:
    inputs = _inputs(spec=spec, generator=_Made() if generated else None)
    assert (inputs.draws, inputs.draws_all) == (draws, not generated)


def test_a_function_fills_in_for_what_is_drawn_and_numbers_its_sets() -> None:
    drawn = [Binding({"N": 2}), Binding({"N": 2})]
    plain, made = _inputs(seed=100), _inputs(generator=_Made(), seed=100)
    assert plain.numbered(drawn, 3) is drawn
    numbered = made.numbered(drawn, 3)
    assert [binding.seed for binding in numbered] == [103, 104]
    assert made.feed(numbered[1])["x"].tolist() == [104, 104]
    assert plain.feed(drawn[0])["x"].shape == (2,)


def test_given_inputs_are_fed_as_they_are() -> None:
    array = np.ones(3, np.float32)
    worker = _Worker({})
    fed = _inputs(worker=worker).feed(GivenBinding({"N": 3}, feed={"x": array}))
    assert list(fed) == ["x"] and fed["x"] is array and not worker.asked


def test_the_first_points_differ() -> None:
    first, second = _inputs(seed=5).points()
    assert first.dims != second.dims and (first.seed, second.seed) == (5, 5)
    (only,) = _inputs("g (float[2] x) => (float[2] y) { y = Neg(x) }", seed=6).points()
    assert (only.dims, only.seed) == ({}, 6)


def test_a_rest_ends_the_processes_and_forgets_what_is_not_used() -> None:
    worker, made = _Worker({declare: {"y": (1, [2])}}), _Made()
    inputs = _inputs(worker=worker, generator=made)
    kept, other = Binding({"N": 2}), Binding({"N": 3})
    assert inputs.shapes(kept) == inputs.shapes(other) == {"y": [2]}
    assert inputs.inferred(kept) == inputs.inferred(other) == {"y": (1, [2])}
    inputs.rest([kept.dim_key])
    assert inputs.inferred(kept) == {"y": (1, [2])} and inputs.inferred(other) == {}
    assert (worker.closed, made.closed) == (1, 1)
    _inputs(worker=worker).rest([])
    assert worker.closed == 2


def test_what_a_graph_implies_is_found_in_a_worker_that_then_ends() -> None:
    found = {**UNKNOWN, "broadcast": ["N"], "shapes": {"y": ["n0"]}}
    worker = _Worker({dim_constraints: found})
    inputs = _inputs(worker=worker)
    learned: list[Any] = []
    inputs._declaring.learn = learned.append  # type: ignore[assignment, method-assign]
    assert inputs.implied() is found and learned == [{"y": ["n0"]}]
    assert worker.asked == ["dim_constraints"] and worker.closed == 1
    worker = _Worker({})
    assert _inputs(worker=worker).implied() is UNKNOWN and worker.closed == 1


def test_nothing_is_implied_where_inference_failed() -> None:
    worker = _Worker({})
    inputs = _inputs(worker=worker)
    assert inputs.shapes(Binding({"N": 2})) == {}
    assert inputs.implied() is UNKNOWN and "dim_constraints" not in worker.asked and not worker.closed


def test_functions_are_inlined_where_there_are_any() -> None:
    model = text.parse(PLAIN)
    model.functions.add(name="f", domain="d")
    for answer, expected in ((b"", model.SerializeToString()), (text.parse(LOOKUP).SerializeToString(), None)):
        worker = _Worker({inline: answer})
        inputs = OriginalInputs(model, model.SerializeToString(), InputsSpec(), VerifySpec(), worker, 0)  # type: ignore[arg-type]
        assert inputs.inlined == (expected or answer) and worker.asked == ["inline"]
    worker = _Worker({})
    assert _inputs(worker=worker).inlined == text.parse(PLAIN).SerializeToString() and not worker.asked


def test_evaluated_operators_are_listed_once_in_order() -> None:
    body = (
        '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> g (float[N] x) => (float[N] y) '
        "{ a = com.microsoft.QuickGelu(x) b = com.microsoft.Gelu(a) c = com.microsoft.Gelu(b)"
        " d = com.microsoft.NoSuch(c) y = Gelu(d) }"
    )
    assert _inputs(body).evaluated == ["com.microsoft::Gelu", "com.microsoft::QuickGelu"]
    assert _inputs().evaluated == []


# What a run tells of shapes that inference does not know

AT = Binding({"N": 40, "M": 3})
SHAPED = RunOutcome(runs=[{"y": np.zeros(40), "u": np.zeros(3), "k": np.zeros(1), "s": ["no array"]}], seconds=[0.0])


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Callable[..., OriginalInputs]:
    """The inputs of a model that takes a known time."""

    def build(worker: _Worker, cost: float = 0.0) -> OriginalInputs:
        inputs = _inputs(LOOKUP, worker)
        monkeypatch.setattr(inputs.plan, "cost", lambda *_: cost)
        return inputs

    return build


def test_an_unlimited_index_is_limited_by_a_run(few: Callable[..., OriginalInputs]) -> None:
    worker = _Worker({}, SHAPED)
    inputs = few(worker)
    assert inputs.feed(AT)["i"].max() == 2
    ((skeleton, (fed,)),) = worker.ran
    assert skeleton == with_all_values(inputs.inlined)
    assert fed["i"].tolist() == [0] * 40 and fed["t"].shape == (3,)
    inputs.feed(AT)
    assert inputs.cost(AT) == 0.0 and len(worker.ran) == 1


@pytest.mark.parametrize(
    ("outcome", "found"),
    [
        (SHAPED, {"y": [40], "u": [3], "k": [1]}),
        (RunOutcome(runs=["it failed"], seconds=[0.0]), {}),
        (RunOutcome(crash=WorkerError("it died", stage="run")), {}),
        (RunOutcome(runs=[{"y": np.zeros(40)}], seconds=[0.0], crash=WorkerError("it died", stage="run")), {}),
    ],
)
def test_a_run_that_fails_tells_no_shapes(
    few: Callable[..., OriginalInputs], outcome: RunOutcome, found: dict[str, list[int]]
) -> None:
    assert few(_Worker({}, outcome))._observe(AT, {}) == found


def test_a_run_is_not_made_where_it_takes_long_or_all_is_known(few: Callable[..., OriginalInputs]) -> None:
    worker = _Worker({}, SHAPED)
    inputs = few(worker, np.nextafter(TRIVIAL, 1))
    assert inputs.cost(AT) > TRIVIAL and not worker.ran
    known = _Worker({declare: {"y": (1, [40]), "u": (1, [3]), "k": (7, [1])}})
    assert few(known).feed(AT)["i"].max() == 2 and not known.ran
    assert few(worker, TRIVIAL).cost(AT) == TRIVIAL and len(worker.ran) == 1
