"""Passes: how they are declared, what they promise, which options they take, where they are found.

A pass is a function with a decorator. Its keyword-only parameters are its options: at once the keys in a recipe,
the flags of the command line and the table in the docs.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import pkgutil
import re
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, TypeVar

from surgery.errors import SurgeryError, UsageError
from surgery.parity import Parity

ENTRY_POINTS = "surgery.passes"
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


class SizeUnit:
    """Marks an int option as a number of bytes, which may be written "1MB" or "64KiB"."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(parse_size, handler(source))


Size = Annotated[int, SizeUnit()]
"""A number of bytes: 4096, "1MB" (10^6) or "64KiB" (2^16)."""


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
    def type_name(self) -> str:
        """How to speak of the type in docs and messages."""
        if typing.get_origin(self.annotation) is Annotated:
            return "size"
        if typing.get_origin(self.annotation) is Literal:
            return " | ".join(str(choice) for choice in typing.get_args(self.annotation))
        if isinstance(self.annotation, type):
            return self.annotation.__name__
        return str(self.annotation).replace("typing.", "")

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
    def origin(self) -> str:
        """The module that the pass comes from."""
        return self.function.__module__

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
        """Say what is wrong with each given option, by its name; a missing one is listed too."""
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

    def bind(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Convert the given options, and fill in the defaults; UsageError names the first that is wrong."""
        for problem in self.option_errors(given).values():
            raise UsageError(problem)
        return {option.name: option.validate(given.get(option.name, option.default)) for option in self.options}

    @property
    def is_standard(self) -> bool:
        """Whether it is made and tested with the engine, and needs no containment."""
        return self.origin.startswith("surgery.passes.")

    @cached_property
    def api(self) -> str:
        """What the function works on, by the last word of its first annotation: "Graph" or "ModelProto"."""
        first = next(iter(inspect.signature(self.function).parameters.values()), None)
        annotation = first.annotation if first is not None else inspect.Parameter.empty
        name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        return "ModelProto" if name.rpartition(".")[2] == "ModelProto" else "Graph"


F = TypeVar("F", bound=Callable[..., Any])

_PASSES: dict[str, Pass] = {}
_discovered = False


def graph_pass(name: str, *, parity: Parity = Parity.CLOSE) -> Callable[[F], F]:
    """Declare a pass that walks the graph itself: `def f(graph: Graph, *, option: int = 1) -> None`.

    With `onnx.ModelProto` as the annotation of its first parameter, the function gets the whole model and returns one.
    """

    def declare(function: F) -> F:
        _register(Pass(name, parity, "graph", function))
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
        _register(Pass(name, parity, "pattern", function, patterns))
        return function

    return declare


def _register(new: Pass) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", new.name):
        raise UsageError(f"'{new.name}' is not a name for a pass", todo="use lower-case words joined by hyphens")
    old = _PASSES.get(new.name)
    if old is not None and _place(old) != _place(new):
        raise UsageError(f"two passes are called '{new.name}': {_place(old)} and {_place(new)}")
    _PASSES[new.name] = new


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


def _place(declared: Pass) -> str:
    code = inspect.unwrap(declared.function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def passes() -> Mapping[str, Pass]:
    """Return all known passes by name; the standard ones and those of installed packages are found on first use."""
    global _discovered
    if not _discovered:
        _discovered = True
        standard = importlib.import_module("surgery.passes")
        for module in pkgutil.walk_packages(standard.__path__, "surgery.passes."):
            importlib.import_module(module.name)
        for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
            entry.load()
    return dict(sorted(_PASSES.items()))


def find(name: str) -> Pass:
    """Return the pass of that name; UsageError suggests a near one."""
    known = passes()
    if name not in known:
        raise UsageError(f"no pass '{name}'{suggestion(name, known)}", todo="see 'surgery passes'")
    return known[name]


def load_plugin(name: str) -> None:
    """Import a plugin, a module by name or a `.py` file by path; its decorators register its passes."""
    if not name.endswith(".py"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise UsageError(f"no plugin module '{name}'", todo="install it, or name a .py file") from error
        except Exception as error:
            raise UsageError(f"plugin '{name}' cannot be imported: {type(error).__name__}: {error}") from error
        return
    path = Path(name).resolve()
    if not path.is_file():
        raise UsageError(f"no plugin file '{name}'")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    module_name = f"surgery_plugin_{path.stem}_{digest}"
    if module_name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"'{name}' cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except SurgeryError:
        del sys.modules[module_name]
        raise
    except Exception as error:
        del sys.modules[module_name]
        raise UsageError(f"plugin '{name}' cannot be imported: {type(error).__name__}: {error}") from error


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the nearest known name, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


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
