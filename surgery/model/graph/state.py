"""The state of a model while passes work on it, and the records of the running pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import onnx_ir as ir

from surgery.base.operators.schemas import schema_of
from surgery.model.graph.rename import rename_values
from surgery.model.graph.signature_mappings import SignatureMapping
from surgery.model.shapes.facts import NO_DOUBTS, Doubts
from surgery.model.shapes.table import ShapeTable
from surgery.model.storage import Weights, residue_of, spill_tensor
from surgery.model.storage.ir_scopes import scopes, values
from surgery.model.targets import STANDARD, Target

Feed = Mapping[str, Any]
T = TypeVar("T")

SCRATCH_FROM = 1 << 16
"""New tensors of at least this many bytes are moved out of memory."""


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
    """A place that a pass examined and refused."""

    anchor: str
    reason: str


@dataclass(frozen=True)
class Defect:
    """A node at which a standard pass raised an exception, and which it left as it was; `error` describes it.

    `anchor` is the label of the node, or empty if the whole pass is lost.
    """

    anchor: str
    error: str

    def __str__(self) -> str:
        return f"{self.error} at '{self.anchor}', which stays as it is" if self.anchor else self.error


@dataclass(frozen=True)
class WorkerLimits:
    """Limits for native code that a pass runs in a worker: seconds and bytes of memory; None for no limit."""

    timeout: float | None = 300.0
    memory: int | None = None


class CalibrationSource(Protocol):
    """The source of the calibration inputs of passes."""

    def feeds(self) -> Sequence[Feed]:
        """Return the input sets, as arrays by name; raise `UsageError` if there are none."""

    @property
    def is_drawn(self) -> bool:
        """Whether the inputs are drawn, because the user gave none."""


class GraphState:
    """A model while passes work on it: the main graph, its subgraphs and the bodies of functions.

    `skip` has the numbers of sites that must not be applied. `renamed` maps names of inputs and outputs before the pass
    to their current names, and `accounts` has the relations to the previous model that the pass declared.

    `reserved` names are never given to new values or nodes: a name of the original keeps its meaning in all later
    models. `calibration` has inputs to run the model on, and `memory` has results that passes computed for the
    committed model.

    If `is_lenient`, an exception at a site costs that site only, and is one of the `defects`. `at` is the node that a
    pass is working on, and `spared` are the labels of nodes that it must leave as they are. `excepted` are the nodes
    that the step leaves alone, with those of their subgraphs, each with the reason: sites that touch them are refused.
    `unmeasured` are the results of those of them that cannot be computed, or that nothing depends on that can be.
    `libraries` have custom operators.
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
        doubts: Doubts = NO_DOUBTS,
    ) -> None:
        self.reserved = reserved
        self.target = target
        """The runtime that the model is made for, which limits what passes may produce."""
        self.ir: ir.Model = model
        """The underlying onnx-ir model."""
        self.weights = weights
        self.limits = WorkerLimits()
        self.calibration: CalibrationSource | None = None
        self.memory: dict[Hashable, Any] = {}
        self.is_lenient = False
        self.spared: frozenset[str] = frozenset()
        self.excepted: Mapping[ir.Node, str] = {}
        self.unmeasured: Collection[str] = ()
        self.libraries: tuple[Path, ...] = ()
        self.keeps_empty = False  # whether nodes that take no empty batch are refused
        self.facts: ShapeTable = ShapeTable(model, doubts)
        """The inferred types, dims and elements of values; `Value.shape` and others read them."""
        self.begin(pass_name, skip)
        self.refresh()

    def begin(self, pass_name: str, skip: frozenset[int] = frozenset()) -> None:
        """Start the records of another pass.

        The names that it assigns depend only on the model, not on names that earlier passes assigned and dropped.
        """
        self._names: set[str] | None = None
        self._suffixes: dict[str, int] = {}
        self.pass_name = pass_name
        self.skip = skip
        self.sites: list[Site] = []
        """What the running pass applied."""
        self.refusals: list[Refused] = []
        """What the running pass examined and refused."""
        self.defects: list[Defect] = []
        self.remarks: list[str] = []
        """What the report says about the running pass, one line each."""
        self.at: ir.Node | None = None
        self.renamed: dict[str, str] = {}
        self.accounts: list[SignatureMapping] = []
        self.changed_nodes: list[ir.Node] = []
        """The nodes that the running pass added or changed."""

    def refresh(self) -> None:
        """Rebuild the caches after the model was edited through `ir`."""
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
        """Index the nodes by operator, in graph order."""
        self.index = defaultdict(dict)
        for scope in self.scopes:
            for node in scope:
                self.index[node.domain, node.op_type][node] = None

    def settle_order(self) -> None:
        """Sort the index of nodes, and the readers of values, by graph order.

        The result of passes then depends only on the model, and not on the edits that produced it.
        """
        self.list_nodes()
        rank = {node: number for number, node in enumerate(node for scope in self.scopes for node in scope)}
        read = {value for node in rank for value in node.inputs if value is not None}
        for value in read:
            if len(value._uses) > 1:
                value._uses = dict.fromkeys(sorted(value._uses, key=lambda use: (rank.get(use.node, -1), use.idx)))

    def take_in(self, function: ir.Function) -> None:
        """Register a new model-local function."""
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
        """The opset version of the default domain; 0 if it is not imported."""
        return self.ir.opset_imports.get("", 0)

    def opset_of(self, node: ir.Node) -> int:
        """Return the opset version of the domain of a node; 0 if it is not imported."""
        return self.imports_of(node).get(node.domain, 0)

    def imports_of(self, node: ir.Node) -> Mapping[str, int]:
        """Return the opset imports that apply to a node: those of the model, or of its function."""
        graph = node.graph
        return self.ir.opset_imports if graph is None else self._opsets.get(graph, self.ir.opset_imports)

    def declared_attributes(self, node: ir.Node, op: str) -> Mapping[str, ir.AttributeType] | None:
        """Return the types of the attributes of an operator or function in place of that of a node; None if unknown.

        Attributes of functions without a default have no type of their own: UNDEFINED.
        """
        domain, _, name = op.rpartition("::")
        function = self.ir.functions.get((domain, name, ""))
        if function is not None:
            return {name: attribute.type for name, attribute in function.attributes.items()}
        schema = schema_of(domain, name, self.imports_of(node).get(domain, 1))
        if schema is None:
            return None
        kinds = {name: str(attribute.type).rpartition(".")[2] for name, attribute in schema.attributes.items()}
        return {name: ir.AttributeType[kind] for name, kind in kinds.items()}

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
        """The main graph, subgraphs at any depth, and function bodies."""
        if self._nested:
            return list(scopes(self.ir))
        # Searching for subgraphs would visit every node.
        return [self.ir.graph, *(function.graph for function in self.ir.functions.values())]

    def fresh(self, wish: str) -> str:
        """Return a name based on `wish` that no value or node of the model has, and that is not reserved."""
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
        """Discard the cache of names that are in use."""
        self._names = None

    def rename_values(self, names: Mapping[ir.Value, str]) -> None:
        """Rename values, and record the names of inputs and outputs of the model before the pass."""
        main = self.ir.graph
        first = {now: before for before, now in self.renamed.items()}
        ports = {value.name or "": names[value] for value in (*main.inputs, *main.outputs) if value in names}
        rename_values(self.ir, names)
        self.forget_names()
        kept = {before: now for before, now in self.renamed.items() if now not in ports}
        self.renamed = kept | {first.get(old, old): now for old, now in ports.items()}

    def enter(self, subgraph: ir.Graph, around: ir.Graph) -> None:
        """Register a new subgraph of a node in the scope `around`."""
        self._nested = True
        if around in self._opsets:
            self._opsets[subgraph] = self._opsets[around]
        if around in self.function_scopes:
            self.function_scopes.add(subgraph)

    def keeps_lists(self, scope: ir.Graph) -> bool:
        """Return whether the file has the value declarations in an order of its own."""
        residue = residue_of(self._owners().get(scope, scope))
        return residue is not None and residue.has_order

    def _owners(self) -> dict[ir.Graph, ir.Function]:
        return {function.graph: function for function in self.ir.functions.values()}

    def arrange(self, orders: Sequence[tuple[ir.Graph, Sequence[ir.Node], Sequence[ir.Value]]]) -> None:
        """Reorder nodes and initializers of graphs, see `Builder.arrange`."""
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
        """Replace the model by another one, made from it by other means."""
        self.ir = model
        self.facts = ShapeTable(model, self.facts.doubts)
        self.refresh()

    def store(self, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        """Move a large new tensor from memory to the scratch file of the model, if there is one; return the tensor."""
        return tensor if self.weights is None else spill_tensor(tensor, self.weights, SCRATCH_FROM)

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result cached under this key for the committed model, or compute it now.

        The cache persists when the pass is run again with other sites skipped. Large tensors, also within a tuple, are
        moved out of memory.
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
