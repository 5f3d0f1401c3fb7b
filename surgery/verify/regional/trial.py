"""Both pieces of a region, run on values at its boundary and compared target by target."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.parity import Parity
from surgery.recipe.schema import InputsSpec, VerifySpec
from surgery.verify.comparing.compare import Rules
from surgery.verify.comparing.details import Verdict
from surgery.verify.comparing.judging import NOT_RUN, Judge
from surgery.verify.comparing.vacuity import Run, same, vacuous
from surgery.verify.inputs.plan import Binding, Plan
from surgery.verify.inputs.sets import TRIVIAL, choose
from surgery.verify.inside.lineage import alike
from surgery.verify.inside.lineage import content as stored
from surgery.verify.randomness import origins
from surgery.verify.regional.definitions import Definitions
from surgery.verify.regional.regions import Region
from surgery.verify.regional.values import Form, Point, UnknownError, Values

if TYPE_CHECKING:
    import onnx

    from surgery.verify.original import Original

_NOT_NEGATIVE = frozenset({"Abs", "Exp", "ReduceL1", "ReduceL2", "ReduceSumSquare", "Relu", "Softplus", "Sqrt"})
_UNIT = frozenset({"HardSigmoid", "Sigmoid", "Softmax"})

_FEW = 64
"""Elements of a constant up to which it counts as part of the computation."""


class Laboratory:
    """Compares regions of changed models, at sizes that the original is known to accept."""

    def __init__(self, original: Original, verify: VerifySpec) -> None:
        self._original = original
        self._verify = verify
        self._engine = original.engine_for("onnxruntime")
        self._values: Values | None = None
        self._known: dict[Hashable, list[Verdict]] = {}

    def close(self) -> None:
        """End the process that runs the regions."""
        self._engine.close()

    def compare(self, regions: Sequence[Region], before: Definitions, promise: Parity) -> dict[str, Verdict]:
        """Give a verdict on each target of each region."""
        verdicts = {name: verdict for region in regions for name, verdict in _proved(region).items()}
        left = [region for region in regions if any(name not in verdicts for name in region.targets)]
        if not left:
            return verdicts
        self._values = self._values or Values(self._original, self._engine)
        if not self._values.points:
            nothing = Verdict("unverified", NOT_RUN, message=self._original.problem or "no inputs are known")
            return dict.fromkeys((name for region in left for name in region.targets), nothing) | verdicts
        unknown = self._values.learn(before, {name for region in left for name in region.given})
        for region in left:
            reason = next((unknown[name] for name in region.given if name in unknown), "")
            try:
                found = _unverified(region, reason) if reason else self._try(region, self._values, before, promise)
            except UnknownError as error:
                found = _unverified(region, str(error))
            verdicts = {**found, **verdicts}
        return verdicts

    def _try(self, region: Region, values: Values, before: Definitions, promise: Parity) -> dict[str, Verdict]:
        """Run a region, unless one like it was run."""
        pattern = _pattern_of(region, values.points)
        key = None if pattern is None else (promise, pattern)
        known = self._known.get(key) if key is not None else None
        if known is not None and pattern is not None and not pattern.weights:
            return dict(zip(region.targets, known))
        runs, results, failure = self._run(region, values, before, promise, few=known is not None)
        if failure is not None:
            return dict.fromkeys(region.targets, failure)
        verdicts = self._judge(region, runs, results, promise)
        if key is not None and all(one.passed for one in verdicts.values()):
            self._known[key] = [verdicts[name] for name in region.targets]
        return verdicts

    def _run(
        self, region: Region, values: Values, before: Definitions, promise: Parity, *, few: bool
    ) -> tuple[list[Run], list[Mapping[str, Any]], Verdict | None]:
        first = values.points[0].forms
        pieces = [_declared(piece, region, first) for piece in (region.before, region.after)]
        found = origins(pieces[0])
        if found.operators:
            raise UnknownError(f"it draws random numbers ({', '.join(sorted(found.operators))})")
        skeletons = [piece.SerializeToString() for piece in pieces]
        feeds = self._feeds(region, values.points, before, pieces[0], promise, few=few)
        mine = self._engine.run(skeletons[0], [feed for _, feed in feeds])
        if mine.failure is not None:
            raise UnknownError(f"the region of the original does not run: {mine.failure}")
        kept = [(binding, feed, run) for (binding, feed), run in zip(feeds, mine.runs) if not isinstance(run, str)]
        if not kept:
            raise UnknownError(f"the region of the original does not run: {mine.runs[0]}")
        runs = [Run(binding, feed, outputs) for binding, feed, outputs in kept]
        theirs = self._engine.run(skeletons[1], [run.feed for run in runs])
        failure = theirs.failure or next((run for run in theirs.runs if isinstance(run, str)), None)
        if failure is not None:
            return runs, [], Verdict("different", message=f"the changed region does not run: {failure}")
        return runs, [run for run in theirs.runs if not isinstance(run, str)], None

    def _feeds(
        self,
        region: Region,
        points: Sequence[Point],
        before: Definitions,
        piece: onnx.ModelProto,
        promise: Parity,
        *,
        few: bool,
    ) -> list[tuple[Binding, dict[str, Any]]]:
        """Make the sets of values at the boundary."""
        plan = Plan(piece, InputsSpec())
        # Integers are those of the original, and no shape inside matters to what floats are legal.
        shapes = [{name: list(point.forms[name].shape) for name in region.given} for point in points]
        domains = plan.domains(shapes[0])
        cost = max(plan.cost(found, 0) for found in shapes[:2])
        bindings = choose([point.binding for point in points], max(cost, 2 * TRIVIAL))
        if few:
            bindings = bindings[:2]
        elif promise is Parity.EXACT:
            bindings.append(replace(bindings[0], character="special"))
        places = {tuple(point.dims.items()): point for point in points}
        result = []
        for number, binding in enumerate(bindings):
            point = places[tuple(binding.dims.items())]
            drawn = plan.feeds(replace(binding, dims=_extents(region, point)), domains)
            feed = {name: _value(name, value, before, point, number) for name, value in drawn.items()}
            result.append((binding, feed))
        return result

    def _judge(
        self, region: Region, runs: list[Run], results: Sequence[Mapping[str, Any]], promise: Parity
    ) -> dict[str, Verdict]:
        """Compare target by target."""
        piece = region.before
        found = origins(piece)
        judge = Judge(self._original.beside(piece.SerializeToString(), runs), self._verify)
        empty: dict[Parity, dict[str, str]] = {}
        verdicts = {}
        for name, output in zip(region.targets, region.outputs):
            if all(same(run.outputs[output], values[output]) for run, values in zip(runs, results)):
                verdict = Verdict("equal", message="bit-identical")
            else:
                own = [replace(run, outputs={output: run.outputs[output]}) for run in runs]
                verdict = judge.judge(own, [{output: values[output]} for values in results], promise)
            strict = promise if verdict.status == "close" else Parity.EXACT
            if verdict.passed and strict not in empty:
                rules = Rules(strict, self._verify.rtol, self._verify.atol)
                empty[strict] = vacuous(piece, runs, found, rules)
            if verdict.passed and output in empty[strict]:
                verdict = Verdict("unverified", "vacuous", message=f"'{name}' {empty[strict][output]}")
            verdicts[name] = verdict
        return verdicts


@dataclass(frozen=True)
class _Pattern:
    """What two regions share that compute the same, but for what large `weights` hold."""

    content: Hashable
    weights: bool


def _pattern_of(region: Region, points: Sequence[Point]) -> _Pattern | None:
    """Describe a region without names; None for one with subgraphs or functions."""
    numbers: dict[str, int] = {}

    def number(name: str) -> int:
        return numbers.setdefault(name, len(numbers)) if name else -1

    content: list[Hashable] = []
    weights = False
    for piece in (region.before, region.after):
        if piece.functions or piece.graph.sparse_initializer:
            return None
        content.append(tuple((item.domain, item.version) for item in piece.opset_import))
        for node in piece.graph.node:
            if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
                return None
            attributes = tuple(sorted(attribute.SerializeToString(deterministic=True) for attribute in node.attribute))
            names = tuple(map(number, node.input)), tuple(map(number, node.output))
            content.append((node.domain, node.op_type, *names, attributes))
        for tensor in piece.graph.initializer:
            known = stored(tensor)
            large = tensor.data_location == tensor.EXTERNAL or math.prod(tensor.dims) > _FEW
            weights = weights or large
            content.append((number(tensor.name), known[:2] if large else known))
    for name in region.given:
        forms = tuple((point.forms[name].dtype.str, point.forms[name].shape) for point in points)
        drawn = points[0].forms[name].is_drawn
        values = () if drawn else tuple(value[name].tobytes() for point in points for value in point.recorded)
        content.append((number(name), forms, values))
    content.append(tuple(map(number, region.outputs)))
    return _Pattern(tuple(content), weights)


def _value(name: str, drawn: Any, before: Definitions, point: Point, number: int) -> Any:
    """Return what is drawn, with the signs that the operator which makes it gives; or what the original computes."""
    if not point.forms[name].is_drawn:
        return point.recorded[number % len(point.recorded)][name]
    producer = before.flow.producers.get(name)
    op = before.flow.nodes[producer].op_type if producer is not None else ""
    if op in _NOT_NEGATIVE:
        return np.abs(drawn)
    return _unit(drawn) if op in _UNIT else drawn


def _proved(region: Region) -> dict[str, Verdict]:
    """Give the verdicts on targets that the same operators compute in both models."""
    proof = alike(region.before, region.after, region.outputs)
    found = zip(region.targets, region.outputs)
    return {
        name: Verdict("equal", message="computed by the same operators") for name, output in found if output in proof
    }


def _unverified(region: Region, reason: str) -> dict[str, Verdict]:
    return dict.fromkeys(region.targets, Verdict("unverified", NOT_RUN, message=reason))


def _unit(drawn: Any) -> Any:
    size = np.abs(drawn.astype(np.float64))
    return np.where(size > 1, 1 / np.where(size > 1, size, 1), size).astype(drawn.dtype)


def _extents(region: Region, point: Point) -> dict[str, int]:
    return {f"{name}[{axis}]": extent for name in region.given for axis, extent in enumerate(point.forms[name].shape)}


def _declared(piece: onnx.ModelProto, region: Region, forms: Mapping[str, Form]) -> onnx.ModelProto:
    """Declare what is given and what is asked for; dims are open."""
    from surgery.verify.inside.cut import describe

    for name in region.given:
        port = describe(name, np.empty((0,) * len(forms[name].shape), forms[name].dtype))
        for dim in port.type.tensor_type.shape.dim:
            dim.Clear()
        piece.graph.input.append(port)
    for name in region.outputs:
        piece.graph.output.add().name = name
    return piece
