"""Compare a model with the expectations of a recipe, or with the condition of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from surgery.base.errors import SurgeryError, first_few, require_machine
from surgery.base.operators.empties import refusing_more
from surgery.engine.recipe.count_condition import CountCondition
from surgery.engine.recipe.schema import Expect, Share
from surgery.engine.registry.catalog import catalog

if TYPE_CHECKING:
    import onnx

    from surgery.model.graph.graph import Graph
    from surgery.model.storage import StoredModel
    from surgery.verification.comparing.deployment import Deployed
    from surgery.verification.inputs.spec import InputsSpec, VerifySpec


def expectations(expected: Expect, ops: Mapping[str, int], opset: int, sites: int = 0) -> Iterator[tuple[str, bool]]:
    """Yield each expectation of a model with these operators, as text, and whether it holds.

    `sites` is the number of sites of a step; expectations at the end do not mention sites.
    """
    yield from comparisons(expected.ops, expected.nodes, expected.opset, ops, opset)
    if expected.sites is not None:
        yield f"sites: {expected.sites} (found {sites})", expected.sites.holds(sites)


def comparisons(
    ops: Mapping[str, Any], nodes: Any, opset: Any, counts: Mapping[str, int], version: int
) -> Iterator[tuple[str, bool]]:
    """Yield each comparison as text, with the actual value, and whether it holds."""
    for name, comparison in ops.items():
        count = counts.get(name, 0)
        yield f"{name}: {comparison} (found {count})", comparison.holds(count)
    if nodes is not None:
        total = sum(counts.values())
        yield f"nodes: {nodes} (found {total})", nodes.holds(total)
    if opset is not None:
        yield f"opset: {opset} (found {version})", opset.holds(version)


def fits(name: str, stored: StoredModel, model: onnx.ModelProto) -> tuple[str, bool]:
    """Return a text on whether a target runs the whole model, and whether it does; `stored` has the weights."""
    from surgery.model import storage
    from surgery.model.graph.graph import Graph
    from surgery.model.targets import shipped

    target = shipped.find(name)
    found = unfit(Graph(storage.ir_from_proto(model, stored.weights), weights=stored.weights, target=target))
    return f"target: {target.name} ({found})" if found else f"target: {target.name}", not found


def unfit(graph: Graph) -> str:
    """Return the reasons why the target of a graph does not run it, in words; "" if it does."""
    from surgery.model.analysis.misfits import misfits

    return first_few(misfits(graph), _MOST_MISFITS, ";")


_MOST_MISFITS = 3


def empty(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[str, bool]:
    """Return a text on whether no operator was added that takes no empty batch, and whether that is so."""
    found = refusing_more(before, after)
    return f"empty: allowed ({', '.join(found)} added)" if found else "empty: allowed", not found


def executed(expected: CountCondition | Share, found: Deployed) -> tuple[str, bool]:
    """Return a text on how many nodes ONNX Runtime executes as deployed, and whether that is as expected.

    A share is a multiple of the nodes that it executes of the original.
    """
    if found.executed is None:
        return f"executed: {expected} (not known: {found.verdict.message})", False
    total = found.executed.total
    if isinstance(expected, CountCondition):
        return f"executed: {expected} (found {total})", expected.holds(total)
    if found.original is None:
        return f"executed: {expected} (found {total}, of the original not known)", False
    before = found.original.total
    return f"executed: {expected} (found {total}, of the original {before})", expected.holds(total, before)


def answers(
    predicates: Mapping[str, bool],
    stored: StoredModel,
    model: onnx.ModelProto,
    verify: VerifySpec,
    said: Callable[[str, str], None],
) -> Iterator[tuple[str, bool]]:
    """Yield each predicate in words, and whether its answer is the wanted one; `stored` has the weights.

    `said` receives the name of a predicate, and what it printed.
    """
    from surgery.engine.bridges.predicate_runs import holds

    for name, wanted in predicates.items():
        answer = holds(catalog.predicates()[name], stored, model, verify.timeout, verify.memory, said)
        yield f"{name}: {str(wanted).lower()} (found {str(answer).lower()})", answer is wanted


@dataclass(frozen=True)
class Speed:
    """A measured speed: the finding as text, whether it is enough, and the ratio, None if it was not measured."""

    found: str
    ok: bool
    ratio: float | None


def speed(
    least: float,
    stored: StoredModel,
    models: tuple[onnx.ModelProto, onnx.ModelProto],
    inputs: InputsSpec,
    verify: VerifySpec,
) -> Speed:
    """Measure the speed of a model relative to the model it was made from.

    It holds unless the whole interval lies below `least`: a model with the same speed never has an interval above 1.
    `stored` has the weights of both `models`, which run in turn with one thread, on `typical_inputs`. A speed that
    cannot be measured does not hold, unless any is enough. That of a model with more weights than `most_to_measure` is
    not measured, and holds.
    """
    from surgery.model.runtime.engine import most_to_measure
    from surgery.model.storage import weight_bytes
    from surgery.verification.benchmarking.bench import bench, typical_inputs
    from surgery.verification.benchmarking.bench_spec import BenchSpec
    from surgery.verification.benchmarking.subjects import subject

    if models[0] == models[1]:
        return Speed("the same model", least <= 1.0, 1.0)
    most = most_to_measure(verify.memory)
    if (weights := weight_bytes(models[0])) > most:
        return Speed(f"not measured: {weights:,} bytes of weights are more than {most:,}", True, None)
    spec = BenchSpec(
        seed=verify.seed,
        timeout=verify.timeout,
        memory=verify.memory,
        custom_op_library=verify.custom_op_library,
        providers=verify.providers,
    )
    names = ("the original", "the result")
    subjects = [subject(replace(stored, proto=model), name) for model, name in zip(models, names)]
    try:
        inputs = typical_inputs(inputs, verify.accuracy.samples, subjects[0])
        found = bench(*subjects, inputs=inputs, spec=spec, decide=least, memory=False).speed
    except SurgeryError as error:
        require_machine(error)
        return Speed(f"cannot be measured: {error}", least <= 0.0, None)
    between = f"between {found.low:.3f} and {found.high:.3f} with a confidence of {spec.level:.0%}"
    ok = found.reaches(least)
    remedy = "" if ok else "; 'surgery tune' finds the steps and sites that are faster"
    return Speed(f"found {found.ratio:.3f}, {between}{remedy}", ok, found.ratio)
