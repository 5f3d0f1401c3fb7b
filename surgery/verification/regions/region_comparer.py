"""Both pieces of a region, run on values at its boundary and compared target by target."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.operators.dtypes import is_float
from surgery.base.promises import Parity
from surgery.model.proto.randomness import origins
from surgery.model.runtime.engine import RunOutcome
from surgery.model.runtime.reference_runs import external_bytes
from surgery.model.shapes.declarations import element_types
from surgery.verification.comparing.compare import ComparisonRules, exceeds
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.fingerprint import alike
from surgery.verification.comparing.output_judge import NOT_RUN
from surgery.verification.comparing.vacuity import ALWAYS_EMPTY, NEVER_FINITE, Run, tensors
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.regions.definitions import Definitions
from surgery.verification.regions.patterns import Pattern, pattern_of
from surgery.verification.regions.region_cost import cost, seconds
from surgery.verification.regions.region_feeding import Drawn, Feeding
from surgery.verification.regions.region_values import Form, Point, UnknownError, Values
from surgery.verification.regions.region_variants import REASONS, RegionVariant, shown, variants
from surgery.verification.regions.regions import Region, nudged
from surgery.verification.regions.run_groups import run_in_groups
from surgery.verification.regions.sizes import reduced
from surgery.verification.regions.tally import Tally
from surgery.verification.regions.target_descent import trimmed
from surgery.verification.regions.time_budget import TimeBudget
from surgery.verification.regions.tried_bindings import by_size, elements

if TYPE_CHECKING:
    import onnx

    from surgery.verification.comparing.reference_run import ReferenceRun

PROVED = "computed by the same operators"
"""The message of a verdict that needed no run."""

FOLLOWS = "computed by the same operators from bit-identical values"
"""The message of a verdict on a target, from those on the values that it is computed from."""

_CLOSE = ComparisonRules(Parity.CLOSE)

_FEW_ELEMENTS = 1 << 14
"""Number of elements given to a region up to which a run of it is short."""


class RegionComparer:
    """Compares regions of changed models, at sizes that the original is known to accept."""

    def __init__(self, original: ReferenceRun, verify: VerifySpec) -> None:
        self._original = original
        self._verify = verify
        self._engine = original.engine_for("onnxruntime")
        self._values: Values | None = None
        self._known: dict[tuple[Parity, Pattern], list[Verdict]] = {}
        self._families: set[tuple[Parity, Hashable]] = set()
        self._differing: set[Hashable] = set()
        self._drawn = Drawn()

    def close(self) -> None:
        """Stop the process that runs the regions."""
        self._engine.close()

    def rest(self) -> None:
        """Stop the process that runs the regions until it is needed again, and return the memory that they took."""
        self._engine.rest()

    def compare(
        self,
        regions: Sequence[Region],
        before: Definitions,
        promise: Parity,
        *,
        grown: bool = False,
        budget: TimeBudget,
    ) -> dict[str, Verdict]:
        """Return a verdict on each target of each region. In regions that have `grown`, targets have to move.

        Raises `CostlyError` if that would exceed the remaining budget.
        """
        verdicts = {name: verdict for region in regions for name, verdict in _proved(region).items()}
        left = [region for region in regions if any(name not in verdicts for name in region.targets)]
        if not left:
            return verdicts
        self._values = self._values or Values(self._original, self._engine)
        if not self._values.points:
            nothing = Verdict(Status.UNVERIFIED, NOT_RUN, message=self._original.problem or "no inputs are known")
            return dict.fromkeys((name for region in left for name in region.targets), nothing) | verdicts
        given = {name for region in left for name in region.given}
        self._values.infer(before, given, budget)
        learning = self._values.cost(before, given)
        budget.check(learning + cost(left, self._values.points, promise))
        budget.spend(learning)
        unknown = self._values.learn(before, given)
        # The larger regions of a family need not show again what the smallest one has shown.
        left = by_size(left, self._values.points[0])
        budget.spend(cost(left, self._values.points, promise))
        for region in left:
            reason = next((unknown[name] for name in region.given if name in unknown), "")
            found = _unverified(region, reason) if reason else self._found(region, before, promise, grown)
            found |= _follows(region, found)
            for name, verdict in found.items():
                verdicts.setdefault(name, verdict)
        return verdicts

    @property
    def runs_whole(self) -> bool:
        """Whether the original runs as a whole."""
        return self._original.problem is None

    def holds(self, region: Region) -> bool:
        """Return whether the weights of a region fit into memory."""
        return all(self._original.holds(external_bytes(piece)) for piece in (region.before, region.after))

    def _found(self, region: Region, before: Definitions, promise: Parity, grown: bool) -> dict[str, Verdict]:
        """Return a verdict on each target of a region.

        If a run of it takes long, the part that differs runs first, which mostly suffices if it keeps all bits. Where
        it does not, the operands of a node may have been exchanged, and are exchanged in all regions alike.
        """
        assert self._values is not None
        is_long = max(elements(region, point) for point in self._values.points) > _FEW_ELEMENTS
        part = trimmed(region) if is_long else None
        kind = part and tuple(node.op_type for piece in (part.before, part.after) for node in piece.graph.node)
        if part is not None and kind not in self._differing:
            verdicts = self.beneath(part, before, Parity.EXACT, grown)
            if all(verdict.status is Status.EQUAL for verdict in verdicts.values()):
                return dict.fromkeys(region.targets, Verdict(Status.EQUAL, message=FOLLOWS))
            self._differing.add(kind)
        return self.beneath(region, before, promise, grown)

    def beneath(self, region: Region, before: Definitions, promise: Parity, grown: bool) -> dict[str, Verdict]:
        """Run a region, or a region cut out of one that was run; return a verdict on each target."""
        assert self._values is not None
        try:
            return self._try(region, self._values, before, promise, grown)
        except UnknownError as error:
            return _unverified(region, str(error))

    def _try(
        self, region: Region, values: Values, before: Definitions, promise: Parity, grown: bool
    ) -> dict[str, Verdict]:
        """Run a region at smaller sizes or its own, and run variants of it for targets that show nothing."""
        smaller = reduced(region, values.points)
        if smaller is not values.points:
            with suppress(UnknownError):
                verdicts = self._try_at(smaller, region, before, promise, grown)
                if all(verdict.passed for verdict in verdicts.values()):
                    return verdicts
        verdicts = self._try_at(values.points, region, before, promise, grown)
        for why in REASONS:
            lost = [name for name, verdict in verdicts.items() if verdict.message == f"'{name}' {why}"]
            for other in variants(why, region, values.points) if lost else ():
                found = self._try_variant(other, region, verdicts, before, promise, grown)
                verdicts |= {name: found[name] for name in lost if name in found}
                lost = [name for name in lost if name not in found]
                if not lost:
                    break
        return verdicts

    def _try_variant(
        self,
        other: RegionVariant,
        region: Region,
        verdicts: Mapping[str, Verdict],
        before: Definitions,
        promise: Parity,
        grown: bool,
    ) -> dict[str, Verdict]:
        """Return the verdicts on targets about which a variant shows something."""
        with suppress(UnknownError):
            again = self._try_at(other.points, other.region, before, promise, grown)
            found = {name: shown(region, verdict, other, again[name]) for name, verdict in verdicts.items()}
            if not other.is_open or self._has_elements(other, before):
                return {name: verdict for name, verdict in found.items() if verdict is not None}
        return {}

    def _has_elements(self, other: RegionVariant, before: Definitions) -> bool:
        """Return whether all values of a region have elements at some of its sizes.

        An empty value might have elements at sizes that are not tried, and hides the values that it is computed from.
        """
        region, points = other.region, other.points
        for piece in (region.before, region.after):
            model = type(piece)()
            model.CopyFrom(piece)
            del model.graph.output[:]
            computing = (node for node in model.graph.node if node.op_type != "Constant")
            names = dict.fromkeys(name for node in computing for name in node.output if name)
            model.graph.output.extend(type(piece.graph.output[0])(name=name) for name in names)
            feeding = self._feeding(region, points, before, piece)
            chosen = feeding.sets(Parity.CLOSE, few=True)
            left = set(names)
            for group in run_in_groups(self._engine, [model.SerializeToString()], feeding, chosen):
                runs = [run for run in group.outcomes[0].runs if not isinstance(run, str)]
                left -= {name for name in left for run in runs if any(part.size for part in tensors(run[name]))}
            if left:
                return False
        return True

    def _try_at(
        self, points: Sequence[Point], region: Region, before: Definitions, promise: Parity, grown: bool
    ) -> dict[str, Verdict]:
        """Run a region, unless the verdicts of a region with the same pattern are known."""
        pattern = pattern_of(region, points, before)
        known = self._known.get((promise, pattern)) if pattern is not None else None
        if known is not None and pattern is not None and not pattern.weights:
            return dict(zip(region.targets, known))
        is_one_of_many = pattern is not None and (promise, pattern.family) in self._families
        for piece in (region.before, region.after):
            _declared(piece, region, points[0].forms)
        tally = Tally(region, self._original, self._verify, self._engine, promise, few=is_one_of_many)
        failure = self._run(tally, points, before, promise, few=is_one_of_many)
        if failure is not None:
            return dict.fromkeys(region.targets, failure)
        verdicts = tally.verdicts()
        if not is_one_of_many:
            verdicts |= self._vacuous(tally, before, verdicts, promise, grown)
        if pattern is not None and all(one.passed for one in verdicts.values()):
            self._known[promise, pattern] = [verdicts[name] for name in region.targets]
            self._families.add((promise, pattern.family))
        return verdicts

    def _run(
        self, tally: Tally, points: Sequence[Point], before: Definitions, promise: Parity, *, few: bool
    ) -> Verdict | None:
        """Run both pieces of a region, and add what they do to the tally; return a verdict if the changed one fails."""
        region = tally.region
        pieces = region.before, region.after
        found = [origins(piece) for piece in pieces]
        if any(one.random for one in found):
            raise UnknownError(
                f"it draws random numbers ({', '.join(sorted(found[0].operators | found[1].operators))})"
            )
        skeletons = [piece.SerializeToString() for piece in pieces]
        feeding = self._feeding(region, points, before, pieces[0])
        chosen = feeding.sets(promise, few=few)
        # Guards such as masks decide only on special data. A region that is one of many alike does without it.
        if not few:
            chosen += feeding.deciding([binding for binding, _ in chosen], self._engine)
        refusal, has_run = "", False
        for group in run_in_groups(self._engine, skeletons, feeding, chosen):
            mine, theirs = group.outcomes
            # If the original does not run, nothing is known. If only the changed one does not, that is a difference.
            if mine.failure is not None:
                raise UnknownError(f"the region of the original does not run: {mine.failure}")
            kept = {number: run for number, run in enumerate(mine.runs) if not isinstance(run, str)}
            if not kept:
                refusal = refusal or str(mine.runs[0])
                continue
            has_run = True
            failure = _failure(theirs, kept)
            if failure is not None:
                return failure
            runs = [Run(*group.sets[number], outputs) for number, outputs in kept.items()]
            tally.add(runs, [run for run in (theirs.runs[number] for number in kept) if not isinstance(run, str)])
            # The outputs of a group may be large, and those of the next one come while these names still hold them.
            del mine, theirs, kept, runs
        if not has_run:
            raise UnknownError(f"the region of the original does not run: {refusal}")
        return None

    def _feeding(self, region: Region, points: Sequence[Point], before: Definitions, piece: Any) -> Feeding:
        return Feeding(region, points, before, piece, self._drawn)

    def moves(self, region: Region, before: Definitions, name: str, budget: TimeBudget) -> bool:
        """Return whether any target of a region moves when a float value inside it is nudged."""
        if self._values is None or not self._values.points:
            return False
        self._values.infer(before, region.given, budget)
        if self._values.learn(before, region.given):
            return False
        # A region that was proved, or that is like another one, has not been run.
        _declared(region.before, region, self._values.points[0].forms)
        types = self._engine.analyse(element_types, skeleton=region.before.SerializeToString()) or {}
        inner = region.inner(name)
        piece = nudged(region.before, inner, types.get(inner, 0))
        if piece is None:
            return False
        budget.spend(seconds(region, reduced(region, self._values.points), Parity.CLOSE, few=True))
        # Most regions move with the first few feeds.
        return any(self._moves(region, piece, before, few=few) for few in (True, False))

    def _moves(self, region: Region, piece: onnx.ModelProto, before: Definitions, *, few: bool) -> bool:
        assert self._values is not None
        points = reduced(region, self._values.points)
        feeding = self._feeding(region, points, before, region.before)
        skeletons = [model.SerializeToString() for model in (region.before, piece)]
        for group in run_in_groups(self._engine, skeletons, feeding, feeding.sets(Parity.CLOSE, few=few)):
            if any(side.failure is not None for side in group.outcomes):
                return False
            if any(
                not isinstance(first, str) and not isinstance(second, str) and _moved(first[output], second[output])
                for first, second in zip(*(side.runs for side in group.outcomes))
                for output in region.outputs
            ):
                return True
        return False

    def _vacuous(
        self, tally: Tally, before: Definitions, verdicts: Mapping[str, Verdict], promise: Parity, grown: bool
    ) -> dict[str, Verdict]:
        """Return the verdicts on targets that agree but prove nothing.

        A target with the same bits for all drawn values, on both sides, is constant by definition, unless the region
        was enlarged until it no longer showed the difference. Likewise, a target that is empty for all extents is empty
        by definition.
        """
        result = {}
        for name, output in zip(tally.region.targets, tally.region.outputs):
            why = tally.vacuous(promise if verdicts[name].status is Status.CLOSE else Parity.EXACT).get(output)
            if not verdicts[name].passed or why is None:
                continue
            if why == ALWAYS_EMPTY:
                is_fixed = self._values is not None and self._values.is_empty(before, name)
            else:
                is_fixed = not grown and why != NEVER_FINITE
                is_fixed = is_fixed and (verdicts[name].status is Status.EQUAL or tally.is_constant(output))
            if not is_fixed:
                result[name] = Verdict(Status.UNVERIFIED, "vacuous", message=f"'{name}' {why}")
        return result


def _failure(theirs: RunOutcome, kept: Iterable[int]) -> Verdict | None:
    """Return the verdict on a changed region that fails on sets that the original accepts; None if it does not."""
    if theirs.unsupported is not None:
        return Verdict(Status.UNVERIFIED, NOT_RUN, message=theirs.unsupported)
    results = [theirs.runs[number] for number in kept] if theirs.failure is None else []
    failure = theirs.failure or next((run for run in results if isinstance(run, str)), None)
    return None if failure is None else Verdict(Status.DIFFERENT, message=f"the changed region does not run: {failure}")


def _moved(first: Any, second: Any) -> bool:
    """Return whether a float value differs by more than rounding where it is finite on both sides."""
    if not isinstance(first, np.ndarray) or not is_float(first.dtype) or first.shape != second.shape:
        return False
    finite = np.isfinite(first.astype(np.float64)) & np.isfinite(second.astype(np.float64))
    return exceeds(np.where(finite, first, 0), np.where(finite, second, 0), _CLOSE)


def _proved(region: Region) -> dict[str, Verdict]:
    """Return the verdicts on targets that the same operators compute in both models."""
    computing = _computing(region.before), _computing(region.after)
    if len(region.targets) == 1 and computing[0] != computing[1] and not any("If" in one for one in computing):
        return {}
    proof = alike(region.before, region.after, region.outputs)
    found = zip(region.targets, region.outputs)
    return {name: Verdict(Status.EQUAL, message=PROVED) for name, output in found if output in proof}


def _computing(piece: onnx.ModelProto) -> set[str]:
    """Return the operators of nodes that may compute something."""
    return {node.op_type for node in piece.graph.node} - {"Constant", "Identity", "Transpose"}


def _follows(region: Region, verdicts: Mapping[str, Verdict]) -> dict[str, Verdict]:
    """Return the verdicts on targets that the same operators compute from others, once these are known to be equal.

    If a value and another one computed from it are both read, and the change removes one of them, their readers in the
    original are given elements that do not belong together.
    """
    names = dict(zip(region.targets, region.outputs))
    equal = {
        name: names[name] for name in region.targets if name in region.given and verdicts[name].status is Status.EQUAL
    }
    left = [name for name in region.targets if not verdicts[name].passed]
    if not equal or not left:
        return {}
    proof = alike(region.before, region.after, [names[name] for name in left], equal)
    return {name: Verdict(Status.EQUAL, message=FOLLOWS) for name in left if names[name] in proof}


def _unverified(region: Region, reason: str) -> dict[str, Verdict]:
    return dict.fromkeys(region.targets, Verdict(Status.UNVERIFIED, NOT_RUN, message=reason))


def _declared(piece: onnx.ModelProto, region: Region, forms: Mapping[str, Form]) -> onnx.ModelProto:
    """Declare the inputs and outputs of a piece, unless they are declared already; dims are left open."""
    from surgery.model.proto.extract import describe

    if piece.graph.output:
        return piece
    for name in region.given:
        port = describe(name, np.empty((0,) * len(forms[name].shape), forms[name].dtype))
        for dim in port.type.tensor_type.shape.dim:
            dim.Clear()
        piece.graph.input.append(port)
    for name in region.outputs:
        piece.graph.output.add().name = name
    return piece
