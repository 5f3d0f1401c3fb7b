"""What can be done with a selection: every pass with a site in it, and for the others why not."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from surgery.base.errors import SurgeryError, UsageError
from surgery.base.json_record import Record
from surgery.base.promises import Parity
from surgery.engine.bridges.run_pass import run_pass
from surgery.engine.registry import everyday_words
from surgery.engine.registry.catalog import catalog
from surgery.engine.why import explain as explaining
from surgery.features.workbench.node_drafts import draft
from surgery.features.workbench.option_fields import OptionField, Selection, fields_of
from surgery.features.workbench.vicinity import Every, Vicinity
from surgery.model import storage
from surgery.model.graph.traversal import reads
from surgery.model.graph.values import Node, Value
from surgery.model.patterns.compiled_pattern import compile_pattern
from surgery.model.patterns.match import matches

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from surgery.engine.registry.passes import Pass
    from surgery.engine.why.explain import Why
    from surgery.model.targets import Target

_MOST_REASONS = 3
_SLOW = 0.02
"""Seconds after which a pass without nodes to look at must have gone through the whole model."""
_BY_HAND = "edit"
_TOOLS = "tools"
"""The theme of the passes that run a tool on the whole model, which takes too long to try."""


@dataclass(frozen=True)
class Offer(
    Record,
    keys="name about theme changes_results fields sites for_selection=is_for_selection missing why_not words step",
):
    """A pass that a selection may be given to, with its options as the fields of a form.

    `sites` counts the places where it would change the selection; None if only a run shows that, because it is
    calibrated or another tool, or if its form has to be filled in first. `why_not` has reasons if there are none, or
    why an edit cannot be made with what is filled in so far.
    """

    name: str
    about: str
    theme: str
    changes_results: bool
    fields: tuple[OptionField, ...]
    sites: int | None
    why_not: str = ""

    @property
    def is_for_selection(self) -> bool:
        """Whether its form is filled in from the selection."""
        return any(one.filled for one in self.fields)

    @property
    def missing(self) -> tuple[str, ...]:
        """The required options that are not filled in."""
        return tuple(one.name for one in self.fields if one.required and not one.filled)

    @property
    def step(self) -> Any:
        """The step of a recipe that it makes as it is."""
        options = {one.name: one.value for one in self.fields if one.filled}
        return {self.name: options} if options else self.name

    @property
    def rank(self) -> tuple[int, str]:
        """The sort key: passes with a site first, then those to fill in, then those without."""
        if self.sites:
            return (0, self.name)
        if self.sites is None and self.is_for_selection:
            return (1, self.name)
        return (2 if self.sites is None else 3, self.name)

    @property
    def words(self) -> Sequence[str]:
        """What people call its task."""
        return _words().get(self.name, ())


@cache
def _words() -> Mapping[str, Sequence[str]]:
    """Return what people call the task of each pass."""
    found = defaultdict[str, list[str]](list)
    for word, passes in everyday_words.EVERYDAY.items():
        for name in passes:
            found[name].append(word)
    return found


class Offers:
    """An index of one model, made once; each answer looks only around its selection."""

    def __init__(self, proto: onnx.ModelProto, weights: storage.Weights, target: Target) -> None:
        self._proto, self._weights, self._target = proto, weights, target
        model = storage.ir_from_proto(storage.without_alias(proto), weights)
        self._graph = Vicinity(model, weights=weights, target=target)
        self._values = {value.name: value.ir for value in self._graph.values()}
        self._passes = [one for one in catalog.passes().values() if one.is_standard]
        self._whole = dict[str, list[frozenset[Any]]]()
        self._find_unrestricted()

    def _find_unrestricted(self) -> None:
        """Run the passes that go through the whole model, whatever they are shown, once, and note their sites."""
        graph = self._graph
        graph.look_around(())
        slow = []
        for declared in self._passes:
            if _is_tried(declared, ()):
                started = time.perf_counter()
                self._run(declared, {})
                if graph.touched or time.perf_counter() - started > _SLOW:
                    slow.append(declared)
        graph.look_at_all()
        for declared in slow:
            self._run(declared, {})
            self._whole[declared.name] = graph.touched

    def of(self, names: Sequence[str]) -> list[Offer]:
        """List the offers for nodes and tensors, given by name. Raises UsageError for an unknown name."""
        nodes, tensors = self._named(names)
        selection = _selection(self._graph, nodes, tensors)
        ends = [node for value in tensors for node in (value.producer(), *value.consumers()) if node is not None]
        self._graph.look_around((*nodes, *ends))
        offers = [self._offer(one, selection, tried=bool(names)) for one in self._passes]
        return sorted(offers, key=lambda offer: offer.rank)

    def selected(self, names: Sequence[str]) -> tuple[list[Node], list[Value]]:
        """Return the nodes and the tensors that names stand for. Raises UsageError for an unknown name."""
        nodes, tensors = self._named(names)
        return [Node(self._graph, node) for node in nodes], [Value(self._graph, value) for value in tensors]

    def why(self, name: str, node: str, options: Mapping[str, Any]) -> Why:
        """Explain what a pass does, or why it does nothing, at a node."""
        declared = catalog.find(name)
        return explaining.explain(declared, self._proto, self._weights, options, at=node, target=self._target)

    def draft(self, names: Sequence[str], place: str) -> dict[str, Any]:
        """Return options of `insert-nodes` for nodes and tensors, given by name, to edit further."""
        nodes, tensors = self._named(names)
        return draft([Node(self._graph, node) for node in nodes], [value.name or "" for value in tensors], place)

    def _offer(self, declared: Pass, selection: Selection, *, tried: bool) -> Offer:
        fields = fields_of(declared, selection)
        promise = declared.promise({})
        made = Offer(
            declared.name,
            declared.summary,
            declared.theme,
            promise in (Parity.INTENDED, Parity.LOSSY),
            fields,
            None,
        )
        if not tried or made.missing or not _is_tried(declared, fields):
            return made
        sites, why_not = self._tried(declared, {one.name: one.value for one in fields if one.filled})
        if not sites and declared.theme == _BY_HAND:
            sites = None  # other options may do what these cannot
        return replace(made, sites=sites, why_not=why_not)

    def _tried(self, declared: Pass, options: Mapping[str, Any]) -> tuple[int | None, str]:
        """Return the number of sites of a pass in the selection, and the reasons if there are none."""
        graph, known = self._graph, self._whole.get(declared.name) if not options else None
        error = "" if known is not None else self._run(declared, options)
        if error is None:
            return None, ""
        found = sum(1 for nodes in (graph.touched if known is None else known) if nodes & graph.selected)
        if found or error or known is not None:
            return found, error
        return 0, "; ".join(list(dict.fromkeys(self._reasons(declared)))[:_MOST_REASONS])

    def _reasons(self, declared: Pass) -> Iterator[str]:
        """Yield why the pass that ran last refused the selection: at its nodes, or a match with one of them."""
        graph = self._graph
        plans = [compile_pattern(text) for text in declared.match]
        for refused in graph.refusals:
            node = graph.node_with(refused.anchor)
            if not refused.anchor or node in graph.selected:
                yield refused.reason
            elif node is not None and plans:
                anchor = Node(graph, node)
                found = (
                    match for plan in plans if anchor.op in plan.anchor_ops for match in matches(graph, plan, anchor)
                )
                if any(one.ir in graph.selected for match in found for one in match.nodes):
                    yield refused.reason

    def _run(self, declared: Pass, options: Mapping[str, Any]) -> str | None:
        """Run a pass, applying nothing; return why it cannot run, or None if it needs inputs to calibrate with."""
        try:
            run_pass(declared, self._graph, declared.bind(options), skip=Every())
        except SurgeryError as error:
            self._graph.touched.clear()
            return None if declared.parity is Parity.LOSSY and "calibrate" in str(error) else str(error)
        return ""

    def _named(self, names: Sequence[str]) -> tuple[list[ir.Node], list[ir.Value]]:
        """Return the nodes, and the tensors of the main graph, that names stand for."""
        nodes, tensors = dict[Any, None](), dict[Any, None]()
        for name in names:
            node = self._graph.node_with(name)
            if node is not None:
                nodes[node] = None
            elif name in self._values:
                tensors[self._values[name]] = None
            else:
                raise UsageError(f"the model has no node and no tensor '{name}'")
        return list(nodes), list(tensors)


def _is_tried(declared: Pass, fields: Sequence[OptionField]) -> bool:
    """Return whether a trial shows what a pass would do: an edit by hand needs the nodes that it edits."""
    if declared.api != "Graph" or declared.requires or declared.theme == _TOOLS:
        return False
    if any(one.required for one in declared.options) or declared.theme == _BY_HAND:
        return any(one.filled and one.type.startswith("node selector") for one in fields)
    return True


def _selection(graph: Vicinity, nodes: Sequence[ir.Node], tensors: Sequence[ir.Value]) -> Selection:
    made = [value for node in nodes for value in node.outputs]
    read = [value for node in nodes for value in reads(node)]
    flowing = [value for value in read if not value.is_initializer()]
    return Selection(
        nodes=tuple(Node(graph, node).label for node in nodes),
        tensors=_names_of(tensors or made),
        first=flowing[0].name or "" if flowing else "",
        weights=_names_of(value for value in (*tensors, *read) if value.is_initializer()),
        inputs={value.name or "": _dims(value) for value in tensors if value.is_graph_input()},
        outputs={value.name or "": _dims(value) for value in tensors if value.is_graph_output()},
        is_of_tensors=bool(tensors) and not nodes,
    )


def _names_of(values: Iterable[ir.Value]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value.name for value in values if value.name))


def _dims(value: ir.Value) -> list[int | str | None]:
    """Return the declared dims of a value, as recipes write them."""
    return [] if value.shape is None else [one if isinstance(one, int) else one.value for one in value.shape]
