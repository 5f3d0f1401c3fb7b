"""The reference run of the original, made once: legal inputs, reference outputs, control runs."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from surgery.base.operators.cost import reading
from surgery.base.promises import COMPARING, Parity
from surgery.model.proto.randomness import Origins, counts_runs, origins
from surgery.model.runtime.engine import Engine, EngineName, Outputs, RunOutcome, most_weights
from surgery.verification.comparing.compare import ComparisonRules, Free
from surgery.verification.comparing.drawn_extents import drawn_extents
from surgery.verification.comparing.given_outputs import held
from surgery.verification.comparing.original_inputs import OriginalInputs
from surgery.verification.comparing.preparation import Preparation
from surgery.verification.comparing.probing import Probing, SearchEnded
from surgery.verification.comparing.saturation import bounds, unit_ranges
from surgery.verification.comparing.vacuity import Run, declares_empty, only_floats, same, vacuous
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.given import Given, GivenBinding
from surgery.verification.inputs.input_sets import CHEAP, RECORDED, TRIVIAL, choose, further
from surgery.verification.inputs.search import Found
from surgery.verification.inputs.spec import DataSpec, InputsSpec, VerifySpec
from surgery.verification.running.ensembles import KnownOutputs, engine_knowing
from surgery.verification.running.guards import GuardSearch as GuardSearch
from surgery.verification.running.guards import Watch
from surgery.verification.running.pieces import too_much
from surgery.verification.running.precision import of_outputs
from surgery.verification.running.sizes_given import FEW, require_room

if TYPE_CHECKING:
    import onnx

_TRIES = (48, 16, 3)
"""Maximum number of sets that are tried for the guards of a model whose run is trivial, cheap or expensive."""

_LONG = 1.0
"""Estimated seconds above which a run is not worth a try."""


class ReferenceRun:
    """The original model, run on inputs that it accepts.

    After `prepare`, either `problem` says why it cannot be run, or `runs` holds inputs and outputs. `engine` is the
    engine that ran it and `gap` what ONNX Runtime lacked, if anything. `random`, `nondeterministic`, `vacuous` and
    `drawn` (by added seeds) hold names of outputs, `extents` what draws decide of shapes, `weights` the bytes of
    weights. `is_postponed`: so large that only `run_large` runs it. `rejection`: why it failed on every input, see
    `Probing.rejection`. With `once`, the preparation ends with the first accepted input. `found` are the bindings that
    a model like this one accepts, which are tried before a search.
    """

    def __init__(
        self, skeleton: bytes, inputs: InputsSpec, verify: VerifySpec, *, once: bool = False, found: Found | None = None
    ) -> None:
        self.skeleton = skeleton
        self.rejection: tuple[str, bool] | None = None
        self.problem: str | None = None
        self.engine: EngineName = "onnxruntime"
        self.gap = ""
        self.runs: list[Run] = []
        self.random = self.drawn = self.operators = self.nondeterministic = frozenset[str]()
        self.extents: Mapping[str, Free] = {}
        self.vacuous: dict[Parity, dict[str, str]] = {}
        self.weights, self.seed = 0, verify.seed
        self.empty_by_nature: set[str] = set()
        self.guards: GuardSearch | None = None
        self.precision: Mapping[str, Any] = {}
        self.ranges: Mapping[str, float] = {}
        self._spec, self._verify, self._once = inputs, verify, once
        self.is_postponed = self._counts_runs = self._controlled = False
        self._found = found or Found()
        self._dropped: list[tuple[Binding, str]] = []
        self._probed: list[tuple[Binding, Outputs]] = []
        self._given = Given(skeleton, inputs)
        self._inputs: OriginalInputs | None = None
        self._preparation = Preparation(self._prepare, self._end_run)
        self._running: Engine | None = None
        self._known: KnownOutputs | None = None

    @property
    def bindings(self) -> list[dict[str, Any]]:
        """The inputs used and rejected, for a report."""
        used = [run.binding.as_json() for run in self.runs]
        refused: list[dict[str, Any]] = []
        for binding, message in (*self._given.left_out, *self._found.refused, *self._dropped):
            entry = binding.as_json(message)
            if entry not in refused:
                refused.append(entry)
        return used + refused

    @property
    def inputs(self) -> OriginalInputs:
        """What the original takes; known after the preparation."""
        assert self._inputs is not None
        return self._inputs

    @property
    def refused(self) -> list[tuple[Binding, str]]:
        """The rejected inputs, with the runtime's message for each."""
        return [*self._found.refused, *self._dropped]

    @property
    def found(self) -> Found:
        """What the search for inputs found out about dims."""
        return self._found

    def computed_elsewhere(self, outputs: Mapping[int, Outputs], unsteady: frozenset[str]) -> ReferenceRun:
        """Return a copy whose outputs, by index of the run, were computed by something else.

        Runs without outputs are left out. `unsteady` are the outputs that vary between runs of that computation.
        """
        other = copy.copy(self)
        other.runs = [replace(self.runs[number], outputs=made) for number, made in sorted(outputs.items())]
        other.nondeterministic = unsteady
        other._controlled = True
        return other

    @property
    def given(self) -> tuple[DataSpec, ...]:
        """The given sets of inputs, as arrays by name, with their outputs."""
        return self._given.as_specs()

    @property
    def bounds(self) -> tuple[float, int | None]:
        """The limits of a worker: seconds for one run, and bytes of memory."""
        return self._verify.timeout, self._verify.memory

    def rules(self, promise: Parity) -> ComparisonRules:
        """Return the rules for comparing outputs under a promise."""
        more = {"precision": self.precision, "ranges": self.ranges, "extents": self.extents}
        return ComparisonRules.of(self._verify, promise, random=self.random | self.nondeterministic, **more)

    def begin(self) -> None:
        """Start the preparation in a thread; `prepare` waits for it. The work is done in other processes."""
        self._preparation.begin()

    def join(self) -> None:
        """Wait for the thread that `begin` started."""
        self._preparation.join()

    def abandon(self) -> None:
        """Stop the thread that `begin` started, whatever it is doing."""
        self._preparation.abandon()

    def prepare(self) -> None:
        """Do the work; a second call does nothing, or raises the error of the first."""
        self._preparation.finish()

    def _end_run(self) -> None:
        if self._running is not None:
            self._running.kill()

    def _prepare(self) -> None:
        import onnx

        from surgery.model.runtime.reference_runs import external_bytes

        model = onnx.load_model_from_string(self.skeleton)
        self.weights = external_bytes(model)
        self._known = KnownOutputs.of(model)
        self.empty_by_nature = {output.name for output in model.graph.output if declares_empty(output)}
        found = origins(model)
        self.random, self.operators = found.random, found.operators
        self._counts_runs = counts_runs(model)
        with closing(self._engine()) as worker:
            self._inputs = OriginalInputs(model, self.skeleton, self._spec, self._verify, worker, self.weights)
            too_large = None if self.holds(self.weights) else too_much(self.weights, self._verify.memory)
            self.problem = self._inputs.plan.problem or too_large
            self.is_postponed = self.problem is too_large is not None
            if self.problem is None:
                self._run_first(model, found)

    def run_large(self) -> None:
        """Prepare, and if the model does not fit into memory, run it in pieces, which `prepare` does not.

        Each set of inputs reads all weights; the regions of a change, which need less, come first. What cannot run in
        pieces keeps its problem.
        """
        import onnx

        self.prepare()
        if not self.is_postponed:
            return
        self.is_postponed, reason = False, self.problem
        model = onnx.load_model_from_string(self.skeleton)
        self.inputs.worker = self._engine()
        self._run_first(model, origins(model))
        if self.problem is not None:
            self.problem = f"{reason}; in pieces, {self.problem}"

    def _run_first(self, model: onnx.ModelProto, found: Origins) -> None:
        """Find inputs and run the original on them; `problem` says why not."""
        self.problem = None
        try:
            self.inputs.start_generator(model)
            self._search()
            if self.problem is None and not self._once:
                accepted = self._found.accepted
                cost = max(self.inputs.cost(binding) for binding in (*accepted[:2], *self._given.accepted))
                drawn = choose(accepted, cost, self._found.size)
                self._reference([*self._given.accepted, *self.inputs.numbered(drawn, 0)], model, found, cost)
        finally:
            self._probed.clear()
            self.inputs.rest({run.binding.dim_key for run in self.runs})
        self._controlled = self.problem is not None or self._once
        if not self._controlled and cost + self.inputs.plan.opening + self.inputs.plan.listing <= CHEAP:
            self.control()

    def holds(self, weights: int) -> bool:
        """Return whether a model, or a region of one, with `weights` bytes of weights may be run."""
        return weights <= most_weights(self._verify.memory)

    def _search(self) -> None:
        """Find bindings that the original accepts."""
        names: tuple[EngineName, ...] = ("onnxruntime", "reference")
        for name in names:
            if name != self.engine:
                self.engine = name
                self.inputs.worker.close()
                self.inputs.worker = self._engine()
            self._probed.clear()
            attempt = Probing(self.skeleton, self.inputs, self.empty_by_nature, self.seed, self._remember)
            self._found = attempt.search(self._given, self._found, once=self._once)
            if self._found.accepted or self._given.accepted:
                self.problem = None
                return
            # ONNX Runtime's message says more than that of the fallback.
            self.problem = self.problem or attempt.explain(self._found, self._given)
            if not attempt.gap:
                if name == "onnxruntime":
                    self.rejection = attempt.rejection(self._found, self.problem)
                break
            self.gap = attempt.gap

    def accepts(self, binding: Binding) -> bool:
        """Return whether the original runs with another binding, in about a second at most."""
        engine = self.engine_for(self.engine)
        try:
            if self.inputs.cost(binding) > _LONG:
                return False
            outcome = engine.run(self.skeleton, [self.inputs.feed(binding)])
            return outcome.failure is None and not isinstance(outcome.runs[0], str)
        finally:
            engine.close()
            self.inputs.worker.close()

    def trials(self) -> Sequence[Run]:
        """Return the runs; for a model that does not run, inputs that fit its declared types, without outputs."""
        if self.runs or self._inputs is None or self._inputs.plan.problem is not None:
            return self.runs
        with closing(self._inputs.worker):
            return [Run(binding, self._inputs.feed(binding), {}) for binding in self._inputs.points()]

    def cost_of_all(self, left: float = 1.0) -> float:
        """Estimate the seconds of a session and of all runs, for a model with the share `left` of the nodes.

        Weights that one run has read need not be read again by the next.
        """
        at_hand = reading(self.weights) * max(0, len(self.runs) - 1)
        session = self.inputs.plan.opening * left + self.inputs.plan.listing
        return session + sum(self.inputs.cost(run.binding) for run in self.runs) - at_hand

    def engine_for(
        self, name: EngineName, *, deployed: bool = False, providers: tuple[str, ...] = (), anew: bool = False
    ) -> Engine:
        """Make a separate worker, see `Engine`: with other `providers`, or to run `anew` what has run elsewhere."""
        setup = replace(self._verify.setup, providers=providers or self._verify.providers)
        kind = engine_knowing(None if anew or deployed else self._known, whole=self.holds(self.weights))
        return kind(name, *self.bounds, self.weights, setup, deployed=deployed)

    def _engine(self, anew: bool = False) -> Engine:
        if self._preparation.is_abandoned:
            raise SearchEnded
        self._running = self.engine_for(self.engine, anew=anew)
        return self._running

    def _reference(self, bindings: list[Binding], model: onnx.ModelProto, found: Origins, cost: float) -> None:
        """Run the original on all inputs; add runs if an output proves nothing and runs are cheap."""
        tried, limits = cost > CHEAP, bounds(model)
        bindings = bindings + self.inputs.numbered(self._deciding(bindings, cost), len(bindings))
        self.ranges, self.precision = unit_ranges(model), of_outputs(self.inputs.inlined, self.inputs.worker)
        while True:
            feeds = [self.inputs.feed(binding) for binding in bindings]
            outcome = self._run(bindings, feeds)
            if len(bindings) > FEW and outcome.lacks_memory:
                bindings, tried = bindings[:FEW], True
                continue
            require_room(outcome, bindings, self._spec.dims)
            if outcome.failure is not None:
                self.problem = f"the original ran once and then failed: {outcome.failure}"
                return
            results = list(zip(bindings, feeds, outcome.runs))
            self._dropped = [(binding, run) for binding, _, run in results if isinstance(run, str)]
            runs = [Run(binding, feed, run) for binding, feed, run in results if not isinstance(run, str)]
            self.extents = drawn_extents(self, runs) if self.random else {}
            self.runs = held(runs, self.rules(Parity.CLOSE), self.drawn)
            if not self.runs:
                self.problem = f"the original rejects all tried inputs: {self._dropped[0][1]}"
                return
            rules = map(self.rules, COMPARING)
            self.vacuous = {one.promise: vacuous(model, self.runs, found, one, limits) for one in rules}
            if not any(self.vacuous.values()) or tried:
                return
            # A float output that only NaN and infinities move is as good as constant; IsNaN can show nothing else.
            names = {name for found in self.vacuous.values() for name in found}
            drawn = [binding for binding in bindings if not isinstance(binding, GivenBinding)]
            if not drawn:
                return
            special = not all(only_floats(self.runs[0].outputs[name]) for name in names)
            bindings += self.inputs.numbered(further(drawn, special), len(drawn))
            tried = True

    def _deciding(self, bindings: Sequence[Binding], cost: float) -> list[Binding]:
        """Return more sets, on which guards of the graph decide as they do on none of `bindings`."""
        import onnx

        drawn = [binding for binding in bindings if not isinstance(binding, GivenBinding)]
        if not self.inputs.draws_all or not drawn or self._counts_runs:
            return []
        watch = Watch(onnx.load_model_from_string(self.inputs.inlined), few=cost > CHEAP)
        self.guards = GuardSearch(watch, self.inputs.feed, self._try, _TRIES[(cost > TRIVIAL) + (cost > CHEAP)])
        # Regions get the integers of these runs alone.
        base = drawn[0]
        self.guards.see([binding for binding in drawn if binding.dims == base.dims][: RECORDED if cost <= CHEAP else 1])
        return self.guards.find(base)

    def _try(self, skeleton: bytes, feeds: Sequence[Mapping[str, Any]]) -> Sequence[Outputs | str]:
        outcome = self.inputs.worker.run(skeleton, feeds)
        return outcome.runs if outcome.failure is None else [outcome.failure] * len(feeds)

    def _remember(self, binding: Binding, outputs: Outputs) -> None:
        """Keep the outputs of a search if they are expensive, unless a fresh session would compute other ones."""
        if not self._counts_runs and self.inputs.cost(binding) > CHEAP:
            self._probed.append((binding, outputs))

    def _run(self, bindings: list[Binding], feeds: list[dict[str, Any]]) -> RunOutcome:
        """Run the original on all inputs, reusing remembered outputs."""
        known = {index: run for index, one in enumerate(bindings) for other, run in self._probed if one == other}
        left = [feed for index, feed in enumerate(feeds) if index not in known]
        outcome = self.inputs.worker.run(self.skeleton, left, keep=not self._counts_runs)
        if outcome.failure is not None:
            return outcome
        runs = iter(outcome.runs)
        return replace(outcome, runs=[known[index] if index in known else next(runs) for index in range(len(feeds))])

    def control(self) -> bool:
        """Run the original against itself, in another session of another process; return whether it differs.

        This is done once: in advance for a cheap model; for a model with expensive runs or many nodes, when a
        difference is about to be blamed on a change. Agreeing outputs need no control. Sets `nondeterministic`, or
        `problem` if the original does not run again.
        """
        if self._controlled:
            return False
        self._controlled = True
        first = self.runs[:2]
        if self.inputs.cost(first[0].binding) > CHEAP:
            first = [min(first, key=lambda run: self.inputs.cost(run.binding))]
        engine = self._engine(anew=True)
        try:
            outcome = engine.run(self.skeleton, [run.feed for run in first])
        finally:
            engine.close()
        if outcome.failure is not None or any(isinstance(run, str) for run in outcome.runs):
            self.problem = f"the original ran once and then failed: {outcome.failure or outcome.runs[0]}"
            return False
        unsteady: set[str] = set()
        for run, again in zip(first, outcome.runs):
            assert not isinstance(again, str)
            unsteady.update(name for name, value in run.outputs.items() if not same(value, again[name]))
        self.nondeterministic = frozenset(unsteady) - self.random
        return bool(self.nondeterministic)

    def inner(self, skeleton: bytes, runs: list[Run]) -> ReferenceRun:
        """Return a reference run of values inside this model, as if they were outputs; it needs no preparation."""
        inner = copy.copy(self)
        inner.skeleton = skeleton
        inner.runs, inner.problem = runs, None
        inner.random = inner.nondeterministic = frozenset()
        inner.precision, inner.ranges = {}, {}
        inner.vacuous = {promise: {} for promise in COMPARING}
        inner._controlled = True
        return inner
