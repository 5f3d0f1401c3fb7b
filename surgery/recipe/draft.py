"""A recipe between reading and checking: what was read, and what only the registry of passes can judge."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.recipe.nodes import Node, Scalar
from surgery.recipe.reader import Reader
from surgery.recipe.schema import Recipe

if TYPE_CHECKING:
    from surgery.registry.declare import Pass


@dataclass(frozen=True)
class PassUse:
    """A step that names a pass: the nodes of the step, of the name and of each option, for messages."""

    path: str
    name: str
    options: dict[str, Any]
    step: Node
    at: Node
    keys: dict[str, Node]


@dataclass(frozen=True)
class PluginUse:
    """A plugin that a recipe names: as written, the file or module to import, and what is done with it."""

    path: str
    text: str
    target: str
    at: Node
    verb: str = "run"


@dataclass(frozen=True)
class RuleUse:
    """A rule of the recipe: its name, the node of it, and the pass that it makes unless something is wrong."""

    name: str
    key: Scalar
    made: Pass | None


class Draft(Reader):
    """One file being read, and the drafts of the recipes that it uses; `recipe` is None if something is wrong.

    `local` holds code that is no plugin: a generator of inputs, libraries of custom operators.
    """

    def __init__(self, path: str, folder: Path) -> None:
        super().__init__(path, folder)
        self.passes: list[PassUse] = []
        self.plugins: list[PluginUse] = []
        self.local: list[PluginUse] = []
        self.rules: dict[str, RuleUse] = {}
        self.nested: list[Draft] = []
        self.recipe: Recipe | None = None

    @property
    def runs_code(self) -> bool:
        """Whether it names code that nobody may have agreed to run yet."""
        return bool(self.plugins or self.local)

    def all(self) -> list[Draft]:
        """List this draft and all below it, each once."""
        found: dict[int, Draft] = {}
        waiting = [self]
        while waiting:
            draft = waiting.pop()
            if id(draft) not in found:
                found[id(draft)] = draft
                waiting += draft.nested
        return list(found.values())
