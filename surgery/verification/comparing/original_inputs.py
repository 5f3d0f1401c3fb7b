"""What an original takes: for each choice of its free dims, what it is fed, the shapes inside, the cost of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from surgery.base.operators.domain import Domain
from surgery.model.runtime.contrib_ops import FUNCTIONS
from surgery.model.runtime.engine import Engine
from surgery.model.shapes.declarations import CONTRIB, Declared, inline
from surgery.verification.inputs.dims import UNKNOWN, Implied
from surgery.verification.inputs.feed_plan import Binding, DimKey, FeedPlan, read_defaults, with_all_values
from surgery.verification.inputs.generator import Generator
from surgery.verification.inputs.given import GivenBinding
from surgery.verification.inputs.input_sets import TRIVIAL
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.running.declaring import Declaring

if TYPE_CHECKING:
    import onnx


class OriginalInputs:
    """The inputs of an original whose weights have a number of bytes.

    `plan` is what its graph declares, `inlined` the graph without functions. `worker` infers shapes; what opened it
    ends it, and it starts again when it is needed.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        skeleton: bytes,
        spec: InputsSpec,
        verify: VerifySpec,
        worker: Engine,
        weights: int,
    ) -> None:
        import onnx

        inlined = worker.analyse(inline, skeleton=skeleton) if model.functions else None
        self.inlined: bytes = inlined or skeleton
        self.plan = FeedPlan(model, spec, onnx.load_model_from_string(self.inlined))
        self.worker = worker
        self._spec, self._verify, self._weights = spec, verify, weights
        self._declaring = Declaring(self.plan, self.inlined)
        self._generator: Generator | None = None
        self._learned: dict[DimKey, tuple[dict[str, Domain], float]] = {}

    # Sets of inputs

    def start_generator(self, model: onnx.ModelProto) -> None:
        """Have the user's function make inputs, if there is one."""
        self._generator = Generator.of(self._spec, self.plan.ports, read_defaults(model), self._verify)

    def rest(self, used: Collection[DimKey]) -> None:
        """Forget shapes at other dims than those `used`, and end the processes, which start again on demand."""
        self._declaring.keep(used)
        self.worker.close()
        if self._generator is not None:
            self._generator.close()

    @property
    def draws(self) -> bool:
        """Whether inputs are generated in addition to those that are given."""
        covered = self._generator is not None or all(port.name in self._spec.tensors for port in self.plan.ports)
        return covered or not self._spec.only_given

    @property
    def draws_all(self) -> bool:
        """Whether no user function generates inputs: such a function is called for few sizes only."""
        return self._generator is None

    def numbered(self, drawn: list[Binding], first: int) -> list[Binding]:
        """Give each set a separate seed, and name it after the user function that generates it, if any."""
        return drawn if self._generator is None else self._generator.number(drawn, self._verify.seed + first)

    def feed(self, binding: Binding) -> dict[str, Any]:
        """Return the inputs of a binding."""
        if isinstance(binding, GivenBinding):
            return dict(binding.feed)
        made = {} if self._generator is None else self._generator.make(binding.dims, binding.seed)
        return self.plan.feeds(binding, self._learn(binding)[0]) | made

    def points(self) -> list[Binding]:
        """Return the first two choices of dims that fit the declared types."""
        points = [self.plan.dims.point(which) for which in (0, 1)]
        return [Binding(point, seed=self._verify.seed) for point in (points if points[0] != points[1] else points[:1])]

    # Dims and shapes

    @property
    def spatial(self) -> tuple[str, ...]:
        """The free dims of images, other than batch and channels."""
        return self.plan.dims.spatial

    @property
    def given_dims(self) -> Mapping[str, Sequence[int]]:
        """The sizes of dims that the user gave."""
        return self._spec.dims

    def implied(self) -> Implied:
        """Find what the graph implies for its free dims, in a worker; `UNKNOWN` if that fails."""
        if self._declaring.blind:
            return UNKNOWN
        from surgery.verification.inputs.dim_constraints import dim_constraints  # slow to import

        dims = {port.name: list(port.dims) for port in self.plan.ports}
        names = list(self.plan.dims.names)
        with closing(self.worker):  # it has modules of up to 60 MiB that no run needs
            found = self.worker.analyse(dim_constraints, skeleton=self.inlined, dims=dims, names=names) or UNKNOWN
        self._declaring.learn(found["shapes"])
        return found

    def shapes(self, binding: Binding) -> dict[str, list[int]]:
        """Infer the shapes of all values for a binding, in a worker; empty if that fails."""
        return {name: shape for name, (_, shape) in self._declaring.declare(binding, self.worker).items()}

    def inferred(self, binding: Binding) -> Declared:
        """Return the types and shapes inferred for a binding; empty if inference was not run or failed."""
        return self._declaring.known(binding)

    @property
    def evaluated(self) -> list[str]:
        """The ONNX Runtime operators that the reference evaluator computes by our own definitions."""
        nodes = (node for node, _ in self.plan.index.nodes if node.domain == CONTRIB)
        return sorted({f"{CONTRIB}::{node.op_type}" for node in nodes if node.op_type in FUNCTIONS})

    # The cost of runs

    def cost(self, binding: Binding) -> float:
        """Estimate the seconds of one run."""
        return self._learn(binding)[1]

    def _learn(self, binding: Binding) -> tuple[dict[str, Domain], float]:
        """Return the legal inputs at the point of a binding, and the seconds of a run there."""
        key = binding.dim_key
        if key not in self._learned:
            plan, shapes = self.plan, self.shapes(binding)
            cost, domains = plan.cost(shapes, self._weights), plan.domains(shapes)
            if cost <= TRIVIAL and plan.lacks(shapes, domains):
                domains = plan.domains({**shapes, **self._observe(binding, domains)})
            self._learned[key] = domains, cost
        return self._learned[key]

    def _observe(self, binding: Binding, domains: Mapping[str, Domain]) -> dict[str, list[int]]:
        """Find shapes that inference does not, by a run that outputs every value, with zeros where nothing is known."""
        feed = self.plan.feeds(replace(binding, profile="unknown"), domains)
        outcome = self.worker.run(with_all_values(self.inlined), [feed])
        result = {} if outcome.failure is not None or isinstance(outcome.runs[0], str) else outcome.runs[0]
        return {name: list(value.shape) for name, value in result.items() if hasattr(value, "shape")}
