"""What verification learns of the original, once: legal inputs, reference outputs, controls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from surgery.errors import WorkerError
from surgery.parity import Parity
from surgery.recipe.schema import InputsSpec, VerifySpec
from surgery.verify.compare import Rules
from surgery.verify.domain import ORDINARY, Domain
from surgery.verify.elements import is_float
from surgery.verify.engine import Engine, EngineName, Outputs
from surgery.verify.inputs import Binding, Plan
from surgery.verify.randomness import Origins, origins
from surgery.verify.search import Found, search
from surgery.verify.vacuity import Run, declares_empty, same, tensors, vacuous

if TYPE_CHECKING:
    import onnx

CHEAP, TRIVIAL = 0.25, 0.01
"""Seconds of processor time that one run may take for five, or sixteen, runs to be made instead of two. Not time by
the clock: the inputs should not depend on what else the machine does."""

_CRASHES = 3


class GaveUp(Exception):  # noqa: N818 - a way out of the search, not an error
    """There is no point in trying further inputs."""


class Original:
    """The original model, run on inputs that it accepts.

    After `prepare`, either `problem` says why it cannot be run, or `runs` holds inputs and outputs. `engine` is
    what ran it and `gap` what ONNX Runtime lacked, if anything. `random`, `nondeterministic` and `vacuous` hold
    outputs.
    """

    def __init__(self, skeleton: bytes, inputs: InputsSpec, verify: VerifySpec) -> None:
        self.skeleton = skeleton
        self.problem: str | None = None
        self.engine: EngineName = "onnxruntime"
        self.gap = ""
        self.runs: list[Run] = []
        self.random: frozenset[str] = frozenset()
        self.operators: frozenset[str] = frozenset()
        self.nondeterministic: frozenset[str] = frozenset()
        self.vacuous: dict[Parity, dict[str, str]] = {}
        self.weights = 0
        self.seed = verify.seed
        self.empty_by_nature: set[str] = set()
        self._inputs = inputs
        self._verify = verify
        self._prepared = self._blind = False
        self._found = Found()
        self._dropped: list[tuple[Binding, str]] = []
        self._domains: dict[tuple[tuple[str, int], ...], dict[str, Domain]] = {}

    @property
    def bindings(self) -> list[dict[str, Any]]:
        """The inputs used and refused, for a report."""
        used = [run.binding.as_json() for run in self.runs]
        refused: list[dict[str, Any]] = []
        for binding, message in (*self._found.refused, *self._dropped):
            entry = binding.as_json(message)
            if entry not in refused:
                refused.append(entry)
        return used + refused

    def prepare(self) -> None:
        """Do the work; the second call does nothing."""
        if self._prepared:
            return
        self._prepared = True
        import onnx

        model = onnx.load_model_from_string(self.skeleton)
        self.weights = sum(_external_bytes(model))
        self.empty_by_nature = {output.name for output in model.graph.output if declares_empty(output)}
        found = origins(model)
        self.random, self.operators = found.random, found.operators
        self._worker = self._engine()
        try:
            self._inlined = self._inline(model)
            self._plan = Plan(model, self._inputs, onnx.load_model_from_string(self._inlined))
            self.problem = self._plan.problem
            if self.problem is not None:
                return
            cost = self._search()
            if self.problem is None:
                self._reference(_choose(self._found.accepted, cost), model, found, cost)
        finally:
            self._worker.close()
        if self.problem is None:
            self._control(cost)

    def _inline(self, model: onnx.ModelProto) -> bytes:
        """Look into the functions of the model where that is possible."""
        if not model.functions:
            return self.skeleton
        inlined: bytes | None = self._worker.analyse("inline", skeleton=self.skeleton)
        return inlined or self.skeleton

    def _search(self) -> float:
        """Find bindings that the original accepts; return the seconds of one run."""
        names: tuple[EngineName, ...] = ("onnxruntime", "reference")
        for name in names:
            if name != self.engine:
                self.engine = name
                self._worker.close()
                self._worker = self._engine()
            attempt = _Attempt(self, self._worker)
            self._found = attempt.search(self._plan)
            if self._found.accepted:
                self.problem = None
                return attempt.seconds
            # What ONNX Runtime said tells more than what the fallback says.
            self.problem = self.problem or attempt.explain(self._found)
            if not attempt.gap:
                break
            self.gap = attempt.gap
        return 0.0

    def feed(self, binding: Binding) -> dict[str, Any]:
        """Make the inputs of a binding."""
        key = tuple(binding.dims.items())
        if key not in self._domains:
            self._domains[key] = self._plan.domains(self._shapes(binding))
        return self._plan.feeds(binding, self._domains[key])

    def _shapes(self, binding: Binding) -> dict[str, list[int]]:
        """Infer the shapes of all values for a binding, in a worker; none when that fails."""
        if not self._plan.ports or self._blind:
            return {}
        dims = self._plan.shapes(binding.dims)
        shapes: dict[str, list[int]] | None = self._worker.analyse("infer", skeleton=self._inlined, dims=dims)
        # What ran out of time or memory once will do so again.
        self._blind = shapes is None
        return shapes or {}

    def _engine(self) -> Engine:
        return Engine(self.engine, self._verify.timeout, self._verify.memory, self.weights)

    def _reference(self, bindings: list[Binding], model: onnx.ModelProto, found: Origins, cost: float) -> None:
        """Run the original on all inputs; add runs while an output does not move and they are cheap."""
        tried = cost > CHEAP
        while True:
            feeds = [self.feed(binding) for binding in bindings]
            outcome = self._worker.run(self.skeleton, feeds)
            if outcome.failure is not None:
                self.problem = f"the original ran once and then failed: {outcome.failure}"
                return
            results = list(zip(bindings, feeds, outcome.runs))
            self._dropped = [(binding, run) for binding, _, run in results if isinstance(run, str)]
            self.runs = [Run(binding, feed, run) for binding, feed, run in results if not isinstance(run, str)]
            if not self.runs:
                self.problem = f"the original refuses all inputs tried: {self._dropped[0][1]}"
                return
            self.vacuous = {
                promise: vacuous(model, self.runs, found, Rules(promise, self._verify.rtol, self._verify.atol))
                for promise in Parity
            }
            if not any(self.vacuous.values()) or tried:
                return
            # A float that only NaN and infinities move is as good as constant; IsNaN has nothing else to show.
            names = {name for found in self.vacuous.values() for name in found}
            bindings += _further(bindings, special=not all(_is_float(self.runs[0].outputs[name]) for name in names))
            tried = True

    def _control(self, cost: float) -> None:
        """Run the original against itself, in another session of another process."""
        first = self.runs[: 2 if cost <= CHEAP else 1]
        engine = self._engine()
        try:
            outcome = engine.run(self.skeleton, [run.feed for run in first])
        finally:
            engine.close()
        if outcome.failure is not None or any(isinstance(run, str) for run in outcome.runs):
            self.problem = f"the original ran once and then failed: {outcome.failure or outcome.runs[0]}"
            return
        unsteady: set[str] = set()
        for run, again in zip(first, outcome.runs):
            assert not isinstance(again, str)
            unsteady.update(name for name, value in run.outputs.items() if not same(value, again[name]))
        self.nondeterministic = frozenset(unsteady) - self.random


class _Attempt:
    """The search with one engine: one session, probed again and again."""

    def __init__(self, original: Original, engine: Engine) -> None:
        self.original = original
        self.engine = engine
        self.gap = ""
        self.seconds = 0.0
        self.empty = self.content = False
        self.crashes: list[WorkerError] = []

    def search(self, plan: Plan) -> Found:
        """Search, content with empty outputs only if nothing else can be had."""
        found = Found()
        with suppress(GaveUp):
            found = search(plan, self.original.seed, self.probe)
            if not found.accepted and self.empty:
                self.content = True
                found = search(plan, self.original.seed, self.probe)
        return found

    def probe(self, binding: Binding) -> str | None:
        """Run the original with a binding: None when it went well, else the reason."""
        outcome = self.engine.run(self.original.skeleton, [self.original.feed(binding)], keep=True)
        if outcome.crash is not None:
            self.crashes.append(outcome.crash)
            hopeless = outcome.crash.signal == "timeout" or not binding.dims
            if hopeless or len(self.crashes) == _CRASHES:
                raise GaveUp
            return outcome.crash.what
        if outcome.failure is not None:
            self.gap = outcome.failure
            raise GaveUp
        result = outcome.runs[0]
        if isinstance(result, str):
            return result
        if not self.content and outcome.seconds[0] < TRIVIAL and self._has_empty(result):
            self.empty = True
            return "an output is empty"
        self.seconds = max(self.seconds, outcome.seconds[0])
        return None

    def _has_empty(self, outputs: Outputs) -> bool:
        """Whether an output has no elements, though its declared shape does not say so."""
        nature = self.original.empty_by_nature
        return any(name not in nature and not any(t.size for t in tensors(value)) for name, value in outputs.items())

    def explain(self, found: Found) -> str:
        """Say why nothing was accepted."""
        if self.gap:
            return self.gap
        if self.crashes:
            return f"the original fails in {self.engine.title}: {self.crashes[0].what}"
        reason = found.refused[0][1] if found.refused else "the search ran out of time"
        return f"no legal input found: {reason}"


def _choose(accepted: list[Binding], cost: float) -> list[Binding]:
    """Give each accepted point its data: the cheaper a run, the more of them; one for each further point."""
    first, second = accepted[0], accepted[1 if len(accepted) > 1 else 0]
    plan = [(first, "normal"), (second, "edges")]
    if cost <= CHEAP:
        # The same point with other data tells whether an output moves.
        plan += [(first, "wide"), (second, "image"), (second, "coarse" if second is first else "normal")]
    plan += [(binding, "normal") for binding in accepted[2:]]
    chosen = [replace(binding, character=character) for binding, character in plan]
    if cost <= TRIVIAL:
        chosen += [
            replace(binding, character=character, seed=binding.seed + 1)
            for binding in (first, second)
            for character in ("normal", "edges", "wide", "image", "coarse")
        ]
        chosen.append(replace(first, character="edges", seed=first.seed + 2))
    return [binding for index, binding in enumerate(chosen) if binding not in chosen[:index]]


def _further(bindings: list[Binding], special: bool) -> list[Binding]:
    """List more runs at the first point: other seeds, and with `special` NaN and infinities."""
    base = bindings[0]
    more = [replace(base, character=character, seed=base.seed + 3) for character in ORDINARY]
    more += [replace(base, seed=base.seed + seed) for seed in range(4, 7)]
    return [*more, replace(base, character="special")] if special else more


def _is_float(value: Any) -> bool:
    return all(is_float(tensor.dtype) for tensor in tensors(value))


def _external_bytes(message: Any) -> Iterator[int]:
    """Yield the sizes of the weights that a skeleton refers to."""
    from surgery.verify.reference import external_tensors, length

    return (length(tensor) for tensor in external_tensors(message))
