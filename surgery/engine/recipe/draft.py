"""A recipe between reading and checking: its mistakes, and data for checks that need the pass registry."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from surgery.base.errors import Problem
from surgery.engine.recipe.schema import Recipe
from surgery.engine.yaml.spelling import meant
from surgery.engine.yaml.yaml_nodes import (
    Listing,
    Scalar,
    Table,
    YamlNode,
    describe,
    is_null,
    key_text,
    one_line,
    quoted,
    resolve,
)

if TYPE_CHECKING:
    from surgery.engine.registry.passes import Pass


class TakesError(ValueError):
    """A value has the wrong type for its key; the text describes the right one."""


class NamedError(ValueError):
    """A value is invalid; in the text, {} stands for the key."""


class NotedError(ValueError):
    """A value is invalid, but needs no message: it was reported already, or a syntax error truncated the value."""


@dataclass(frozen=True)
class PassUse:
    """A step with a pass; `step`, `at` and `keys` are the nodes of the step, the name and each option, for messages."""

    path: str
    name: str
    options: dict[str, Any]
    step: YamlNode
    at: YamlNode
    keys: dict[str, YamlNode]


@dataclass(frozen=True)
class PredicateUse:
    """A condition with a predicate, and the node of its name."""

    path: str
    name: str
    at: YamlNode


@dataclass(frozen=True)
class PluginUse:
    """A plugin of a recipe: the text as written, the file or module to import, and the verb for messages."""

    path: str
    text: str
    target: str
    at: YamlNode
    verb: str = "run"


@dataclass(frozen=True)
class RuleUse:
    """A rule of the recipe: its name, the node of the name, and its pass, or None if it has mistakes."""

    name: str
    key: YamlNode
    made: Pass | None


class Draft:
    """One file that is being read. `path` is its name in messages, and `folder` the base of its relative paths.

    `nested` has the drafts of the recipes that it uses, which `use` reads; `recipe` is None if there are mistakes.
    `local` has code other than plugins: a generator of inputs, libraries of custom operators.
    """

    def __init__(
        self,
        path: str,
        folder: Path,
        use: Callable[[Draft, YamlNode], Recipe | None] | None = None,
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
        """Whether it refers to code that may not be trusted yet."""
        return bool(self.plugins or self.local)

    def all(self) -> list[Draft]:
        """List this draft and all nested drafts, each once."""
        found: dict[int, Draft] = {}
        waiting = [self]
        while waiting:
            draft = waiting.pop()
            if id(draft) not in found:
                found[id(draft)] = draft
                waiting += draft.nested
        return list(found.values())

    def problem(self, node: YamlNode, message: str) -> None:
        """Record a mistake at a node."""
        self.note(Problem(self.path, node.line, node.column, one_line(message)))

    def note(self, problem: Problem) -> None:
        """Record a mistake, unless it was recorded already."""
        if problem not in self.problems:
            self.problems.append(problem)

    def wrong(self, node: YamlNode, name: str, wanted: str) -> None:
        """Record that a value has the wrong type; suggest removing the quotes of a number or a word."""
        hint = ""
        if isinstance(node, Scalar) and node.styled and not isinstance(resolve(node.text), str) and node.text:
            hint = "; remove the quotes"
        self.problem(node, f"{quoted(name)} takes {wanted}, not {describe(node)}{hint}")

    def read(self, kind: Any, node: YamlNode, name: str = "") -> Any:
        """Read a node as a type of `model.py`; return None after recording all mistakes in it.

        `name` is the name of the node itself in messages.
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

    def _mistake(self, node: YamlNode, name: str, mistake: Mapping[str, Any]) -> None:
        """Convert a mistake reported by pydantic to a message."""
        context = mistake.get("ctx", {})
        error = context.get("error")
        match mistake["type"]:
            case "value_error" if isinstance(error, NotedError):
                pass
            case "missing":
                pass  # `Section` has reported the missing key
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

    def key(self, key: YamlNode) -> str | None:
        """Return the text of a key; record a mistake and return None if it is not text."""
        name = key_text(key)
        if name is None:
            self.problem(key, f"a key is text, not {describe(key)}{'; quote it' if isinstance(key, Scalar) else ''}")
        return name


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Return the validator of a type, built only once, because the models are built on first use."""
    return TypeAdapter(kind)


def _find(node: YamlNode, name: str, loc: tuple[int | str, ...]) -> tuple[YamlNode, str]:
    """Return the node at the location of a mistake reported by pydantic, and the last key on the path.

    Parts of the location that do not exist are skipped: a single value may stand for a list, and the kind of a step is
    not a key.
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
