"""The state of a model while passes work on it, and the records of the running pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import onnx_ir as ir

from surgery.graph.rename import rename_values
from surgery.graph.signature_mappings import SignatureMapping
from surgery.shapes.table import ShapeTable
from surgery.storage import Weights, residue_of, spill_tensor
from surgery.storage.scopes import scopes, values
from surgery.targets import STANDARD, Target

Feed = Mapping[str, Any]
T = TypeVar("T")

SCRATCH_FROM = 1 << 16
"""New tensors of at least this many bytes do not stay in memory."""


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


class Calibration(Protocol):
    """Where the inputs come from that passes calibrate with."""

    def feeds(self) -> Sequence[Feed]:
        """Return the sets of inputs, as arrays by name; `UsageError` where there are none."""


class GraphState:
    """A model while passes work on it: the main graph, its subgraphs and the bodies of functions.

    `ir` is the `onnx_ir.Model` below. `sites` lists what was applied and `refusals` what was declined, both by
    the pass that runs; `skip` holds numbers of sites that must not be applied. `renamed` says what the pass calls
    inputs and outputs of the model now, and `accounts` what it says of how those follow from the model before.

    `reserved` names are given to nothing new: what a name stood for in the original, it stands forever after.
    `target` is the runtime that the model is made for, which passes ask what they may produce.
    `calibration` has inputs to run the model on, and `memory` what passes computed for the model as it was committed.
    """

    def __init__(
        self,
        model: ir.Model,
        *,
        weights: Weights | None = None,
        pass_name: str = "",
        skip: frozenset[int] = frozenset(),
        reserved: frozenset[str] = frozenset(),
        target: Target = STANDARD,
    ) -> None:
        self.reserved = reserved
        self.target = target
        self.ir = model
        self.weights = weights
        self.limits = Limits()
        self.calibration: Calibration | None = None
        self.memory: dict[Hashable, Any] = {}
        self.facts = ShapeTable(model)
        self.begin(pass_name, skip)
        self.refresh()

    def begin(self, pass_name: str, skip: frozenset[int] = frozenset()) -> None:
        """Start the account of another pass.

        The names that it gives follow from the model alone, not from those that passes before it gave and dropped.
        """
        self._names: set[str] | None = None
        self._suffixes: dict[str, int] = {}
        self.pass_name = pass_name
        self.skip = skip
        self.sites: list[Site] = []
        self.refusals: list[Refused] = []
        self.renamed: dict[str, str] = {}
        self.accounts: list[SignatureMapping] = []
        self.changed_nodes: list[ir.Node] = []

    def refresh(self) -> None:
        """Look at the model afresh, after it was edited through `ir`."""
        self.index: dict[tuple[str, str], dict[ir.Node, None]]
        self._opsets: dict[ir.Graph, Mapping[str, int]] = {}
        self.function_scopes: set[ir.Graph] = set()
        self._names = None
        self._suffixes = {}
        self.old_labels: dict[ir.Node, str] = {}
        self.facts.forget()
        self._nested = False
        for function in self.ir.functions.values():
            self._own_opsets(function)
        for scope in scopes(self.ir):
            self._opsets.setdefault(scope, self.ir.opset_imports)
        self._nested = len(self._opsets) > 1 + len(self.ir.functions)
        self.list_nodes()

    def list_nodes(self) -> None:
        """Note the nodes of each operator, in the order in which they stand."""
        self.index = defaultdict(dict)
        for scope in self.scopes:
            for node in scope:
                self.index[node.domain, node.op_type][node] = None

    def settle_order(self) -> None:
        """Have nodes, and the readers of values, found in the order in which the nodes stand.

        What passes then do follows from the model alone, and not from the edits that made it.
        """
        self.list_nodes()
        rank = {node: number for number, node in enumerate(node for scope in self.scopes for node in scope)}
        read = {value for node in rank for value in node.inputs if value is not None}
        for value in read:
            if len(value._uses) > 1:
                value._uses = dict.fromkeys(sorted(value._uses, key=lambda use: (rank.get(use.node, -1), use.idx)))

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
    def main(self) -> ir.Graph:
        """The main graph."""
        return self.ir.graph

    @property
    def metadata(self) -> MutableMapping[str, str]:
        """The metadata of the model."""
        return self.ir.metadata_props

    @property
    def functions(self) -> MutableMapping[ir.OperatorIdentifier, ir.Function]:
        """The model-local functions."""
        return self.ir.functions

    @property
    def scopes(self) -> list[ir.Graph]:
        """The main graph, subgraphs at any depth, function bodies."""
        if self._nested:
            return list(scopes(self.ir))
        # To look for subgraphs is to look at every node.
        return [self.ir.graph, *(function.graph for function in self.ir.functions.values())]

    def fresh(self, wish: str) -> str:
        """Return a name like `wish` that no value and no node of the model has, and that is not reserved."""
        names, name = self._taken(), wish
        while name in names or name in self.reserved:
            self._suffixes[wish] = self._suffixes.get(wish, 0) + 1
            name = f"{wish}_{self._suffixes[wish]}"
        names.add(name)
        return name

    def is_free(self, name: str) -> bool:
        """Return whether no value and no node of the model has this name."""
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
        """Rename values, and note what inputs and outputs of the model were called before the pass."""
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
        """Return whether what is declared of values is in an order of its own in the file."""
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
        self.list_nodes()

    def adopt(self, model: ir.Model) -> None:
        """Take another model in place of this one, made from it by other means."""
        self.ir = model
        self.facts = ShapeTable(model)
        self.refresh()

    def store(self, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        """Move a large new tensor out of memory, into the scratch file of the model, if it has one."""
        return tensor if self.weights is None else spill_tensor(tensor, self.weights, SCRATCH_FROM)

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what was made under this key for the committed model, or make it now.

        It is still known when the pass is run again with other sites skipped. Large tensors, in a tuple too, are moved
        out of memory.
        """
        key = self.pass_name, key
        if key not in self.memory:
            made: Any = make()
            stored = tuple(map(self._stored, made)) if type(made) is tuple else self._stored(made)
            self.memory[key] = stored
        found: T = self.memory[key]
        return found

    def _stored(self, made: Any) -> Any:
        return self.store(made) if isinstance(made, ir.TensorProtocol) else made
