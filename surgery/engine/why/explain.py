"""Why a pass fires or does not fire on a model: sites, near misses, refusals.

The pass runs on the model. Then the remaining nodes are examined for places where its pattern matches but a guard
refuses, and for partial matches. Nothing is verified or kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from surgery.base.errors import BlockedError, SurgeryError, UsageError, counted
from surgery.base.json_record import Record
from surgery.base.packing import Packer
from surgery.base.views import view
from surgery.base.workers import default_memory
from surgery.base.workers.fork import call_in_fork
from surgery.engine.bridges.except_selectors import excepted_nodes
from surgery.engine.bridges.run_pass import PassResult, run_pass
from surgery.engine.registry.passes import suggestion
from surgery.engine.why.decision_trace import SkippingLine
from surgery.engine.why.describe import contents, named, source, typed
from surgery.engine.why.nearest import NearMatch, absent_ops, candidates
from surgery.engine.why.tracing_graph import Declined, TracingGraph
from surgery.model import storage
from surgery.model.graph.state import Refused, Site
from surgery.model.graph.values import Node, Value
from surgery.model.patterns import compile_pattern
from surgery.model.storage.summary import operators
from surgery.model.targets import STANDARD, Target

if TYPE_CHECKING:
    import onnx

    from surgery.engine.recipe.schema import PassStep
    from surgery.engine.registry.passes import Pass

LIMIT = 10
_MOST_LINES = 3
_MOST_PLACES = 100
"""Maximum number of places listed for one reason."""


@dataclass(frozen=True)
class PatternLine:
    """One line of a pattern, and the node that it is matched to, if any; `fits` is whether the node fits."""

    text: str
    node: str
    fits: bool


@dataclass(frozen=True)
class Flaw:
    """A mismatch between a line of a pattern and a node."""

    line: str
    kind: str
    node: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return f"expected {self.expected}, found {self.actual}"


@dataclass(frozen=True)
class BoundValue:
    """A bound name of a pattern: the value, its type and dims, and its content or source."""

    name: str
    value: str
    type: str
    contents: str


@dataclass(frozen=True)
class NearMiss:
    """A place where a pass nearly fires.

    Either the pattern (`pattern` counts from 1) fits except for `flaws`, in the order in which the matcher meets them;
    or it fits completely, and `reason` is the reason of the refusal, `escapes` lists outside readers of inner values,
    `where` is the line of code that refused, `values` has the values in that line, and `unknown` lists requested facts
    that are unknown. `alike` has the anchors of similar places.
    """

    anchor: str
    op: str
    opset: int
    pattern: int
    matched: int
    lines: tuple[PatternLine, ...]
    flaws: tuple[Flaw, ...]
    reason: str
    escapes: tuple[str, ...]
    where: str
    values: str
    unknown: tuple[str, ...]
    bindings: tuple[BoundValue, ...]
    alike: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The missing part in one line."""
        if self.reason:
            values = [self.values] if self.values and not self.unknown else []
            detail = "; ".join([*self.escapes, *(f"not known: {what}" for what in self.unknown), *values])
            return f"'{self.anchor}': {self.reason}{f' ({detail})' if detail else ''}"
        if not self.flaws:
            return f"'{self.anchor}': {self.matched} of {len(self.lines)} lines fit"
        first = self.flaws[0]
        place = f", at '{first.node}'" if first.node != self.anchor else ""
        more = f" and {len(self.flaws) - 1} more" if len(self.flaws) > 1 else ""
        return f"'{self.anchor}': {first} in '{first.line}'{place}{more}"


@dataclass(frozen=True)
class RefusedNode:
    """A node at which a pass refused, with the types of its inputs and outputs."""

    anchor: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: str
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class Refusals:
    """The refusals for one reason; `places` lists the first ones."""

    reason: str
    where: str
    count: int
    places: tuple[RefusedNode, ...]


@dataclass(frozen=True)
class Silence:
    """Nodes that a pass visited and skipped without a reason; `where` is the deciding line of its code.

    `values` has the values in that line for the first node.
    """

    where: str
    values: str
    count: int
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Why(
    Record,
    keys="pass=name kind at sites near_misses near_misses_total refusals silent looked absent operators remark",
):
    """The explanation of one pass on one model.

    `kind` is "pattern", "graph", or the API that the pass is written in. `looked` has the operators that the pass
    requested, with the number of nodes; `absent` the operators that its patterns need and the model does not have.
    `near_misses` may be truncated to the first of `near_misses_total`. `operators` has the changed operator counts,
    before and after.
    """

    name: str
    kind: str
    at: str = ""
    sites: tuple[Site, ...] = ()
    near_misses: tuple[NearMiss, ...] = ()
    near_misses_total: int = 0
    refusals: tuple[Refusals, ...] = ()
    silent: tuple[Silence, ...] = ()
    looked: Mapping[str, int] | None = None
    absent: tuple[str, ...] = ()
    operators: Mapping[str, tuple[int, int]] | None = None
    remark: str = ""

    def __repr__(self) -> str:
        """Return a line for a prompt."""
        misses = f"{self.near_misses_total} near miss{'' if self.near_misses_total == 1 else 'es'}"
        return f"<Why of {self.name!r}: {counted(len(self.sites), 'site')}, {misses}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        rows = [(line,) for line in self.lines(40)] if not self.sites else []
        return view("listed")(repr(self)[1:-1], "info", (), ("Reason",), rows, "reasons")

    def lines(self, most: int) -> list[str]:
        """Return a few lines that explain why the pass has no more sites, nearest misses first."""
        lines = [f"near miss {miss.summary}{_and(miss.alike)}" for miss in self.near_misses]
        lines += [f"refused {one.count} times: {one.reason}{_first(one)}" for one in self.refusals]
        if not lines and self.absent:
            lines = [f"no pattern can match completely: the model has no {', no '.join(self.absent)}"]
        lines += [f"passed over {one.count} times without a reason: {one.where} ({one.values})" for one in self.silent]
        if not lines and self.looked is not None:
            lines = [f"the pass refused nothing; it looked at {_counts(self.looked)}"]
        return lines[:most] or [self.remark or "no part of the model resembles the pattern"]


_PACKER = Packer(Why, Site, NearMiss, PatternLine, Flaw, BoundValue, Refusals, RefusedNode, Silence)


def _and(anchors: Sequence[str]) -> str:
    return f"; and {len(anchors)} more like it" if anchors else ""


def _first(refusals: Refusals) -> str:
    anchor = refusals.places[0].anchor if refusals.places else ""
    return f", first at '{anchor}'" if anchor else ""


def _counts(looked: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {op or 'nodes'}" for op, count in looked.items()) or "no node"


def explain(
    declared: Pass,
    proto: onnx.ModelProto,
    weights: storage.Weights,
    options: Mapping[str, Any] | None = None,
    *,
    at: str | None = None,
    limit: int = LIMIT,
    contained: bool = True,
    timeout: float | None = None,
    memory: int | None = None,
    target: Target = STANDARD,
    said: Callable[[str], None] = lambda printed: None,
    excepted: Sequence[Any] = (),
) -> Why:
    """Explain a pass on a skeleton with its `weights`. The model is not changed.

    `said` receives what a pass prints in the fork. `at` selects a single node, by its name, an output, or its label. A
    non-standard pass runs in a fork, limited by `timeout` (seconds) and `memory` (bytes), unless `contained` is false.
    `excepted` has selectors of the nodes that its step leaves alone, as in recipes.
    """
    bound = declared.bind(options or {})
    if declared.is_standard or not contained:
        return _explain(declared, proto, weights, bound, at, limit, target, excepted)
    weights.open_scratch()

    def work() -> Any:
        return _PACKER.pack(_explain(declared, proto, weights, bound, at, limit, target, excepted))

    bytes_, stage = memory if memory is not None else default_memory(), f"pass '{declared.name}'"
    answer, printed = call_in_fork(work, stage=stage, timeout=timeout, memory=bytes_, home=declared.file)
    if printed:
        said(printed)
    found: Why = _PACKER.unpack(answer)
    return found


def why_so_few(
    step: PassStep, found: int, proto: onnx.ModelProto, weights: storage.Weights, target: Target = STANDARD
) -> Why | None:
    """Explain why a step has only `found` sites; None if it is not expected to have more."""
    wanted = step.expect.sites if step.expect is not None else None
    if wanted is None or wanted.holds(found) or (found >= wanted.number and wanted.op != ">"):
        return None
    with suppress(SurgeryError):
        return explain(step.find(), proto, weights, step.options, target=target, excepted=step.excepted)
    return None


def explained(text: str, why: Why | None) -> str:
    """Append the first lines of an explanation to a message."""
    return "\n".join([text, *(why.lines(_MOST_LINES) if why is not None else ())])


def _explain(
    declared: Pass,
    proto: onnx.ModelProto,
    weights: storage.Weights,
    options: Mapping[str, Any],
    at: str | None,
    limit: int,
    target: Target,
    excepted: Sequence[Any],
) -> Why:
    model = storage.ir_from_proto(storage.without_alias(proto), weights)
    graph = TracingGraph(model, _package(declared), weights=weights, target=target)
    graph.excepted = excepted_nodes(excepted, graph)
    node = None if at is None else _find(graph, at)
    graph.tracer.asked = node
    label = "" if node is None else node.label
    made = PassResult(None, (), (), live=True)
    # If the pass is blocked as a whole, the refusals have been recorded for each place.
    with suppress(BlockedError), nullcontext() if declared.match else graph.tracer.running():
        made = run_pass(declared, graph, options, contained=False)
    sites = tuple(site for site in made.sites if node is None or label in (site.anchor, *site.removed))
    why = Why(declared.name, declared.kind if declared.api == "Graph" else declared.api, label, sites)
    if declared.api != "Graph":
        return _of_other_api(why, proto, made)
    if declared.match:
        return _of_pattern(why, graph, declared, options, node, limit)
    return _of_graph(why, graph, node, limit)


def _package(declared: Pass) -> str:
    """Return the package of the code of a pass, including code shared with related passes."""
    if declared.is_standard:
        return "surgery.passes"
    return declared.module if declared.module.startswith("surgery.") else declared.module.partition(".")[0]


def _find(graph: TracingGraph, name: str) -> Node:
    """Return a node by its name, label or output; UsageError with a suggestion if there is none."""
    names: dict[str, Node] = {}
    for node in graph.nodes():
        for spoken in (node.name, node.label, *(value.name for value in node.outputs)):
            names.setdefault(spoken, node)
    graph.looked.clear()
    if not name or name not in names:
        raise UsageError(f"the model has no node '{name}'{suggestion(name, names)}", todo="name a node or its output")
    return names[name]


def _of_other_api(why: Why, before: onnx.ModelProto, made: PassResult) -> Why:
    """Explain a pass in another API: only the changes and the refusals of the bridge are known."""
    old, new = operators(before), operators(before if made.proto is None else made.proto)
    changed = {op: (old.get(op, 0), new.get(op, 0)) for op in sorted({*old, *new}) if old.get(op) != new.get(op)}
    refusals = _without_code(made.refusals, why.at)
    remark = f"a pass in the API {why.kind} does not give reasons for the nodes that it keeps; see its changes"
    return replace(why, refusals=refusals, operators=changed, remark="" if refusals else remark)


def _without_code(found: Iterable[Refused], at: str) -> tuple[Refusals, ...]:
    """Group refusals of which only the node and the reason are known; those of one node if `at` has its label."""
    groups: dict[str, list[RefusedNode]] = defaultdict(list)
    for refused in found:
        if at in ("", refused.anchor):
            groups[refused.reason].append(RefusedNode(refused.anchor, "", (), (), "", ()))
    return tuple(Refusals(text, "", len(all_), tuple(all_[:_MOST_PLACES])) for text, all_ in groups.items())


# Patterns


def _of_pattern(
    why: Why, graph: TracingGraph, declared: Pass, options: Mapping[str, Any], node: Node | None, limit: int
) -> Why:
    if node is not None and node.ir.graph is None:
        return why
    found = candidates(graph, declared, options, node)
    misses = _grouped([_near_miss(declared, one) for one in found])
    # The graph has been changed: operators that sites removed or that were refused were present before.
    fitted = bool(graph.sites or graph.refusals)
    absent = set() if fitted else min((absent_ops(graph, compile_pattern(text)) for text in declared.match), key=len)
    remark = ""
    if node is not None and not misses and not why.sites:
        remark = f"no part of the pattern matches at this {node.op}"
    return replace(
        why,
        near_misses=tuple(misses[:limit]),
        near_misses_total=len(misses),
        absent=tuple(sorted(absent)),
        remark=remark,
    )


def _near_miss(declared: Pass, found: NearMatch) -> NearMiss:
    texts = declared.match[found.pattern].splitlines()
    lines = [texts[pattern.line - 1].split("#")[0].strip() for pattern in found.plan.nodes]
    wrong = {fault.line for fault in found.faults}
    way = [found.plan.anchor, *(step.node for step in found.plan.steps)]
    declined = found.declined
    return NearMiss(
        anchor=found.anchor.label,
        op=found.anchor.op,
        opset=found.anchor.opset,
        pattern=found.pattern + 1,
        matched=found.matched,
        lines=tuple(
            PatternLine(
                text, named(found.nodes[index]) if index in found.nodes else "", index in found.nodes.keys() - wrong
            )
            for index, text in enumerate(lines)
        ),
        flaws=tuple(
            Flaw(lines[fault.line], fault.kind, fault.node.label, fault.expected, fault.actual)
            for fault in sorted(found.faults, key=lambda fault: way.index(fault.line))
        ),
        reason=found.reason,
        escapes=found.escapes,
        where=declined.where if declined is not None else "",
        values=declined.values if declined is not None else "",
        unknown=declined.unknown if declined is not None else (),
        bindings=tuple(_bound(found.bindings)) if found.reason else (),
    )


def _bound(bindings: Mapping[str, Any]) -> Iterator[BoundValue]:
    for name, item in bindings.items():
        for value in item if isinstance(item, list) else [item]:
            if isinstance(value, Value):
                held = contents(value) if value.is_constant else source(value)
                yield BoundValue(name, value.name, typed(value), held)
            elif not isinstance(item, list):
                yield BoundValue(name, "", "", "absent" if value is None else str(value))


def _grouped(misses: Sequence[NearMiss]) -> list[NearMiss]:
    """Merge near misses with the same flaws into one, with the anchors of the others."""
    groups: dict[object, list[NearMiss]] = defaultdict(list)
    for miss in misses:
        flaws = tuple((flaw.line, flaw.kind) for flaw in miss.flaws)
        groups[miss.pattern, tuple(line.fits for line in miss.lines), flaws, miss.reason].append(miss)
    return [replace(first, alike=tuple(other.anchor for other in others)) for first, *others in groups.values()]


# Whole graphs


def _of_graph(why: Why, graph: TracingGraph, node: Node | None, limit: int) -> Why:
    looked = dict(graph.looked)
    declined = [one for one in graph.declined if node is None or one.node == node]
    groups: dict[str, list[Declined]] = defaultdict(list)
    for one in declined:
        groups[one.reason].append(one)
    ranked = sorted(groups.items(), key=lambda item: -len(item[1]))[:limit]
    refusals = tuple(
        Refusals(reason, found[0].where, len(found), tuple(_place(one) for one in found[:_MOST_PLACES]))
        for reason, found in ranked
    )
    silent = tuple(_silent(graph, why.sites, node))
    # Rules of onnxscript decide in their own code, which is not traced, and leave only reasons.
    traced = {one.reason for one in graph.declined}
    refusals += _without_code((one for one in graph.refusals if one.reason not in traced), why.at)
    remark = "" if node is None or refusals or silent or why.sites else _unseen(looked, node)
    return replace(why, refusals=refusals, silent=silent[:limit], looked=looked, remark=remark)


def _silent(graph: TracingGraph, sites: Sequence[Site], at: Node | None) -> Iterator[Silence]:
    """Group the nodes with neither a site nor a refusal by the line of code that skipped them."""
    if any(not site.anchor for site in sites):
        return  # it changed the model as a whole
    lines = {one.node for one in graph.declined}
    changed = {site.anchor for site in sites}
    groups: dict[SkippingLine, list[str]] = defaultdict(list)
    for node, decision in graph.tracer.decisions.items():
        if node not in lines and node.ir.graph is not None and node.label not in changed and at in (None, node):
            groups[decision].append(node.label)
    for decision, labels in sorted(groups.items(), key=lambda item: -len(item[1])):
        yield Silence(decision.where, decision.values, len(labels), tuple(labels[:_MOST_PLACES]))


def _place(declined: Declined) -> RefusedNode:
    node = declined.node
    if node is None:
        return RefusedNode("", "", (), (), declined.values, declined.unknown)
    return RefusedNode(node.label, node.op, declined.inputs, declined.outputs, declined.values, declined.unknown)


def _unseen(looked: Mapping[str, int], node: Node) -> str:
    if node.op in looked or "" in looked:
        return f"the pass looks at nodes of this operator, but gives no reason for this {node.op}"
    asked = ", ".join(looked) or "none"
    return f"the pass does not look at this {node.op}; the operators that it looks at: {asked}"
