"""Graph: the editing surface that passes see. With `surgery.graph.commit` the only module that changes a graph.

It owns what no pass should have to think of: fresh names, graph outputs and their names, values captured by
subgraphs, initializers that a caller can override, sweeping of what became dead, the stamp on new nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import onnx_ir as ir

from surgery.errors import PassError, UsageError
from surgery.graph import traversal
from surgery.graph.builder import Builder
from surgery.graph.commit import Commit, discard
from surgery.graph.merge import Other, read
from surgery.graph.rename import dim_names, rename_values
from surgery.graph.signature_mappings import Account
from surgery.graph.traversal import reads
from surgery.graph.values import Node, Refusal, Value
from surgery.shapes.table import Facts
from surgery.storage import Checkpoint, Weights, read_checkpoint, residue_of, spill_tensor
from surgery.storage.globs import Globs, did_you_mean
from surgery.storage.scopes import scopes, subgraphs, values

if TYPE_CHECKING:
    import networkx

SCRATCH_FROM = 1 << 16
"""New tensors of at least this many bytes do not stay in memory."""


class Selector(Protocol):
    """What selects nodes, see `surgery.patterns.select`."""

    def nodes(self, graph: Graph) -> list[Node]:
        """List them."""


@dataclass(frozen=True)
class Site:
    """One application of a pass. `number` counts from 1 in the order of application."""

    number: int
    anchor: str
    removed: tuple[str, ...]
    added: tuple[str, ...]
    skipped: bool = False


@dataclass(frozen=True)
class Refused:
    """One place where a pass looked and declined."""

    anchor: str
    reason: str


@dataclass(frozen=True)
class Limits:
    """What native code may take that a pass runs in a worker: seconds, None for no limit, and bytes of memory."""

    timeout: float | None = 300.0
    memory: int | None = None


class Graph:
    """A model while passes work on it: the main graph, its subgraphs and the bodies of functions.

    `ir` is the `onnx_ir.Model` below. `sites` lists what was applied and `refusals` what was declined, both by
    the pass that runs; `skip` holds numbers of sites that must not be applied. `renamed` says what the pass calls
    inputs and outputs of the model now, and `accounts` what it says of how those follow from the model before.

    `reserved` names are given to nothing new: what a name stood for in the original, it stands for ever after.
    """

    def __init__(
        self,
        model: ir.Model,
        *,
        weights: Weights | None = None,
        pass_name: str = "",
        skip: frozenset[int] = frozenset(),
        reserved: frozenset[str] = frozenset(),
    ) -> None:
        self.reserved = reserved
        self.ir = model
        self.weights = weights
        self.limits = Limits()
        self.facts = Facts(model)
        self.begin(pass_name, skip)
        self.refresh()

    def begin(self, pass_name: str, skip: frozenset[int] = frozenset()) -> None:
        """Start the account of another pass."""
        self.pass_name = pass_name
        self.skip = skip
        self.sites: list[Site] = []
        self.refusals: list[Refused] = []
        self.renamed: dict[str, str] = {}
        self.accounts: list[Account] = []
        self.changed_nodes: list[ir.Node] = []

    def refresh(self) -> None:
        """Look at the model afresh, after it was edited through `ir`."""
        self.index: dict[tuple[str, str], dict[ir.Node, None]]
        self._opsets: dict[ir.Graph, Mapping[str, int]] = {}
        self.function_scopes: set[ir.Graph] = set()
        self._names: set[str] | None = None
        self._suffixes: dict[str, int] = {}
        self.old_labels: dict[ir.Node, str] = {}
        self.facts.forget()
        self._nested = False
        for function in self.ir.functions.values():
            self._own_opsets(function)
        for scope in scopes(self.ir):
            self._opsets.setdefault(scope, self.ir.opset_imports)
        self._nested = len(self._opsets) > 1 + len(self.ir.functions)
        self._list_nodes()

    def _list_nodes(self) -> None:
        """Note the nodes of each operator, in the order in which they stand."""
        self.index = defaultdict(dict)
        for scope in self.scopes:
            for node in scope:
                self.index[node.domain, node.op_type][node] = None

    def take_in(self, function: ir.Function) -> None:
        """Take note of a new model-local function."""
        self._own_opsets(function)
        for node in function.all_nodes():
            self.index[node.domain, node.op_type][node] = None

    def _own_opsets(self, function: ir.Function) -> None:
        for scope in (function.graph, *function.graph.subgraphs()):
            self._nested = self._nested or scope is not function.graph
            self._opsets[scope] = function.opset_imports
            self.function_scopes.add(scope)

    # Reading

    @property
    def opset(self) -> int:
        """The opset version of the default domain, 0 when it is not imported."""
        return self.ir.opset_imports.get("", 0)

    def opset_of(self, node: ir.Node) -> int:
        """Return the opset version that the operator of a node is taken from, 0 when it is not imported."""
        return self.imports_of(node).get(node.domain, 0)

    def imports_of(self, node: ir.Node) -> Mapping[str, int]:
        """Return the opset imports that hold for a node: those of the model, or of its function."""
        graph = node.graph
        return self.ir.opset_imports if graph is None else self._opsets.get(graph, self.ir.opset_imports)

    @property
    def scopes(self) -> list[ir.Graph]:
        """The main graph, subgraphs at any depth, function bodies."""
        if self._nested:
            return list(scopes(self.ir))
        # To look for subgraphs is to look at every node.
        return [self.ir.graph, *(function.graph for function in self.ir.functions.values())]

    def nodes(self, *ops: str) -> list[Node]:
        """List the nodes of these operators ("Relu", "com.microsoft::Gelu"), all nodes when none is named.

        The list is taken when called. Iterating over it leaves out the nodes that were removed since.
        """
        if not ops:
            return _Nodes(Node(self, node) for scope in self.scopes for node in scope)
        found = _Nodes()
        for op in ops:
            domain, _, op_type = op.rpartition("::")
            found.extend(Node(self, node) for node in self.index.get((domain, op_type), ()))
        return found

    def select(self, selector: Selector) -> list[Node]:
        """List the nodes that an option of the type `NodeSelector` selects; UsageError when there are none.

        As with `nodes`, iterating over the list leaves out what was removed since.
        """
        return _Nodes(selector.nodes(self))

    def tensors(
        self, names: Sequence[str], *, among: Sequence[Value] | None = None, kind: str = "tensor of the main graph"
    ) -> list[Value]:
        """Find tensors of the main graph by their names or globs, in that order; UsageError for one that finds none.

        `among` says which ones come into question, and `kind` what to call those: "output of the model".
        """
        known = {value.name: value for value in (self.values() if among is None else among) if value.name}
        found: dict[Value, None] = {}
        for name in names:
            globs = Globs((name,))
            fitting = [known[name]] if name in known else [value for key, value in known.items() if globs.fit(key)]
            if not fitting:
                raise self._no_tensor(name, known, kind)
            found.update(dict.fromkeys(fitting))
        return list(found)

    def _no_tensor(self, name: str, known: Iterable[str], kind: str) -> UsageError:
        there = any(value.name == name for value in values(self.scopes))
        what = f"'{name}' is no {kind}" if there else f"there is no tensor '{name}'"
        return UsageError(what, todo=did_you_mean(name, known) or None)

    def values(self) -> list[Value]:
        """List the values of the main graph: inputs, initializers, what nodes compute."""
        return [Value(self, value) for value in values([self.ir.graph])]

    def dim_names(self) -> list[str]:
        """List the names of dims that are declared anywhere, those within expressions such as `2*n` too."""
        return list(dim_names(self.ir))

    def reads(self, node: Node) -> list[Value]:
        """List the values of a node's own scope that it reads, each once; those that its subgraphs capture too."""
        found = dict.fromkeys(reads(node.ir))
        return [Value(self, value) for value in found if value.graph is node.ir.graph]

    def above(self, ends: Iterable[Value], stop: Iterable[Value] = ()) -> list[Node]:
        """List the nodes of the main graph that values are computed by, not looking beyond the values in `stop`."""
        found = traversal.above(self.ir.graph, [value.ir for value in ends], {value.ir for value in stop})
        return [Node(self, node) for node in self.ir.graph if node in found]

    def below(self, starts: Iterable[Value], stop: Iterable[Value] = ()) -> list[Node]:
        """List the nodes of the main graph that values have an influence on, not looking beyond those in `stop`."""
        found = traversal.below(self.ir.graph, [value.ir for value in starts], {value.ir for value in stop})
        return [Node(self, node) for node in self.ir.graph if node in found]

    def holders(self) -> dict[ir.Graph, Node]:
        """Return for each subgraph the node that holds it, whose scope is the one around it."""
        if not self._nested:
            return {}
        return {inner: Node(self, node) for scope in self.scopes for node in scope for inner in subgraphs(node)}

    def inputs(self) -> list[Value]:
        """List the inputs of the model. Before IR version 4 each initializer had to be listed; those are none."""
        values = [Value(self, value) for value in self.ir.graph.inputs]
        return [value for value in values if not value.is_constant]

    def outputs(self) -> list[Value]:
        """List the outputs of the model."""
        return [Value(self, value) for value in self.ir.graph.outputs]

    def constants(self) -> list[Value]:
        """List the initializers that no caller can override, of all scopes."""
        found = (Value(self, value) for scope in self.scopes for value in scope.initializers.values())
        return [value for value in found if not value.is_overridable]

    def in_function(self, node: Node) -> bool:
        """Tell whether a node stands in the body of a model-local function."""
        return node.scope in self.function_scopes

    def uncalled(self) -> list[ir.Function]:
        """List the model-local functions that no chain of calls from the main graph reaches."""
        functions = self.ir.functions
        called: set[Any] = set()
        bodies: list[ir.Graph | ir.Function] = [self.ir.graph]
        while bodies:
            calls = {node.op_identifier() for node in bodies.pop().all_nodes()} & functions.keys()
            bodies += [functions[identifier] for identifier in calls - called]
            called |= calls
        return [function for identifier, function in functions.items() if identifier not in called]

    def to_networkx(self) -> networkx.MultiDiGraph[Any]:
        """Give the nodes of the main graph as a networkx multigraph; an edge carries the value's name."""
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
        """List the tensors of a .safetensors or .npz file, unread; ModelFileError when it is damaged."""
        assert self.weights is not None
        return read_checkpoint(path, self.weights)

    def read_model(self, path: Path) -> Other:
        """Read another model, to be joined to this one by `Builder.join`; ModelFileError when it cannot be read."""
        assert self.weights is not None
        return read(path, self.weights)

    def store(self, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        """Move a large new tensor out of memory, into the scratch file of the model, if it has one."""
        return tensor if self.weights is None else spill_tensor(tensor, self.weights, SCRATCH_FROM)

    @contextmanager
    def site(self, anchor: Node | None = None) -> Iterator[Builder]:
        """Open a site: one application of the pass, applied whole when the block ends, or not at all.

        A refusal inside the block (by `require`, or because the engine cannot keep a boundary) ends the block
        quietly and is recorded with its reason. New nodes are put before `anchor`.
        """
        builder = Builder(self, anchor)
        try:
            yield builder
            if anchor is not None and anchor.ir.graph is None:
                raise Refusal("the node was removed by an earlier site")
            self._commit(builder)
        except Refusal as refusal:
            if not builder.is_idle:
                discard(builder.edits)
            self.refusals.append(Refused(anchor.label if anchor is not None else "", refusal.reason))

    def replace(self, old: Value, new: Value) -> None:
        """Let everything that reads `old` read `new`, as a site of its own; refused at a boundary, with the reason."""
        with self.site(old.producer) as edit:
            edit.replace(old, new)

    def remove(self, node: Node) -> None:
        """Remove a node that nothing reads, as a site of its own."""
        with self.site(node) as edit:
            edit.remove(node)

    def fresh(self, wish: str) -> str:
        """Return a name like `wish` that no value and no node of the model has, and that is not reserved."""
        names, name = self._taken(), wish
        while name in names or name in self.reserved:
            self._suffixes[wish] = self._suffixes.get(wish, 0) + 1
            name = f"{wish}_{self._suffixes[wish]}"
        names.add(name)
        return name

    def is_free(self, name: str) -> bool:
        """Tell whether no value and no node of the model has this name."""
        return name not in self._taken()

    def names(self) -> frozenset[str]:
        """Return the names of all values and nodes."""
        return frozenset(self._taken())

    def _taken(self) -> set[str]:
        if self._names is None:
            self._names = {value.name for value in values(self.scopes) if value.name}
            for scope in self.scopes:
                for node in scope:
                    self._names.update(use.name for use in node.inputs if use is not None and use.name)
                    if node.name:
                        self._names.add(node.name)
        return self._names

    def forget_names(self) -> None:
        """Look afresh which names are taken."""
        self._names = None

    def rename(self, names: Mapping[ir.Value, str]) -> None:
        """Call values otherwise, and note what inputs and outputs of the model were called before the pass."""
        main = self.ir.graph
        first = {now: before for before, now in self.renamed.items()}
        ports = {value.name or "": names[value] for value in (*main.inputs, *main.outputs) if value in names}
        rename_values(self.ir, names)
        self.forget_names()
        kept = {before: now for before, now in self.renamed.items() if now not in ports}
        self.renamed = kept | {first.get(old, old): now for old, now in ports.items()}

    def enter(self, subgraph: ir.Graph, around: ir.Graph) -> None:
        """Take note of a new subgraph of a node that stands in the scope `around`."""
        self._nested = True
        if around in self._opsets:
            self._opsets[subgraph] = self._opsets[around]
        if around in self.function_scopes:
            self.function_scopes.add(subgraph)

    def keeps_lists(self, scope: ir.Graph) -> bool:
        """Tell whether what is declared of values stands in an order of its own in the file."""
        residue = residue_of(self._owners().get(scope, scope))
        return residue is not None and residue.has_order

    def _owners(self) -> dict[ir.Graph, ir.Function]:
        return {function.graph: function for function in self.ir.functions.values()}

    def arrange(self, orders: Sequence[tuple[ir.Graph, Sequence[ir.Node], Sequence[ir.Value]]]) -> None:
        """Put nodes and initializers of graphs in order, see `Builder.arrange`."""
        owners = self._owners()
        for scope, nodes, initializers in orders:
            scope.extend(nodes)
            for value in initializers:
                held = scope.initializers.pop(value.name or "")
                scope.initializers[held.name or ""] = held
            residue = residue_of(owners.get(scope, scope))
            if residue is not None:
                residue.forget_order()
        self._list_nodes()

    def adopt(self, model: ir.Model) -> None:
        """Take another model in the place of this one, made from it by other means."""
        self.ir = model
        self.facts = Facts(model)
        self.refresh()

    def finish(self, *, whole: bool = False) -> None:
        """End the pass: restore topological order where an edit broke it, import the domains that new nodes use.

        With `whole`, scopes are looked at that no site changed: the pass may have edited them through `ir`.
        """
        changed = {node.graph: None for node in self.changed_nodes if node.graph is not None}
        for scope in scopes(self.ir) if whole else changed:
            if not _in_order(scope):
                try:
                    scope.sort()
                except ValueError as error:
                    raise PassError(f"pass '{self.pass_name}' made a cycle: {self._ring(scope)}") from error
        for node in self.changed_nodes:
            imports = self.ir.opset_imports if node.graph is None else self._opsets.get(node.graph)
            if node.domain and isinstance(imports, dict):
                imports.setdefault(node.domain, 1)
                self.ir.opset_imports.setdefault(node.domain, 1)

    def cycle(self) -> str | None:
        """Find nodes that read each other in a ring, and list them; None where there are none."""
        return next((ring for scope in self.scopes if not _in_order(scope) and (ring := self._ring(scope))), None)

    def _ring(self, scope: ir.Graph) -> str:
        return ", ".join(Node(self, node).label for node in _cycle(scope))

    def _commit(self, builder: Builder) -> None:
        if builder.is_idle:
            return
        edits, anchor = builder.edits, builder.anchor
        number = len(self.sites) + 1
        label = anchor.label if anchor is not None else ""
        if number in self.skip:
            self.sites.append(Site(number, label, (), (), skipped=True))
            discard(edits)
            return
        removed, added = Commit(self, edits).run()
        self.sites.append(Site(number, label, tuple(removed), tuple(node.name or "" for node in added)))


class _Nodes(list[Node]):
    """A list of nodes that can be edited away while it is walked."""

    def __iter__(self) -> Iterator[Node]:
        return (node for node in super().__iter__() if node.ir.graph is not None)


def _in_order(scope: ir.Graph) -> bool:
    """Tell whether each node stands behind the producers, within the scope, of what it reads."""
    seen: set[ir.Node] = set()
    for node in scope:
        for value in reads(node):
            producer = value.producer()
            if producer is not None and producer not in seen and producer.graph is scope:
                return False
        seen.add(node)
    return True


def _cycle(scope: ir.Graph) -> list[ir.Node]:
    """Find nodes of a scope that read each other in a ring, from one back to itself; at most eight of them."""
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
    # Each node that is left waits for another one that is left: going from one to the next ends in a ring.
    path: dict[ir.Node, None] = {}
    node = next(iter(waiting))
    while node not in path:
        path[node] = None
        node = next(iter(waiting[node]))
    ring = [*list(path)[list(path).index(node) :], node][::-1]
    return ring if len(ring) <= 8 else [*ring[:4], *ring[-4:]]
