"""Declared passes: a function, its promise, and its options."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from surgery.base.errors import UsageError, closest
from surgery.base.promises import Change, Parity
from surgery.engine.registry import discovery
from surgery.engine.registry.api import Api, api_of
from surgery.engine.registry.options import Keeps, Option

NAME_PATTERN = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"
"""The pattern of pass names."""


@dataclass(frozen=True)
class Pass:
    """A named change to a graph."""

    name: str
    parity: Parity
    kind: Literal["graph", "pattern"]
    function: Callable[..., Any]
    match: tuple[str, ...] = ()
    changes: frozenset[Change] = frozenset()
    """The intended changes of the signature; all other parts must stay the same."""
    declared_at: str = ""
    """The file and line of the declaration, if it differs from that of the function."""
    requires: str = ""
    """The distribution of the tool that the pass runs, if any."""

    @property
    def doc(self) -> str:
        """The docstring, without its sections "Options:" and "Example:"."""
        return _sections(self.function.__doc__ or "")[""]

    @property
    def example(self) -> str | None:
        """The ONNX text of a graph on which the pass fires, from the section "Example:" of the docstring."""
        return _sections(self.function.__doc__ or "").get("Example")

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring on one line."""
        return " ".join(self.doc.split("\n\n")[0].split())

    @property
    def module(self) -> str:
        """The module that declares the pass."""
        return self.function.__module__

    @property
    def place(self) -> str:
        """The file and line of its declaration."""
        if self.declared_at:
            return self.declared_at
        code = inspect.unwrap(self.function).__code__
        return f"{code.co_filename}:{code.co_firstlineno}"

    @property
    def file(self) -> str:
        """The file of its declaration."""
        return self.place.rpartition(":")[0]

    @cached_property
    def origin(self) -> str:
        """The origin of the pass: "surgery", an installed distribution with its version, or the path of a file.

        The origin of a pass that runs a tool is that tool, which may not be installed.
        """
        if self.requires:
            return discovery.version(self.requires)
        return discovery.origin(self.module, self.file)

    @property
    def theme(self) -> str:
        """The folder of a standard pass, or the origin of another pass."""
        return self.module.split(".")[2] if self.is_standard else self.origin

    @cached_property
    def options(self) -> tuple[Option, ...]:
        """The keyword-only parameters of the function; their text is in the docstring under "Options:"."""
        hints = _option_types(self.function)
        about = _option_texts(self.function.__doc__ or "")
        return tuple(
            Option(
                parameter.name,
                hints.get(parameter.name, Any),
                parameter.default,
                about.get(parameter.name, ""),
            )
            for parameter in inspect.signature(self.function).parameters.values()
            if parameter.kind is parameter.KEYWORD_ONLY
        )

    def option_errors(self, given: Mapping[str, Any]) -> dict[str, str]:
        """Return the problems of options by name, including missing ones."""
        if self.requires and not discovery.is_installed(self.requires):
            what = f"pass '{self.name}' needs {self.requires}, which is not installed; pip install {self.requires}"
            return {"": what}
        known = {option.name: option for option in self.options}
        problems: dict[str, str] = {}
        for name, value in given.items():
            if name not in known:
                hint = suggestion(name, known)
                problems[name] = f"pass '{self.name}' has no option '{name}'{hint}"
                continue
            try:
                known[name].validate(value)
            except ValueError as error:
                problems[name] = f"option '{name}' of '{self.name}' takes {known[name].type_name}: {error}"
        for option in self.options:
            if option.required and option.name not in given:
                problems[option.name] = f"pass '{self.name}' needs the option '{option.name}' ({option.type_name})"
        return problems

    def bind(self, given: Mapping[str, Any], folder: Path = Path()) -> dict[str, Any]:
        """Convert the given options, and fill in the defaults; raise UsageError for the first invalid one.

        File paths are relative to `folder`.
        """
        for problem in self.option_errors(given).values():
            raise UsageError(problem)
        bound = {
            option.name: option.validate(given[option.name]) if option.name in given else option.converted_default()
            for option in self.options
        }
        return {name: folder / value if isinstance(value, Path) else value for name, value in bound.items()}

    def promise(self, given: Mapping[str, Any]) -> Parity:
        """Return the promise with these options: that of an option of the type `Keeps`, or else the declared one."""
        chosen = (given.get(option.name, option.default) for option in self._keeping)
        promises = (Parity.INTENDED if kept == "nothing" else Parity(kept) for kept in chosen)
        return next(promises, self.parity)

    @cached_property
    def _keeping(self) -> tuple[Option, ...]:
        return tuple(option for option in self.options if option.annotation == Keeps)

    @property
    def is_standard(self) -> bool:
        """Whether it is part of surgery and needs no containment."""
        return self.module.startswith(f"{discovery.STANDARD}.")

    @cached_property
    def api(self) -> Api:
        """The API of the function, by the annotation of its first parameter; UsageError if it is not an API."""
        return "Graph" if self.match else api_of(self.name, self.function)


def require_name(name: str, what: str = "pass") -> None:
    """Raise UsageError unless a text is a valid name: lower-case words and numbers joined by hyphens."""
    if not re.fullmatch(NAME_PATTERN, name):
        words = re.sub(r"[^a-z0-9]+", "-", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()).strip("-")
        hint = f", such as '{words}'" if re.fullmatch(NAME_PATTERN, words) else ""
        raise UsageError(f"'{name}' is not a name for a {what}", todo=f"use lower-case words joined by hyphens{hint}")


def _option_types(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of the keyword-only parameters; other annotations may be imported only for type checking."""
    names = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    annotations = {name: function.__annotations__[name] for name in names if name in function.__annotations__}
    try:
        return typing.get_type_hints(
            SimpleNamespace(__annotations__=annotations), function.__globals__, include_extras=True
        )
    except NameError as error:
        raise UsageError(f"an option of '{function.__name__}' has a type that is not imported: {error.name}") from error


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the nearest known name, or nothing."""
    near = closest(name, known)
    return f"; did you mean '{near}'?" if near else ""


@cache
def _sections(doc: str) -> Mapping[str, str]:
    """Split a docstring into its sections; the text before them has the empty name."""
    parts = re.split(r"^(Options|Example):\n", inspect.cleandoc(doc), flags=re.MULTILINE)
    bodies = [parts[0].strip(), *(inspect.cleandoc("\n" + body) for body in parts[2::2])]
    return dict(zip(["", *parts[1::2]], bodies))


def _option_texts(doc: str) -> dict[str, str]:
    """Return the texts of the lines "name: text" in the section "Options:"; indented lines continue the text."""
    texts: dict[str, str] = {}
    name = ""
    for line in _sections(doc).get("Options", "").splitlines():
        found = re.match(r"(\w+): (.*)", line)
        if found:
            name = found.group(1)
            texts[name] = found.group(2).strip()
        elif name:
            texts[name] += f" {line.strip()}"
    return texts
