"""Rows: all nodes that exist in any state of a history, and the edges between them, with their lifetimes.

A row that is `born` in one state and `died` in another exists from the first up to the second (exclusive); -1 stands
for the end. State 0 is the model as read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from surgery.interface.drawing.node_data import ConstantData, NodeData

PORT = "surgery.port"
"""The domain of the rows of inputs and outputs, whose operators are `INPUT` and `OUTPUT`."""

INPUT, OUTPUT = "Input", "Output"

_END = 1 << 30

Source = tuple[int, int]
"""The row that produces a value, and the index of the result."""


@dataclass(slots=True)
class TrackedNode:
    """A node over time. `versions` has its versions, each with the state from which on it applies.

    `maker` and `killer` are the steps that added and removed it, as far as known. `fate` describes what happened to it
    if it was removed and nothing was made from it.
    """

    scope: int
    born: int
    versions: list[tuple[int, NodeData]]
    died: int = -1
    maker: str = ""
    killer: str = ""
    fate: str = ""

    @property
    def node(self) -> NodeData:
        """The last version of the node."""
        return self.versions[-1][1]

    @property
    def first(self) -> NodeData:
        """The first version of the node."""
        return self.versions[0][1]

    def at(self, state: int) -> NodeData:
        """Return the version of the node in a state."""
        return next(node for since, node in reversed(self.versions) if since <= state)

    def become(self, node: NodeData, state: int) -> None:
        """Record a new version from a state on."""
        if self.versions[-1][0] == state:
            self.versions.pop()
        self.versions.append((state, node))

    @property
    def is_port(self) -> bool:
        """Whether the row is an input or an output."""
        return self.node.domain == PORT

    @property
    def last(self) -> int:
        """The last state in which it exists; a large number if it exists until the end."""
        return self.died - 1 if self.died != -1 else _END

    def alive(self, state: int) -> bool:
        """Return whether the row exists in a state."""
        return self.born <= state and (self.died == -1 or state < self.died)


@dataclass(slots=True)
class Edge:
    """A value that one row produces and another reads. `number` is the index of the result, `scope` its scope."""

    source: int
    target: int
    number: int
    value: str
    scope: int
    born: int
    died: int = -1


@dataclass(slots=True)
class Scope:
    """The main graph, the body of a function, or a subgraph of the node `owner`, which is in the scope `around`.

    `name` is the name of the function, or of the attribute with the subgraph.
    """

    name: str = ""
    around: int = -1
    owner: int = -1
    is_function: bool = False
    constants: dict[str, list[tuple[int, ConstantData]]] = field(default_factory=dict)
    """The constants that are read, by name: their versions, each with its first state."""

    def constant(self, name: str, state: int) -> ConstantData | None:
        """Return the version of a constant in a state; None if there is no such constant."""
        versions = self.constants.get(name, ())
        return next((one for since, one in reversed(versions) if since <= state), versions[0][1] if versions else None)


@dataclass(frozen=True, slots=True)
class ChangedNodes:
    """Rows affected by one change in a state: a site of a pass, or a change in a comparison of models."""

    state: int
    what: str
    by: str
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Alteration:
    """A change of a kept node: of its attributes, its name, or its inputs."""

    row: int
    state: int
    what: str


@dataclass(frozen=True, slots=True)
class ModelState:
    """One state: the model as read, or after a step. `step` is the number of the record of the step.

    `file` is the file that holds the model of this state, if there is one; `opsets` are its imports by domain.
    """

    label: str
    nodes: int
    by: str | None = None
    step: int | None = None
    sites: int | None = None
    verdict: str | None = None
    needed: float | None = None
    message: str = ""
    file: str | None = None
    ir_version: int = 0
    opsets: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class TrackedNodes:
    """The rows of all states. `links` lead from a removed row to a row made from it."""

    scopes: list[Scope] = field(default_factory=list)
    rows: list[TrackedNode] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    links: dict[tuple[int, int], None] = field(default_factory=dict)
    alterations: list[Alteration] = field(default_factory=list)
    changes: list[ChangedNodes] = field(default_factory=list)
    states: list[ModelState] = field(default_factory=list)

    def add(self, scope: int, node: NodeData, born: int, maker: str = "") -> int:
        """Add a row and return its number."""
        self.rows.append(TrackedNode(scope, born, [(born, node)], maker=maker))
        return len(self.rows) - 1
