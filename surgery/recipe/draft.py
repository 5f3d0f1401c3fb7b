"""A recipe between reading and checking: its mistakes, and checks that need the pass registry."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from surgery.errors import Problem
from surgery.recipe.nodes import Listing, Node, Scalar, Table, describe, is_null, key_text, one_line, quoted, resolve
from surgery.recipe.schema import Recipe
from surgery.recipe.spelling import meant

if TYPE_CHECKING:
    from surgery.registry.passes import Pass


class TakesError(ValueError):
    """A value is not what its key takes; the text says what that is."""


class NamedError(ValueError):
    """A value is wrong; in the text, {} stands for the key."""


class NotedError(ValueError):
    """A value is wrong, and needs no message: there is one, or a syntax error cut the value short."""


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
class PredicateUse:
    """A condition that names a predicate, and the node of the name."""

    path: str
    name: str
    at: Node


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
    key: Node
    made: Pass | None


class Draft:
    """One file being read. `path` is how messages call it, `folder` where its paths start.

    `nested` are the drafts of the recipes that it uses, which `use` reads; `recipe` is None if something is wrong.
    `local` holds code that is no plugin: a generator of inputs, libraries of custom operators.
    """

    def __init__(
        self,
        path: str,
        folder: Path,
        use: Callable[[Draft, Node], Recipe | None] | None = None,
        name: str = "recipe",
    ) -> None:
        self.path = path
        self.folder = folder
        self.use = use
        self.name = name
        self.problems: list[Problem] = []
        self.passes: list[PassUse] = []
        self.predicates: list[PredicateUse] = []
        self.plugins: list[PluginUse] = []
        self.local: list[PluginUse] = []
        self.rules: dict[str, RuleUse] = {}
        self.nested: list[Draft] = []
        self.recipe: Recipe | None = None
        self.reading = ""

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

    def problem(self, node: Node, message: str) -> None:
        """Note a mistake at a node."""
        self.note(Problem(self.path, node.line, node.column, one_line(message)))

    def note(self, problem: Problem) -> None:
        """Note a mistake, once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def wrong(self, node: Node, name: str, wanted: str) -> None:
        """Note that a value is not what it must be; suggest removing the quotes of a number or a word."""
        hint = ""
        if isinstance(node, Scalar) and node.styled and not isinstance(resolve(node.text), str) and node.text:
            hint = "; remove the quotes"
        self.problem(node, f"{quoted(name)} takes {wanted}, not {describe(node)}{hint}")

    def read(self, kind: Any, node: Node, name: str = "") -> Any:
        """Read a node as a type of `model.py`; None if something in it is wrong, and all of that is noted.

        `name` is how messages call the node itself.
        """
        outer, self.reading = self.reading, name
        try:
            return _adapter(kind).validate_python(node, context=self)
        except ValidationError as error:
            for mistake in error.errors(include_url=False):
                at, called = _find(node, name, mistake["loc"])
                self._mistake(at, called, mistake)
        finally:
            self.reading = outer
        return None

    def _mistake(self, node: Node, name: str, mistake: Mapping[str, Any]) -> None:
        """Turn a mistake that pydantic reports into a message."""
        context = mistake.get("ctx", {})
        error = context.get("error")
        match mistake["type"]:
            case "value_error" if isinstance(error, NotedError):
                pass
            case "missing":
                pass  # `Section` has said what is missing
            case "value_error" if isinstance(error, TakesError):
                self.wrong(node, name, str(error))
            case "value_error" if isinstance(error, NamedError):
                self.problem(node, str(error).replace("{}", quoted(name), 1))
            case "literal_error" | "enum":
                choices = re.findall("'(.*?)'", context["expected"])
                hint = meant(node.text if isinstance(node, Scalar) else None, choices)
                self.problem(node, f"{quoted(name)} takes {_either(choices)}, not {describe(node)}{hint}")
            case "greater_than_equal" if isinstance(context["ge"], float):
                self.problem(node, f"{quoted(name)} is never negative: {describe(node)}")
            case "greater_than_equal":
                self.problem(node, f"{quoted(name)} is at least {context['ge']}, not {describe(node)}")
            case "greater_than":
                self.problem(node, f"{quoted(name)} is more than {context['gt']:g}, not {describe(node)}")
            case "less_than_equal":
                self.problem(node, f"{quoted(name)} is at most {context['le']:g}, not {mistake['input']:g}")
            case _:
                self.problem(node, str(error or mistake["msg"]))

    def key(self, key: Node) -> str | None:
        """Give a key, which must be text."""
        name = key_text(key)
        if name is None:
            self.problem(key, f"a key is text, not {describe(key)}{'; quote it' if isinstance(key, Scalar) else ''}")
        return name


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Build the validator of a type once: the models are built when they are first read."""
    return TypeAdapter(kind)


def _find(node: Node, name: str, loc: tuple[int | str, ...]) -> tuple[Node, str]:
    """Follow the place that pydantic gives for a mistake: the node, and the last key on the way.

    What is not there is stayed at: a value alone stands for a list, and the kind of a step is no key.
    """
    for part in loc:
        if isinstance(node, Listing) and isinstance(part, int):
            node = node.items[part]
        elif isinstance(node, Table) and isinstance(part, str):
            found = [value for key, value in node.pairs if key_text(key) == part]
            node = next((value for value in found if not is_null(value)), found[0] if found else node)
            name = part if found else name
    return node, name


def _either(names: list[str]) -> str:
    """Join names for a message: "each, end or off"."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
