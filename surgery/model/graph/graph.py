"""Graph: the editing surface that passes see. Only this module and `surgery.model.graph.commit` change a graph.

It handles the details that passes should not care about: fresh names, graph outputs and their names, values captured by
subgraphs, overridable initializers, removal of dead nodes, and the lineage of new nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import onnx_ir as ir

from surgery.base.errors import PassError, SurgeryError, UsageError, internal, machine_failure
from surgery.model.graph import traversal
from surgery.model.graph.builder import Builder
from surgery.model.graph.calibration_recording import Recording, record, record_bodies
from surgery.model.graph.commit import Commit, discard
from surgery.model.graph.equal_tensors import equal_tensors
from surgery.model.graph.excepted_edits import touched
from surgery.model.graph.function_bodies import body_model
from surgery.model.graph.inner_tensors import find_inner, way_to
from surgery.model.graph.rename import dim_names
from surgery.model.graph.state import Defect, GraphState, Refused, Site
from surgery.model.graph.traversal import reads
from surgery.model.graph.values import Node, Refusal, Value
from surgery.model.storage.ir_scopes import scopes, subgraphs, values
from surgery.model.wire.globs import Globs, did_you_mean

if TYPE_CHECKING:
    import networkx

    from surgery.model.checkpoints.checkpoints import Checkpoint

EXCEPTED = "it touches a node that 'except' leaves alone: '"
"""The beginning of the reason of a refusal, followed by the node."""

_RAISED = "the pass raised an exception here"


class Selector(Protocol):
    """A selector of nodes, such as a `NodeSelector`."""

    def nodes(self, graph: Graph) -> list[Node]:
        """List the selected nodes."""


class Graph(GraphState):
    """A model while passes work on it: the main graph, its subgraphs and the bodies of functions.

    Passes read it through the views `Node` and `Value`, and change it in sites.
    """

    # Reading

    def nodes(self, *ops: str) -> list[Node]:
        """List the nodes of these operators ("Relu", "com.microsoft::Gelu"), or all nodes if none is given.

        The list is made at the time of the call. Iteration skips nodes that were removed since.
        """
        if not ops:
            return _Nodes(self, (Node(self, node) for scope in self.scopes for node in scope))
        found: list[Node] = []
        for op in ops:
            domain, _, op_type = op.rpartition("::")
            found.extend(Node(self, node) for node in self.index.get((domain, op_type), ()))
        return _Nodes(self, found)

    def main_nodes(self) -> list[Node]:
        """List the nodes of the main graph in order."""
        return _Nodes(self, (Node(self, node) for node in self.main))

    def select(self, selector: Selector, /) -> list[Node]:
        """List the nodes that an option of the type `NodeSelector` selects; raise UsageError if there are none.

        As with `nodes`, iteration skips nodes that were removed since.
        """
        return _Nodes(self, selector.nodes(self))

    def tensors(
        self, names: Sequence[str], *, among: Sequence[Value] | None = None, kind: str = "tensor of the main graph"
    ) -> list[Value]:
        """Find tensors of the main graph by names or globs, in that order; raise UsageError for one without a match.

        `among` limits the search to these values, and `kind` is their name in messages: "output of the model".
        """
        known = {value.name: value for value in (self.values() if among is None else among) if value.name}
        found: dict[Value, None] = {}
        for name in names:
            globs = Globs((name,))
            fitting = [known[name]] if name in known else [value for key, value in known.items() if globs.fit(key)]
            if not fitting:
                raise self._no_tensor(name, known, kind, inner=among is None)
            found.update(dict.fromkeys(fitting))
        return list(found)

    def _no_tensor(self, name: str, known: Iterable[str], kind: str, *, inner: bool) -> UsageError:
        if inner and (found := find_inner(self, name)) is not None:
            where, todo = way_to(self, found, self.holders())
            return UsageError(f"'{found.name}' is not a {kind}, but {where}", todo=todo or None)
        there = any(value.name == name for value in values(self.scopes))
        what = (
            f"'{name}' is not {'an' if kind[0] in 'aeiou' else 'a'} {kind}" if there else f"there is no tensor '{name}'"
        )
        return UsageError(what, todo=did_you_mean(name, known) or None)

    def values(self) -> list[Value]:
        """List the values of the main graph: inputs, initializers and outputs of nodes."""
        return [Value(self, value) for value in values([self.ir.graph])]

    def dim_names(self) -> list[str]:
        """List the names of all declared dims, including those within expressions such as `2*n`."""
        return list(dim_names(self.ir))

    def reads(self, node: Node) -> list[Value]:
        """List the values of a node's own scope that the node or its subgraphs read, each once."""
        found = dict.fromkeys(reads(node.ir))
        return [Value(self, value) for value in found if value.graph is node.ir.graph]

    def above(self, ends: Iterable[Value], stop: Iterable[Value] = ()) -> list[Node]:
        """List the nodes of the main graph upstream of values, without going beyond the values in `stop`."""
        found = traversal.above(self.ir.graph, [value.ir for value in ends], {value.ir for value in stop})
        return [Node(self, node) for node in self.ir.graph if node in found]

    def below(self, starts: Iterable[Value], stop: Iterable[Value] = ()) -> list[Node]:
        """List the nodes of the main graph downstream of values, without going beyond the values in `stop`."""
        found = traversal.below(self.ir.graph, [value.ir for value in starts], {value.ir for value in stop})
        return [Node(self, node) for node in self.ir.graph if node in found]

    def holders(self) -> dict[ir.Graph, Node]:
        """Return the node of each subgraph; the scope of that node is the enclosing scope."""
        if not self._nested:
            return {}
        return {inner: Node(self, node) for scope in self.scopes for node in scope for inner in subgraphs(node)}

    def inputs(self) -> list[Value]:
        """List the inputs of the model, without initializers that had to be listed as inputs before IR version 4."""
        values = [Value(self, value) for value in self.ir.graph.inputs]
        return [value for value in values if not value.is_constant]

    def outputs(self) -> list[Value]:
        """List the outputs of the model."""
        return [Value(self, value) for value in self.ir.graph.outputs]

    def constants(self) -> list[Value]:
        """List the non-overridable initializers of all scopes."""
        found = (Value(self, value) for scope in self.scopes for value in scope.initializers.values())
        return [value for value in found if not value.is_overridable]

    def equal_tensors(self, values: Iterable[Value]) -> list[list[Value]]:
        """Group initializers with the same tensor; weights are read only up to their first difference."""
        return equal_tensors(values, self.weights)

    def contradicted(self) -> dict[Value, list[int | str | None]]:
        """Return the values whose declared shapes are wrong, with the dims that inference knows; None is unknown."""
        from surgery.model.shapes.inference import Inference

        return {Value(self, value): dims for value, dims in Inference(self.ir).contradictions().items()}

    def in_function(self, node: Node) -> bool:
        """Return whether a node is in the body of a model-local function."""
        return node.scope in self.function_scopes

    def body_of(self, calls: Sequence[Node]) -> Graph:
        """Return a copy of the body of the function that nodes call, as a separate model with the types of the calls.

        Raises `Refusal` if these differ or are unknown. `Builder.define_body` is the inverse.
        """
        body = Graph(body_model(self, calls), weights=self.weights, pass_name=self.pass_name)
        body.limits = self.limits
        return body

    def uncalled(self) -> list[ir.Function]:
        """List the model-local functions that are unreachable from the main graph."""
        functions = self.ir.functions
        called: set[Any] = set()
        bodies: list[ir.Graph | ir.Function] = [self.ir.graph]
        while bodies:
            calls = {node.op_identifier() for node in bodies.pop().all_nodes()} & functions.keys()
            bodies += [functions[identifier] for identifier in calls - called]
            called |= calls
        return [function for identifier, function in functions.items() if identifier not in called]

    def to_networkx(self) -> networkx.MultiDiGraph[Any]:
        """Return the nodes of the main graph as a networkx multigraph, with value names on the edges."""
        import networkx

        result: networkx.MultiDiGraph[Any] = networkx.MultiDiGraph()
        for node in self.ir.graph:
            result.add_node(node, op=node.op_type, domain=node.domain, name=node.name)
        for node in self.ir.graph:
            for value in reads(node):
                producer = value.producer()
                if producer is not None and producer.graph is self.ir.graph:
                    result.add_edge(producer, node, value=value.name)
        return result

    # Editing

    def read_tensors(self, path: Path) -> Checkpoint:
        """List the tensors of a file such as .safetensors without reading them; raise ModelFileError if damaged."""
        from surgery.model.checkpoints.checkpoints import read_checkpoint  # few passes read checkpoints

        assert self.weights is not None
        return read_checkpoint(path, self.weights)

    def recordings(self, values: Sequence[Value], magnitudes: Sequence[float] = ()) -> Iterator[Recording]:
        """Run the current model on the calibration inputs, and yield pairs of a value and an array.

        There is one pair per value and input set; as many values are recorded together as fit in memory. Values that
        are not tensors, and inputs missing from an input set, are left out. Where the inputs are drawn, the set with
        the most elements follows again for each of the `magnitudes`, with its float inputs scaled so that this is the
        largest of each. Raises `UsageError` if there are no calibration inputs or a value is not in the main graph, and
        `WorkerError` if the model does not run.
        """
        return record(self, values, self.calibration, magnitudes)

    @property
    def is_calibration_drawn(self) -> bool:
        """Whether the calibration inputs are drawn: inputs of use may exceed the ranges that are measured on them."""
        return self.calibration is not None and self.calibration.is_drawn

    def body_ranges(
        self, values: Sequence[Value], magnitudes: Sequence[float] = ()
    ) -> dict[Value, tuple[float, float, float]]:
        """Return the largest magnitude of the elements of float32 values in bodies, and the smallest nonzero one.

        The third number is the smallest over the input sets of the largest magnitude, if it is not 0. The model runs
        unchanged on the calibration inputs; infinities and NaN do not count. Values of the main graph, of functions,
        and of branches or loops that are never run with elements are left out or have (0, inf, inf). Values of the same
        name in several bodies are measured together. `magnitudes` and errors are those of `recordings`.
        """
        return record_bodies(self, values, self.calibration, magnitudes)

    @contextmanager
    def site(self, anchor: Node | None = None) -> Iterator[Builder]:
        """Open a site: one application of the pass, applied atomically when the block ends.

        A refusal inside the block (by `require`, or because the engine cannot keep a boundary) ends the block silently
        and is recorded with its reason; so does any other exception of a standard pass, which is recorded as a defect.
        New nodes are inserted before `anchor`.
        """
        builder = Builder(self, anchor)
        try:
            with self._sparing(anchor):
                yield builder
            if anchor is not None and anchor.ir.graph is None:
                raise Refusal("the node was removed by an earlier site")
            self._commit(builder)
        except Refusal as refusal:
            if not builder.is_idle:
                discard(builder.edits)
            self.refusals.append(Refused(_label(anchor), refusal.reason))

    @contextmanager
    def _sparing(self, anchor: Node | None) -> Iterator[None]:
        """Turn an exception in the block of a site into a refusal, and record a defect, if the graph is lenient."""
        try:
            yield
        except Exception as error:
            other = isinstance(error, SurgeryError) and not isinstance(error, PassError)
            if other or isinstance(error, Refusal) or not self.is_lenient or machine_failure(error) is not None:
                raise
            self.defects.append(Defect(_label(anchor), internal(error)))
            raise Refusal(_RAISED) from error

    @contextmanager
    def follow_up(self, anchor: Node | None = None) -> Iterator[Builder]:
        """Open an edit that cleans up after earlier sites and is not a site itself: it has no number, is never skipped.

        It must be valid whichever sites were skipped, and keep results bit-identical. Example: removing two adjacent
        Casts that sites left and that cancel each other. A refusal inside ends it silently. It is not applied if no
        site was.
        """
        builder = Builder(self, anchor)
        applied = any(not site.skipped for site in self.sites)
        try:
            with self._sparing(anchor):
                yield builder
            if applied and not builder.is_idle and (anchor is None or anchor.ir.graph is not None):
                self._require_not_excepted(builder)
                Commit(self, builder.edits).run()
            else:
                discard(builder.edits)
        except Refusal:
            discard(builder.edits)

    def replace(self, old: Value, new: Value, /) -> None:
        """Redirect all consumers of `old` to `new`, as a separate site; refused at a boundary, with the reason."""
        with self.site(old.producer) as edit:
            edit.replace(old, new)

    def remove(self, node: Node, /) -> None:
        """Remove a node without consumers, as a separate site."""
        with self.site(node) as edit:
            edit.remove(node)

    def finish(self, *, whole: bool = False) -> None:
        """End the pass: restore topological order where an edit broke it, and import the domains of new nodes.

        With `whole`, scopes without recorded changes are also checked: the pass may have edited them through `ir`.
        """
        changed = {node.graph: None for node in self.changed_nodes if node.graph is not None}
        for scope in scopes(self.ir) if whole else changed:
            if not _in_order(scope):
                try:
                    scope.sort()
                except ValueError as error:
                    raise PassError(f"pass '{self.pass_name}' created a cycle: {self._ring(scope)}") from error
        for node in self.changed_nodes:
            imports = self.ir.opset_imports if node.graph is None else self._opsets.get(node.graph)
            if node.domain and isinstance(imports, dict):
                imports.setdefault(node.domain, 1)
                self.ir.opset_imports.setdefault(node.domain, 1)

    def sort(self) -> str | None:
        """Bring the nodes of each scope into topological order, which not every file has; list a ring if there is one.

        Inference goes through nodes in order, so that it learns little of a value that is read before it is made.
        """
        for scope in self.scopes:
            if not _in_order(scope):
                try:
                    scope.sort()
                except ValueError:
                    return self._ring(scope)
        return None

    def _ring(self, scope: ir.Graph) -> str:
        return ", ".join(Node(self, node).label for node in _cycle(scope))

    def _commit(self, builder: Builder) -> None:
        if builder.is_idle:
            return
        edits, anchor = builder.edits, builder.anchor
        number = len(self.sites) + 1
        label = _label(anchor)
        if label in self.spared:
            raise Refusal(_RAISED)
        self._require_not_excepted(builder)
        self.at = None if anchor is None else anchor.ir
        if number in self.skip:
            self.sites.append(Site(number, label, (), (), skipped=True))
            discard(edits)
            return
        removed, added = Commit(self, edits).run()
        self.sites.append(Site(number, label, tuple(removed), tuple(node.name or "" for node in added)))

    def _require_not_excepted(self, builder: Builder) -> None:
        """Refuse a site that touches a node that the step leaves alone."""
        if self.excepted:
            anchor = None if builder.anchor is None else builder.anchor.ir
            found = touched(self.excepted, builder.edits, anchor)
            if found is not None:
                raise Refusal(f"{self.excepted[found]}{Node(self, found).label}'")


class _Nodes(list[Node]):
    """A list of nodes that may be removed during iteration, without those that a pass must leave as they are."""

    def __init__(self, graph: Graph, nodes: Iterable[Node]) -> None:
        spared = graph.spared
        super().__init__((node for node in nodes if node.label not in spared) if spared else nodes)
        self._graph = graph

    def __iter__(self) -> Iterator[Node]:
        """Yield the nodes, each of which is then the one that the pass is working on."""
        graph, outer = self._graph, self._graph.at
        for node in super().__iter__():
            if node.ir.graph is not None:
                graph.at = node.ir
                yield node
        graph.at = outer


def _label(anchor: Node | None) -> str:
    return anchor.label if anchor is not None else ""


def _in_order(scope: ir.Graph) -> bool:
    """Return whether each node comes after the producers of its inputs within the scope."""
    seen: set[ir.Node] = set()
    for node in scope:
        for value in reads(node):
            producer = value.producer()
            if producer is not None and producer not in seen and producer.graph is scope:
                return False
        seen.add(node)
    return True


def _cycle(scope: ir.Graph) -> list[ir.Node]:
    """Return the nodes of a cycle in a scope, beginning and ending with the same node; at most eight of them."""
    waiting = {node: {p for value in reads(node) if (p := value.producer()) and p.graph is scope} for node in scope}
    readers: dict[ir.Node, list[ir.Node]] = defaultdict(list)
    for node, producers in waiting.items():
        for producer in producers:
            readers[producer].append(node)
    ready = [node for node, producers in waiting.items() if not producers]
    while ready:
        done = ready.pop()
        del waiting[done]
        for reader in readers[done]:
            waiting[reader].discard(done)
            if not waiting[reader]:
                ready.append(reader)
    if not waiting:
        return []
    # Each remaining node waits for another remaining node, so following them ends in a cycle.
    path: dict[ir.Node, None] = {}
    node = next(iter(waiting))
    while node not in path:
        path[node] = None
        node = next(iter(waiting[node]))
    ring = [*list(path)[list(path).index(node) :], node][::-1]
    return ring if len(ring) <= 8 else [*ring[:4], *ring[-4:]]
