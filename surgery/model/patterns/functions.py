"""Model-local functions of a rule, in ONNX text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir

from surgery.base.errors import PatternError
from surgery.model.graph.edits import FIRST_WITH_FUNCTIONS
from surgery.model.graph.text import canonical
from surgery.model.graph.values import Refusal

if TYPE_CHECKING:
    from onnx import FunctionProto

    from surgery.model.graph.builder import Builder
    from surgery.model.graph.graph import Graph

# The parser of onnx accepts functions only after a graph; these two lines are subtracted from the positions it reports.
_HEAD = '<ir_version: 10, opset_import: ["" : 21]>\nnone () => () {}\n'


def parse_functions(text: str) -> tuple[FunctionProto, ...]:
    """Parse one function after another; raise PatternError, with the position, for a mistake."""
    import onnx.parser

    body = "\n".join("" if line.lstrip().startswith("#") else line for line in text.splitlines())
    try:
        found = tuple(onnx.parser.parse_model(_HEAD + body).functions)
    except (onnx.parser.ParseError, RuntimeError, IndexError) as error:
        raise _mistake(error, text) from error
    for function in found:
        if not function.domain:
            raise _place_of(f'function {function.name} needs a domain: <domain: "my.domain">', function.name, text)
        if not function.node:
            raise _place_of(f"function {function.name} does nothing", function.name, text)
        missing = next(_missing(function), None)
        if missing is not None:
            raise _place_of(f"in function {function.name}, no node produces '{missing}'", function.name, text)
    if not found:
        raise PatternError('no function here; a function begins with <domain: "my.domain">')
    return found


def _missing(function: FunctionProto) -> Iterator[str]:
    """Yield the inputs of nodes, and the outputs of the function, that no earlier node produces."""
    made = {"", *function.input}
    for node in function.node:
        yield from (name for name in node.input if name not in made)
        made.update(node.output)
    yield from (name for name in function.output if name not in made)


def _mistake(error: Exception, text: str) -> PatternError:
    raw = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
    place = re.search(r"line: (\d+) column: (\d+)", raw)
    words = raw.split("Error context:")[0].split("\n")
    said = " ".join(words[1:]) if len(words) > 1 else raw
    line, column = (int(place.group(1)) - 2, int(place.group(2))) if place else (1, 1)
    source = text.splitlines()
    line = min(max(line, 1), len(source))
    what = f"not ONNX text: {' '.join(said.split()) or 'check the header and the brackets'}"
    return PatternError(what, line=line, column=max(column, 1), source=source[line - 1], subject="functions")


def _place_of(what: str, name: str, text: str) -> PatternError:
    for number, line in enumerate(text.splitlines(), start=1):
        found = re.search(rf"(?<![\w.]){re.escape(name)}\s*(<[^>]*>)?\s*\(", line)
        if found:
            return PatternError(what, line=number, column=found.start() + 1, source=line, subject="functions")
    return PatternError(what)


def define(function: FunctionProto, graph: Graph, new: Builder, versions: Mapping[str, int]) -> None:
    """Add a function to the model; refuse if the model has a different one of that name.

    A function without opset imports takes those of the model.
    """
    made = ir.serde.deserialize_function(function)
    if not made.opset_imports:
        made.opset_imports.update({"": graph.opset} | dict(versions))
    known = graph.ir.functions.get(made.identifier())
    if known is None:
        new.define(made)
        new.raise_ir_version(FIRST_WITH_FUNCTIONS)
    elif _written(known) != _written(made):
        raise Refusal(f"the model has another function {function.domain}::{function.name}")


def _written(function: ir.Function) -> str:
    empty = ir.Graph((), (), nodes=())
    return canonical(ir.Model(empty, ir_version=10, functions=[function]))
