"""The reference run of the original, made once: legal inputs, reference outputs, control runs."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from surgery.base.operator_inputs.domain import Domain
from surgery.base.operators.cost import reading
from surgery.base.promises import COMPARING, Parity
from surgery.model.proto.randomness import Origins, counts_runs, origins
from surgery.model.runtime.contrib_ops import FUNCTIONS
from surgery.model.runtime.engine import Engine, EngineName, Outputs, RunOutcome, most_weights
from surgery.model.shapes.declarations import CONTRIB, Declared, inline
from surgery.verification.comparing.compare import ComparisonRules, Free
from surgery.verification.comparing.drawn_extents import drawn_extents
from surgery.verification.comparing.given_outputs import held
from surgery.verification.comparing.probing import Probing, SearchEnded
from surgery.verification.comparing.saturation import bounds, unit_ranges
from surgery.verification.comparing.vacuity import Run, declares_empty, only_floats, same, vacuous
from surgery.verification.inputs.dims import UNKNOWN, Implied
from surgery.verification.inputs.feed_plan import Binding, DimKey, FeedPlan, read_defaults, with_all_values
from surgery.verification.inputs.generator import Generator
from surgery.verification.inputs.given import Given, GivenBinding
from surgery.verification.inputs.input_sets import CHEAP, RECORDED, TRIVIAL, choose, further
from surgery.verification.inputs.search import Found
from surgery.verification.inputs.spec import DataSpec, InputsSpec, VerifySpec
from surgery.verification.running.declaring import Declaring
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
    `drawn` (by added seeds) hold names of outputs, `extents` what draws decide of shapes, `weights` and `listed` the
    bytes of weights and of long lists. `is_postponed`: it is so large that only `run_large` runs it. `rejection`: why
    it failed on every input, see `Probing.rejection`. With `once`, the preparation ends with the first accepted input.
    """

    def __init__(self, skeleton: bytes, inputs: InputsSpec, verify: VerifySpec, *, once: bool = False) -> None:
        self.skeleton = skeleton
        self.rejection: tuple[str, bool] | None = None
        self.problem: str | None = None
        self.engine: EngineName = "onnxruntime"
        self.gap = ""
        self.runs: list[Run] = []
        self.random = self.drawn = self.operators = self.nondeterministic = frozenset[str]()
        self.extents: Mapping[str, Free] = {}
        self.vacuous: dict[Parity, dict[str, str]] = {}
        self.weights, self.listed, self.seed = 0, 0, verify.seed
        self.empty_by_nature: set[str] = set()
        self.guards: GuardSearch | None = None
        self.precision: Mapping[str, Any] = {}
        self.ranges: Mapping[str, float] = {}
        self._inputs, self._verify, self._once = inputs, verify, once
        self._prepared = self._planned = self._counts_runs = self._controlled = False
        self.is_postponed = self._abandoned = False
        self._found = Found()
        self._dropped: list[tuple[Binding, str]] = []
        self._probed: list[tuple[Binding, Outputs]] = []
        self._learned: dict[DimKey, tuple[dict[str, Domain], float]] = {}
        self._given = Given(skeleton, inputs)
        self._generator: Generator | None = None
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None
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
        if not self._prepared and self._thread is None:
            self._thread = threading.Thread(target=self._prepare_once, daemon=True)
            self._thread.start()

    def join(self) -> None:
        """Wait for the thread that `begin` started."""
        if self._thread is not None:
            self._thread.join()

    def abandon(self) -> None:
        """Stop the thread that `begin` started, whatever it is doing."""
        while self._thread is not None and self._thread.is_alive():
            self._abandoned = True
            if self._running is not None:
                self._running.kill()
            self._thread.join(0.02)

    def prepare(self) -> None:
        """Do the work; a second call does nothing, or raises the error of the first."""
        self.join()
        self._prepare_once()
        if self._error is not None:
            raise self._error

    def _prepare_once(self) -> None:
        if self._prepared:
            return
        self._prepared = True
        try:
            self._prepare()
        except Exception as error:
            self._error = SearchEnded() if self._abandoned else error  # a run that was killed blames its inputs

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
        self._worker = self._engine()
        try:
            inlined = self._worker.analyse(inline, skeleton=self.skeleton) if model.functions else None
            self._inlined: bytes = inlined or self.skeleton
            self._plan = FeedPlan(model, self._inputs, onnx.load_model_from_string(self._inlined))
            self.listed = self._plan.listed
            self._shaped = Declaring(self._plan, self._inlined)
            self._planned = True
            too_large = None if self.holds(self.weights) else too_much(self.weights, self._verify.memory)
            self.problem = self._plan.problem or too_large
            self.is_postponed = self.problem is too_large is not None
            if self.problem is None:
                self._run_first(model, found)
        finally:
            self._worker.close()

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
        self._worker = self._engine()
        self._run_first(model, origins(model))
        if self.problem is not None:
            self.problem = f"{reason}; in pieces, {self.problem}"

    def _run_first(self, model: onnx.ModelProto, found: Origins) -> None:
        """Find inputs and run the original on them; `problem` says why not."""
        self.problem = None
        try:
            self._generator = Generator.of(self._inputs, self._plan.ports, read_defaults(model), self._verify)
            self._search()
            if self.problem is None and not self._once:
                accepted = self._found.accepted
                cost = max(self.cost(binding) for binding in (*accepted[:2], *self._given.accepted))
                drawn = choose(accepted, cost, self._found.size)
                self._reference([*self._given.accepted, *self.numbered(drawn, 0)], model, found, cost)
        finally:
            self._probed.clear()
            self._shaped.keep({run.binding.dim_key for run in self.runs})
            self._worker.close()
            if self._generator is not None:
                self._generator.close()
        self._controlled = self.problem is not None or self._once
        if not self._controlled and cost + self._plan.opening + self._plan.listing <= CHEAP:
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
                self._worker.close()
                self._worker = self._engine()
            self._probed.clear()
            attempt = Probing(self, self._worker)
            self._found = attempt.search(self._plan, self._given, draws=self._draws, once=self._once)
            if self._found.accepted or self._given.accepted:
                self.problem = None
                return
            # ONNX Runtime's message says more than that of the fallback.
            self.problem = self.problem or attempt.explain(self._found, self._given)
            if not attempt.gap:
                if name == "onnxruntime":
                    self.rejection = attempt.rejection(self._found, self._plan.dims, self.problem)
                break
            self.gap = attempt.gap

    @property
    def _draws(self) -> bool:
        """Whether inputs are generated in addition to those that are given."""
        covered = self._generator is not None or all(port.name in self._inputs.tensors for port in self._plan.ports)
        return covered or not self._inputs.only_given

    @property
    def spatial(self) -> tuple[str, ...]:
        """The free dims of images, other than batch and channels; known after the preparation."""
        return self._plan.dims.spatial

    @property
    def given_dims(self) -> Mapping[str, Sequence[int]]:
        """The sizes of dims that the user gave."""
        return self._inputs.dims

    @property
    def draws_all(self) -> bool:
        """Whether no user function generates inputs: such a function is called for few sizes only."""
        return self._generator is None

    def numbered(self, drawn: list[Binding], first: int) -> list[Binding]:
        """Give each set a separate seed, and name it after the user function that generates it, if any."""
        return drawn if self._generator is None else self._generator.number(drawn, self.seed + first)

    def feed(self, binding: Binding) -> dict[str, Any]:
        """Return the inputs of a binding."""
        if isinstance(binding, GivenBinding):
            return dict(binding.feed)
        made = {} if self._generator is None else self._generator.make(binding.dims, binding.seed)
        return self._plan.feeds(binding, self._learn(binding)[0]) | made

    def accepts(self, binding: Binding) -> bool:
        """Return whether the original runs with another binding, in about a second at most."""
        engine = self.engine_for(self.engine)
        try:
            if self.cost(binding) > _LONG:
                return False
            outcome = engine.run(self.skeleton, [self.feed(binding)])
            return outcome.failure is None and not isinstance(outcome.runs[0], str)
        finally:
            engine.close()
            self._worker.close()

    def trials(self) -> Sequence[Run]:
        """Return the runs; for a model that does not run, inputs that fit its declared types, without outputs."""
        if self.runs or not self._planned or self._plan.problem is not None:
            return self.runs
        points = [self._plan.dims.point(which) for which in (0, 1)]
        bindings = [Binding(point, seed=self.seed) for point in (points if points[0] != points[1] else points[:1])]
        try:
            return [Run(binding, self.feed(binding), {}) for binding in bindings]
        finally:
            self._worker.close()

    def implied(self) -> Implied:
        """Find what the graph implies for its free dims, in a worker; `UNKNOWN` if that fails."""
        if self._shaped.blind:
            return UNKNOWN
        from surgery.verification.inputs.dim_constraints import dim_constraints  # slow to import

        dims = {port.name: list(port.dims) for port in self._plan.ports}
        names = list(self._plan.dims.names)
        with closing(self._worker):  # it has modules of up to 60 MiB that no run needs
            return self._worker.analyse(dim_constraints, skeleton=self._inlined, dims=dims, names=names) or UNKNOWN

    def cost(self, binding: Binding) -> float:
        """Estimate the seconds of one run."""
        return self._learn(binding)[1]

    def cost_of_all(self, left: float = 1.0) -> float:
        """Estimate the seconds of a session and of all runs, for a model with the share `left` of the nodes.

        Weights that one run has read need not be read again by the next.
        """
        at_hand = reading(self.weights) * max(0, len(self.runs) - 1)
        session = self._plan.opening * left + self._plan.listing
        return session + sum(self.cost(run.binding) for run in self.runs) - at_hand

    @property
    def nodes(self) -> int:
        """The number of nodes, including those of subgraphs; 0 before the model has been parsed."""
        return self._plan.nodes if self._planned else 0

    def _learn(self, binding: Binding) -> tuple[dict[str, Domain], float]:
        """Return the legal inputs at the point of a binding, and the seconds of a run there."""
        key = binding.dim_key
        if key not in self._learned:
            plan, shapes = self._plan, self.shapes(binding)
            cost, domains = plan.cost(shapes, self.weights), plan.domains(shapes)
            if cost <= TRIVIAL and plan.lacks(shapes, domains):
                domains = plan.domains({**shapes, **self._observe(binding, domains)})
            self._learned[key] = domains, cost
        return self._learned[key]

    def _observe(self, binding: Binding, domains: Mapping[str, Domain]) -> dict[str, list[int]]:
        """Find shapes that inference does not, by a run that outputs every value, with zeros where nothing is known."""
        feed = self._plan.feeds(replace(binding, profile="unknown"), domains)
        outcome = self._worker.run(with_all_values(self._inlined), [feed])
        result = {} if outcome.failure is not None or isinstance(outcome.runs[0], str) else outcome.runs[0]
        return {name: list(value.shape) for name, value in result.items() if hasattr(value, "shape")}

    def shapes(self, binding: Binding) -> dict[str, list[int]]:
        """Infer the shapes of all values for a binding, in a worker; empty if that fails."""
        return {name: shape for name, (_, shape) in self._shaped.declare(binding, self._worker).items()}

    @property
    def evaluated(self) -> list[str]:
        """The ONNX Runtime operators that the reference evaluator computes by our own definitions."""
        nodes = (node for node, _ in self._plan.index.nodes if node.domain == CONTRIB)
        return sorted({f"{CONTRIB}::{node.op_type}" for node in nodes if node.op_type in FUNCTIONS})

    def inferred(self, binding: Binding) -> Declared:
        """Return the types and shapes inferred for a binding; empty if inference was not run or failed."""
        return self._shaped.known(binding) if self._planned else {}

    def engine_for(
        self, name: EngineName, *, deployed: bool = False, providers: tuple[str, ...] = (), anew: bool = False
    ) -> Engine:
        """Make a separate worker, see `Engine`: with other `providers`, or to run `anew` what has run elsewhere."""
        setup = replace(self._verify.setup, providers=providers or self._verify.providers)
        kind = engine_knowing(None if anew or deployed else self._known, whole=self.holds(self.weights))
        return kind(name, *self.bounds, self.weights, setup, deployed=deployed)

    def _engine(self, anew: bool = False) -> Engine:
        if self._abandoned:
            raise SearchEnded
        self._running = self.engine_for(self.engine, anew=anew)
        return self._running

    def _reference(self, bindings: list[Binding], model: onnx.ModelProto, found: Origins, cost: float) -> None:
        """Run the original on all inputs; add runs if an output proves nothing and runs are cheap."""
        tried, limits = cost > CHEAP, bounds(model)
        bindings = bindings + self.numbered(self._deciding(bindings, cost), len(bindings))
        self.ranges, self.precision = unit_ranges(model), of_outputs(self._inlined, self._worker)
        while True:
            feeds = [self.feed(binding) for binding in bindings]
            outcome = self._run(bindings, feeds)
            if len(bindings) > FEW and outcome.lacks_memory:
                bindings, tried = bindings[:FEW], True
                continue
            require_room(outcome, bindings, self.given_dims)
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
            bindings += self.numbered(further(drawn, special), len(drawn))
            tried = True

    def _deciding(self, bindings: Sequence[Binding], cost: float) -> list[Binding]:
        """Return more sets, on which guards of the graph decide as they do on none of `bindings`."""
        import onnx

        drawn = [binding for binding in bindings if not isinstance(binding, GivenBinding)]
        if self._generator is not None or not drawn or self._counts_runs:
            return []
        watch = Watch(onnx.load_model_from_string(self._inlined), few=cost > CHEAP)
        self.guards = GuardSearch(watch, self.feed, self._try, _TRIES[(cost > TRIVIAL) + (cost > CHEAP)])
        # Regions get the integers of these runs alone.
        base = drawn[0]
        self.guards.see([binding for binding in drawn if binding.dims == base.dims][: RECORDED if cost <= CHEAP else 1])
        return self.guards.find(base)

    def _try(self, skeleton: bytes, feeds: Sequence[Mapping[str, Any]]) -> Sequence[Outputs | str]:
        outcome = self._worker.run(skeleton, feeds)
        return outcome.runs if outcome.failure is None else [outcome.failure] * len(feeds)

    def remember(self, binding: Binding, outputs: Outputs) -> None:
        """Keep the outputs of a search if they are expensive, unless a fresh session would compute other ones."""
        if not self._counts_runs and self.cost(binding) > CHEAP:
            self._probed.append((binding, outputs))

    def _run(self, bindings: list[Binding], feeds: list[dict[str, Any]]) -> RunOutcome:
        """Run the original on all inputs, reusing remembered outputs."""
        known = {index: run for index, one in enumerate(bindings) for other, run in self._probed if one == other}
        left = [feed for index, feed in enumerate(feeds) if index not in known]
        outcome = self._worker.run(self.skeleton, left, keep=not self._counts_runs)
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
        if self.cost(first[0].binding) > CHEAP:
            first = [min(first, key=lambda run: self.cost(run.binding))]
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
