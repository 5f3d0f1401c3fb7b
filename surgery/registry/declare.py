"""Passes: how they are declared, what they promise, which options they take, where they are found.

A pass is a function with a decorator. Its keyword-only parameters are its options: at once the keys in a recipe,
the flags of the command line and the table in the docs.
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union

from surgery.errors import UsageError
from surgery.promises import CHANGES, Change, Parity, unknown_changes
from surgery.registry import discovery
from surgery.registry.api import Api, api_of

NAME_PATTERN = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"
"""What the name of a pass looks like."""
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


SIZE_PATTERN = r"^\s*[0-9]+(\.[0-9]+)?\s*([kKmMgG]?[bB]|[kKmMgG][iI][bB])?\s*$"
"""The texts that `parse_size` understands, for a JSON schema."""


class SizeUnit:
    """Marks an int option as a number of bytes, which may be written "1MB" or "64KiB"."""

    type_name = "size"

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [handler(core), {"type": "string", "pattern": SIZE_PATTERN}]}

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(parse_size, handler(source))


Size = Annotated[int, SizeUnit()]
"""A number of bytes: 4096, "1MB" (10^6) or "64KiB" (2^16)."""


_PLAIN = ((bool, bool), (int, int), (float, float), (Size, int))
"""Types of options, each with that of the values that need no conversion."""


class FileOption:
    """Marks a Path option as a file, named from the folder of the recipe."""

    type_name = "file"


FilePath = Annotated[Path, FileOption()]
"""A file. A relative path starts at the recipe that names it, and on the command line at the current folder."""


class Keeping:
    """Marks the option by which the user of an edit says what it keeps of the results."""

    type_name = "exact | close | nothing"


Keeps = Annotated[Literal["exact", "close", "nothing"], Keeping()]
"""What an edit keeps of the results, which only its user can know: all bits, all but rounding, or nothing.

Verification holds the pass to this in the place of the promise that it declares.
"""


def parse_size(value: Any) -> Any:
    """Turn "1MB" into 1000000; anything but text is returned as it is."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKmMgG]?[iI]?[bB]?)\s*", value)
    unit = found.group(2).upper() if found else ""
    if found is None or unit not in _UNITS:
        raise ValueError(f"'{value}' is not a size such as 4096, 64KiB or 1MB")
    if len(found.group(1)) > 20:
        raise ValueError(f"'{value[:20]}...' is too large")
    return int(float(found.group(1)) * _UNITS[unit])


@dataclass(frozen=True)
class Option:
    """One option of a pass."""

    name: str
    annotation: Any
    default: Any
    about: str

    @property
    def required(self) -> bool:
        """Whether the caller has to give it."""
        return self.default is inspect.Parameter.empty

    @property
    def plain_default(self) -> Any:
        """The default as JSON and YAML can write it: what they have no form for as text, None for a required option."""
        return None if self.required else json.loads(json.dumps(self.default, default=str), parse_constant=str)

    @property
    def type_name(self) -> str:
        """How to speak of the type in docs and messages."""
        return _type_name(self.annotation)

    @property
    def is_file(self) -> bool:
        """Whether its value is the path of a file."""
        return any(isinstance(part, FileOption) for part in _parts(self.annotation))

    def converted_default(self) -> Any:
        """Return the default as the pass gets it; a number as it is, for which nothing slow to load is needed."""
        if any(self.annotation is kind and type(self.default) is held for kind, held in _PLAIN):
            return self.default
        return self.validate(self.default)

    def validate(self, value: Any) -> Any:
        """Convert a value from YAML or the command line; ValueError with one line says what is wrong."""
        from pydantic import TypeAdapter, ValidationError

        # Text comes from the command line and is converted; a number for a bool, from YAML, is a mistake.
        strict = not isinstance(value, str) or self.annotation is str
        adapter: TypeAdapter[Any] = TypeAdapter(self.annotation)
        try:
            if strict:
                # By way of JSON, where a list may be a tuple: YAML has lists only.
                return adapter.validate_json(json.dumps(value), strict=True)
            return adapter.validate_python(value)
        except TypeError:
            raise ValueError(f"not a {type(value).__name__}") from None
        except ValidationError as error:
            detail = error.errors()[0]
            message = str(detail["ctx"]["error"]) if detail["type"] == "value_error" else detail["msg"].lower()
            raise ValueError(message) from None


@dataclass(frozen=True)
class Pass:
    """A named change to a graph."""

    name: str
    parity: Parity
    kind: Literal["graph", "pattern"]
    function: Callable[..., Any]
    match: tuple[str, ...] = ()
    changes: frozenset[Change] = frozenset()
    """What it means to change of the signature; all else must stay."""
    declared_at: str = ""
    """The file and the line of the declaration, where that is not the function's own."""
    requires: str = ""
    """The distribution of the tool that it hands the model to, where it does so."""

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
        """The file and the line of its declaration."""
        if self.declared_at:
            return self.declared_at
        code = inspect.unwrap(self.function).__code__
        return f"{code.co_filename}:{code.co_firstlineno}"

    @cached_property
    def origin(self) -> str:
        """Where the pass comes from: "surgery", an installed distribution with its version, or the path of a file.

        One that hands the model to a tool comes from that, which may not be installed.
        """
        if self.requires:
            return discovery.version(self.requires)
        return discovery.origin(self.module, self.place.rpartition(":")[0])

    @property
    def theme(self) -> str:
        """The folder of a standard pass, or where another one comes from."""
        return self.module.split(".")[2] if self.is_standard else self.origin

    @cached_property
    def options(self) -> tuple[Option, ...]:
        """The keyword-only parameters of the function; their text stands in the docstring under "Options:"."""
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
        """Return what is wrong with each given option, by its name; a missing one is listed too."""
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
        """Convert the given options, and fill in the defaults; UsageError names the first that is wrong.

        The paths of files start at `folder`.
        """
        for problem in self.option_errors(given).values():
            raise UsageError(problem)
        bound = {
            option.name: option.validate(given[option.name]) if option.name in given else option.converted_default()
            for option in self.options
        }
        return {name: folder / value if isinstance(value, Path) else value for name, value in bound.items()}

    def promise(self, given: Mapping[str, Any]) -> Parity:
        """What it promises with these options: what the user says by one of the type `Keeps`, else what it declares."""
        chosen = (given.get(option.name, option.default) for option in self.options if option.annotation == Keeps)
        promises = (Parity.INTENDED if kept == "nothing" else Parity(kept) for kept in chosen)
        return next(promises, self.parity)

    @property
    def is_standard(self) -> bool:
        """Whether it is made and tested with the engine, and needs no containment."""
        return self.module.startswith(f"{discovery.STANDARD}.")

    @cached_property
    def api(self) -> Api:
        """What the function works on, by the annotation of its first parameter; UsageError when that is no API."""
        return "Graph" if self.match else api_of(self.name, self.function)


F = TypeVar("F", bound=Callable[..., Any])

_PASSES: dict[str, Pass] = {}
_CLASHES: dict[str, str] = {}
_BROKEN: list[discovery.Broken] = []
_discovered = False
_alone = False  # there are none but standard passes, so each can be imported by itself
_discovering = False


def graph_pass(
    name: str, *, parity: Parity = Parity.CLOSE, changes: Iterable[Change] = (), requires: str = ""
) -> Callable[[F], F]:
    """Declare a pass that walks the graph itself: `def f(graph: Graph, *, option: int = 1) -> None`.

    The annotation of the first parameter picks the API. With `onnx_ir.Model`, `gs.Graph` (onnx-graphsurgeon) or
    `onnx.ModelProto` in the place of `Graph`, the function gets the whole model, and returns the new one, or None when
    it changed what it was given.

    `changes` says what the pass means to change of the signature, see `surgery.promises.Change`; all else must stay.
    `requires` names the distribution of the tool that it hands the model to, see `surgery.run_tool`.
    """

    def declare(function: F) -> F:
        register(Pass(name, parity, "graph", function, changes=frozenset(changes), requires=requires))
        return function

    return declare


def pattern_pass(name: str, *, match: str | Iterable[str], parity: Parity = Parity.CLOSE) -> Callable[[F], F]:
    """Declare a pass by a pattern: `def f(m: Match, new: Builder, *, option: int = 1) -> Value`.

    The function is called once for each match. It checks its conditions with `m.require`, builds with `new`, and
    returns the value that takes the place of the pattern's output (a tuple when there are several).

    `match` may be several patterns, ways to write the same thing. They are tried one after the other over the whole
    graph, so a longer one goes before a shorter one that it contains.
    """
    patterns = (match,) if isinstance(match, str) else tuple(match)

    def declare(function: F) -> F:
        register(Pass(name, parity, "pattern", function, patterns))
        return function

    return declare


def register(new: Pass) -> None:
    """Make a pass known by its name. UsageError when it is not declared as it must be, or the name is taken."""
    require_name(new.name)
    unknown = unknown_changes(new.changes)
    if unknown:
        what = f"pass '{new.name}' declares an unknown change '{unknown[0]}'{suggestion(unknown[0], CHANGES)}"
        raise UsageError(what, todo=f"choose from {', '.join(CHANGES)}")
    if new.kind == "graph":
        api_of(new.name, new.function)
    if _alone and not new.is_standard:
        _discover()  # it may have the name of one that was not imported so far
    old = _PASSES.get(new.name)
    if old is None or old.place == new.place:
        _PASSES[new.name] = new
        return
    clash = f"two passes are called '{new.name}': {_whereabouts(old)} and {_whereabouts(new)}"
    if not _discovering:
        raise UsageError(clash, todo="rename one")
    # Nobody has asked for this pass yet, and all others can be used.
    _CLASHES[new.name] = clash


def require_name(name: str) -> None:
    """Raise UsageError unless a text can be the name of a pass: lower-case words and numbers joined by hyphens."""
    if not re.fullmatch(NAME_PATTERN, name):
        words = re.sub(r"[^a-z0-9]+", "-", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()).strip("-")
        hint = f", such as '{words}'" if re.fullmatch(NAME_PATTERN, words) else ""
        raise UsageError(f"'{name}' is not a name for a pass", todo=f"use lower-case words joined by hyphens{hint}")


def _option_types(function: Callable[..., Any]) -> dict[str, Any]:
    """Evaluate the annotations of the keyword-only parameters; others may be imported for type checking only."""
    names = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    annotations = {name: function.__annotations__[name] for name in names if name in function.__annotations__}
    try:
        return typing.get_type_hints(
            SimpleNamespace(__annotations__=annotations), function.__globals__, include_extras=True
        )
    except NameError as error:
        raise UsageError(f"an option of '{function.__name__}' has a type that is not imported: {error.name}") from error


def _whereabouts(declared: Pass) -> str:
    file = declared.place.rpartition(":")[0]
    return declared.place if declared.origin == file else f"{declared.place} of {declared.origin}"


def passes() -> Mapping[str, Pass]:
    """Return all known passes by name; the standard ones and those of installed packages are found on first use."""
    _discover()
    return dict(sorted(_PASSES.items()))


def _discover() -> None:
    global _discovered, _discovering
    if not _discovered:
        _discovered = _discovering = True
        try:
            discovery.import_standard()
            _BROKEN[:] = discovery.import_installed()
        finally:
            _discovering = False


def warnings() -> list[str]:
    """List, in a line each, what is wrong with installed packages; only who asks for their passes has an error."""
    return [*map(str, _BROKEN), *_CLASHES.values()]


def find(name: str) -> Pass:
    """Return the pass of that name; UsageError suggests a near one, or says why it cannot be had."""
    found = get(name)
    if found is None:
        raise UsageError(f"no pass '{name}'{suggestion(name, passes())}{missing()}", todo="see 'surgery passes'")
    if name in _CLASHES:
        raise UsageError(_CLASHES[name], todo="uninstall or rename one")
    return found


def get(name: str) -> Pass | None:
    """Return the pass of that name, if there is one; where all are standard ones, the others are not imported."""
    if not _discovered:
        if _is_alone():
            discovery.import_standard_pass(name)
        if not _alone or name not in _PASSES:
            _discover()
    return _PASSES.get(name)


def _is_alone() -> bool:
    """Return whether only the standard passes are to be had so far: none is installed, nobody has declared another."""
    global _alone
    _alone = _alone or not (discovery.has_installed() or any(not one.is_standard for one in _PASSES.values()))
    return _alone


def clash(name: str) -> str | None:
    """Return which two places declare a pass of that name, if two do."""
    return _CLASHES.get(name)


def missing() -> str:
    """Return "; the passes 'x' of DIST VERSION cannot be loaded: why" for all packages of which that is true."""
    return "".join(f"; {broken}" for broken in _BROKEN)


def load_plugin(name: str) -> None:
    """Import a plugin, a module by name or a `.py` file by path; its decorators register its passes."""
    passes()  # a clash with one of these is the plugin's mistake
    discovery.import_plugin(name)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the nearest known name, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def _type_name(annotation: Any) -> str:
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return str(parts[1].type_name)
    if origin is Literal:
        return " | ".join(str(choice) for choice in parts)
    if origin in (Union, UnionType):
        return " | ".join("none" if part is NoneType else _type_name(part) for part in parts)
    if origin is list:
        return f"list[{_type_name(parts[0])}]"
    if hasattr(annotation, "type_name"):
        return str(annotation.type_name)
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield a type and, at any depth, what it is made of."""
    yield annotation
    for part in typing.get_args(annotation):
        yield from _parts(part)


def _sections(doc: str) -> dict[str, str]:
    """Split a docstring at its sections; what stands before them has the empty name."""
    parts = re.split(r"^(Options|Example):\n", inspect.cleandoc(doc), flags=re.MULTILINE)
    bodies = [parts[0].strip(), *(inspect.cleandoc("\n" + body) for body in parts[2::2])]
    return dict(zip(["", *parts[1::2]], bodies))


def _option_texts(doc: str) -> dict[str, str]:
    """Read the lines "name: text" of the section "Options:"; deeper lines continue the text."""
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
