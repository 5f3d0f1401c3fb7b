"""Whether a recipe that is to change the precision of a model did so, or one for a target fits it, and why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from surgery.base.errors import PassError, SurgeryError, counted, require_machine
from surgery.base.promises import Parity
from surgery.engine.pipeline.expectations import unfit
from surgery.engine.pipeline.shortfall import Shortfall
from surgery.model.analysis.misfits import misfits

if TYPE_CHECKING:
    import onnx

    from surgery.engine.pipeline.records import StepRecord
    from surgery.engine.recipe.schema import PassStep, Recipe, Step
    from surgery.model.graph.graph import Graph
    from surgery.model.storage import StoredModel
    from surgery.verification.comparing.deployment import Deployed

_CPU = "ort-cpu"
"""The target to which the others of ONNX Runtime leave the nodes that they lack."""
_PASSES = ("quantize-", "to-bfloat16", "to-float16")
"""The beginnings of the names of passes whose purpose is another precision."""

_SMALL = {"the weight is smaller than min_size": "min_size", "the weight has few elements": "min_elements"}
"""The reasons of passes for weights that are too small to gain anything by, and the options with the bounds."""

_NO_WEIGHT = frozenset(
    {
        *("no factor is a constant weight", "the weight is not constant", "the weight is empty"),
        *("the gathered tensor is not constant", "the gathered values are not rows of a matrix"),
    }
)
"""The reasons of passes for operators that have no weight."""

_NARROW_TYPES = frozenset({2, 3, 4, 5, 10, 16, 17, 18, 19, 20, 21, 22, 23})
"""Element types of onnx.TensorProto: 8 and 16 bits and less."""


def shortfall(recipe: Recipe, records: Sequence[StepRecord], original: onnx.ModelProto) -> Shortfall | None:
    """Return why the steps of a recipe that are to change the precision did not; None if one did, or if none ran.

    A model that has narrow weights already, as the result of the same recipe, needs no other precision.
    """
    steps = {step.name: step for step in _steps(recipe.steps) if _is_precise(step)}
    tried = [record for record in records if record.name in steps and record.status != "skipped"]
    if not tried or any(record.status == "committed" for record in tried) or _is_narrow(original):
        return None
    undone = [record for record in tried if record.status != "unchanged"]
    if undone:
        names = " and ".join(dict.fromkeys(f"'{record.name}'" for record in undone))
        broke = any(record.exit_code == PassError.exit_code for record in undone)
        words = f"the precision was not changed: {names} {'broke' if broke else 'was undone'}, see above"
        return Shortfall(words, PassError.exit_code if broke else 1)
    step = steps[tried[0].name]
    reasons = Counter(one.reason for one in tried[0].refusals if one.reason not in _NO_WEIGHT)
    if not reasons:
        return Shortfall(f"nothing to gain: '{step.name}' found nothing that it converts", 0)
    reason, count = reasons.most_common(1)[0]
    if reason in _SMALL:
        return Shortfall(_too_small(step, _SMALL[reason], count), 0)
    return Shortfall(f"the precision was not changed: {tried[0].finding(_NO_WEIGHT)}", 1)


def off_target(graph: Graph, original: StoredModel, deployed: Deployed | None) -> Shortfall | None:
    """Return why the target of a graph does not run it; None if it does.

    ONNX Runtime leaves the nodes that an execution provider lacks to the CPU. Where the original has as many of these,
    that is held against nobody, nor is what the runtime of the target ran nevertheless.
    """
    try:
        reasons = unfit(graph)
        if reasons and deployed is not None and deployed.is_elsewhere and deployed.executed and deployed.verdict.passed:
            return Shortfall(
                f"{deployed.runtime} ran the result, but {graph.target.name} does not promise it: {reasons}", 0
            )
        return _off_target(graph, original, reasons) if reasons else None
    except SurgeryError as error:  # the kernels of the installed runtime cannot be read
        require_machine(error)
        return Shortfall(f"whether {graph.target.name} runs the result is not known: {error}", PassError.exit_code)


def _off_target(graph: Graph, original: StoredModel, reasons: str) -> Shortfall:
    from surgery.model import storage
    from surgery.model.graph.graph import Graph
    from surgery.model.targets import shipped

    target = graph.target
    on_cpu = shipped.find(_CPU)
    if not target.provider or (target.provider != on_cpu.provider and misfits(graph, on_cpu)):
        return Shortfall(f"{target.name} does not run the result: {reasons}", 1)
    before = _missing(Graph(storage.ir_from_proto(original.proto, original.weights), target=target))
    code = int(any(count > before[op] for op, count in _missing(graph).items()))
    if target.provider == on_cpu.provider:
        return Shortfall(f"{target.name} does not run the result: {reasons}", code)
    return Shortfall(f"{target.name} leaves nodes of the result to the CPU: {reasons}", code)


def _missing(graph: Graph) -> Counter[str]:
    """Count the nodes that the target of a graph does not run, by operator."""
    found = Counter[str]()
    for one in misfits(graph):
        found[one.reason.op] += one.count
    return found


def _too_small(step: PassStep, option: str, count: int) -> str:
    """Say how many weights are below the bound of an option, which is in bytes or elements."""
    defaults = {one.name: one.default for one in step.find().options}
    least = step.options.get(option, defaults.get(option))
    bound = f"{least / 1024:g} KiB" if option == "min_size" and isinstance(least, int) else str(least)
    unit = " elements" if option == "min_elements" else ""
    what = f"{counted(count, 'weight')} below {bound}{unit}"
    return f"nothing to quantize: {what} (surgery run {step.name} MODEL --set {option}=0 quantizes all)"


def _steps(steps: Sequence[Step]) -> Iterator[PassStep]:
    from surgery.engine.recipe.schema import PassStep

    for step in steps:
        if isinstance(step, PassStep):
            yield step
        else:
            yield from _steps(step.steps)


def _is_precise(step: PassStep) -> bool:
    return step.name.startswith(_PASSES) and step.find().promise(step.options) is Parity.LOSSY


def _is_narrow(model: onnx.ModelProto) -> bool:
    """Return whether a model has weights of a narrow type, or computes them by a node."""
    return any(one.data_type in _NARROW_TYPES for one in model.graph.initializer) or any(
        attribute.t.data_type in _NARROW_TYPES
        for node in model.graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
    )
