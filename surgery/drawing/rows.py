"""Rows: every node that exists in any state of a history, and the edges between them, with their times.

A row that is `born` in one state and `died` in another exists in the states from the first up to the second; -1 stands
for the end. State 0 is the model as it was read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from surgery.drawing.nodes import Constant, Plain

PORT = "surgery.port"
"""The domain of the rows that stand for inputs and outputs, whose operators are `INPUT` and `OUTPUT`."""

INPUT, OUTPUT = "Input", "Output"

_END = 1 << 30

Source = tuple[int, int]
"""The row that makes a value, and which of its results it is."""


@dataclass(slots=True)
class Row:
    """A node over time. `versions` are what it was from which state on.

    `maker` and `killer` are the steps that made and removed it, as far as they are known. `fate` says what became of
    it, where it died and nothing was made of it.
    """

    scope: int
    born: int
    versions: list[tuple[int, Plain]]
    died: int = -1
    maker: str = ""
    killer: str = ""
    fate: str = ""

    @property
    def node(self) -> Plain:
        """What it was last."""
        return self.versions[-1][1]

    @property
    def first(self) -> Plain:
        """What it was at first."""
        return self.versions[0][1]

    def at(self, state: int) -> Plain:
        """Return what it was in a state."""
        return next(node for since, node in reversed(self.versions) if since <= state)

    def become(self, node: Plain, state: int) -> None:
        """Note that it is another one from a state on."""
        if self.versions[-1][0] == state:
            self.versions.pop()
        self.versions.append((state, node))

    @property
    def is_port(self) -> bool:
        """Whether it stands for an input or an output."""
        return self.node.domain == PORT

    @property
    def last(self) -> int:
        """A state that it exists in, as late as is known: a large number where it is not gone at the end."""
        return self.died - 1 if self.died != -1 else _END

    def alive(self, state: int) -> bool:
        """Return whether it exists in a state."""
        return self.born <= state and (self.died == -1 or state < self.died)


@dataclass(slots=True)
class Edge:
    """A value that one row makes and another reads. `number` says which result it is, `scope` where it is made."""

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

    `name` is that of the function, or of the attribute that holds the subgraph.
    """

    name: str = ""
    around: int = -1
    owner: int = -1
    is_function: bool = False
    constants: dict[str, list[tuple[int, Constant]]] = field(default_factory=dict)
    """The constants that are read, by name: what they hold from which state on."""

    def constant(self, name: str, state: int) -> Constant | None:
        """Return what a constant holds in a state; None where there is no such constant."""
        versions = self.constants.get(name, ())
        return next((one for since, one in reversed(versions) if since <= state), versions[0][1] if versions else None)


@dataclass(frozen=True, slots=True)
class Change:
    """Rows that one thing happened to in a state: a site of a pass, or one group of a comparison of models."""

    state: int
    what: str
    by: str
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Alteration:
    """What changed in a node that stays: its attributes, its name, or what it reads."""

    row: int
    state: int
    what: str


@dataclass(frozen=True, slots=True)
class State:
    """One state: the model as it was read, or as a step left it. `step` is the number of the record of the step."""

    label: str
    nodes: int
    by: str | None = None
    step: int | None = None
    sites: int | None = None
    verdict: str | None = None
    needed: float | None = None
    message: str = ""


@dataclass(slots=True)
class Rows:
    """All that is known of the states, row by row. `links` lead from a row that died to one that was made of it."""

    scopes: list[Scope] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    links: dict[tuple[int, int], None] = field(default_factory=dict)
    alterations: list[Alteration] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    states: list[State] = field(default_factory=list)

    def add(self, scope: int, node: Plain, born: int, maker: str = "") -> int:
        """Add a row; return its number."""
        self.rows.append(Row(scope, born, [(born, node)], maker=maker))
        return len(self.rows) - 1
