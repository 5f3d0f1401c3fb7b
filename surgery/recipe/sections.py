"""The parts of a recipe besides its steps and inputs: verify, expect, when, output."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from surgery.recipe.comparison import Comparison
from surgery.recipe.draft import Draft
from surgery.recipe.nodes import Node, Scalar, plain, quoted
from surgery.recipe.plugins import read_local
from surgery.recipe.reader import Field, Reader, Schema, defined, listed, nearest
from surgery.recipe.schema import ON_FAILURE, OUTPUT_FIELDS, Expect, When
from surgery.verification.comparing.metrics import LIMITS, Metric
from surgery.verification.inputs.spec import FrozenDict, VerifySpec

_AT_LEAST: Schema = {"type": "string", "pattern": r"^\s*>=\s*[0-9]*\.?[0-9]+\s*$"}
COMPARISON: Schema = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": r"^\s*(==|!=|<=|>=|<|>)?\s*[0-9]{1,18}\s*$"},
    ]
}
"""A comparison of a count with a number, as JSON schema."""
_OUTPUT = "|".join(OUTPUT_FIELDS)


def verify_fields(draft: Draft) -> dict[str, Field]:
    """Say what `verify` takes."""
    return {
        "rtol": draft.number("rtol", about="The relative tolerance; left out, the dtype and the pass decide."),
        "atol": draft.number("atol", about="The absolute tolerance; left out, the dtype and the pass decide."),
        "seed": draft.whole("seed", about="Where the random inputs start."),
        "mode": draft.choice(
            "mode", ("each", "end", "off"), about="Verify after each step, once at the end, or never."
        ),
        "compare": draft.choice(
            "compare",
            ("region", "whole"),
            about="Compare each step where it changed the model, and the whole at the end; or the whole each time.",
        ),
        "unverified": draft.choice(
            "unverified", ("refuse", "accept"), about="Whether a step of which nothing could be shown counts as failed."
        ),
        "timeout": draft.number(
            "timeout", zero=False, unit=" of seconds", about="How many seconds one run of the model may take."
        ),
        "memory": Field(
            lambda value: _memory(draft, value),
            "How much memory the process that runs the model may take, such as 2GiB.",
            _memory_schema(),
        ),
        "custom_op_library": Field(
            lambda value: _libraries(draft, value),
            "Shared libraries with custom operators for ONNX Runtime, by path. They are code and need trust.",
            listed({"type": "string", "pattern": r"\S"}),
        ),
        **{name: _limit(draft, name, metric) for name, metric in LIMITS.items()},
    }


def read_verify(draft: Draft, node: Node) -> VerifySpec:
    """Read `verify`."""
    found = draft.fields(node, "verify", verify_fields(draft), example="{rtol: 1e-4, atol: 1e-5}")
    least = {name: found.pop(name) for name in LIMITS if name in found}
    return VerifySpec(**found, least=FrozenDict(least))


def _libraries(draft: Draft, node: Node) -> tuple[Path, ...]:
    """Read the paths of shared libraries. Loading one runs it, so that they need the caller's trust as Python does."""
    read = draft.text("custom_op_library", "the paths of shared libraries")
    texts = [(item, read(item)) for item in draft.items(node)]
    found = [read_local(draft, item, text, "load") for item, text in texts if text is not None]
    return tuple(path for path in found if path is not None)


def _limit(draft: Draft, name: str, metric: Metric) -> Field:
    """Say what the limit of a metric takes."""
    number = {"type": "number", "minimum": 0, **({"maximum": metric.most} if metric.most < math.inf else {})}
    return Field(lambda value: _least(draft, value, name), metric.least, {"anyOf": [number, _AT_LEAST]})


def _least(reader: Reader, node: Node, name: str) -> float | None:
    """Read the least value that something may have: a number, or a text such as ">= 0.999"."""
    value = plain(node) if isinstance(node, Scalar) else None
    if isinstance(value, str):
        found = re.fullmatch(r"\s*>=\s*([0-9]*\.?[0-9]+)\s*", value)
        value = float(found.group(1)) if found is not None else None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        if value <= LIMITS[name].most:
            return float(value)
        reader.problem(node, f"'{name}' is at most {LIMITS[name].most:g}, not {value:g}")
        return None
    reader.wrong(node, name, f"the least that is accepted, such as {LIMITS[name].example}")
    return None


def _memory_schema() -> Schema:
    from surgery.registry.declare import SIZE_PATTERN

    return {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": SIZE_PATTERN}]}


def _memory(reader: Reader, node: Node) -> int | None:
    from surgery.registry.declare import parse_size

    value = plain(node) if isinstance(node, Scalar) else None
    try:
        size = parse_size(value)
    except (ValueError, OverflowError):
        size = None
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    reader.wrong(node, "memory", "a size such as 512MB or 2GiB")
    return None


def expect_fields(reader: Reader, *, of_step: bool) -> dict[str, Field]:
    """Say what `expect` takes, of the recipe or of a step."""
    known = when_fields(reader)
    if of_step:
        known["sites"] = _counted(reader, "sites", "To how many places the pass was applied.")
    known["signature"] = reader.choice(
        "signature", ("unchanged",), about="Inputs and outputs have their names, order, types and dims."
    )
    return known


def read_expect(reader: Reader, node: Node, *, of_step: bool) -> Expect:
    """Read `expect`, of the recipe or of a step."""
    known = expect_fields(reader, of_step=of_step)
    return Expect(**reader.fields(node, "expect", known, example='{ops: {Dropout: 0}, nodes: "<= 500"}'))


def read_when(reader: Reader, node: Node) -> When:
    """Read `when`."""
    return When(**reader.fields(node, "when", when_fields(reader), example='{ops: {Softmax: ">= 1"}}'))


def when_fields(reader: Reader) -> dict[str, Field]:
    """Say what `when` takes: what can be counted in a model."""

    def ops(node: Node) -> Any:
        read = reader.entries(node, "ops", lambda value, name: _comparison(reader, value, name), "{Dropout: 0}")
        return FrozenDict(read)

    each = {"type": "object", "additionalProperties": defined("comparison")}
    return {
        "ops": Field(ops, "How many nodes there are of an operator: a number, or a comparison.", each),
        "nodes": _counted(reader, "nodes", "How many nodes there are in all."),
        "opset": _counted(reader, "opset", "The version of the default opset."),
    }


def _counted(reader: Reader, name: str, about: str) -> Field:
    return Field(lambda value: _comparison(reader, value, name), about, defined("comparison"))


def _comparison(reader: Reader, node: Node, name: str) -> Comparison | None:
    if isinstance(node, Scalar) and node.styled and not node.text:
        # YAML reads an unquoted `>1` or `>` as the start of a text on the lines below.
        reader.problem(node, f"{quoted(name)} has an empty text here; put the comparison in quotes: '>= 1'")
        return None
    if not isinstance(node, Scalar) or isinstance(node.value, float | bool | None):
        reader.wrong(node, name, "a number or a comparison such as '>= 1'")
        return None
    try:
        return Comparison.parse(node.value)
    except ValueError as error:
        reader.problem(node, str(error))
        return None


def on_failure_field(reader: Reader, about: str) -> Field:
    """Say what `on_failure` takes, of a recipe or of a step."""
    return reader.choice("on_failure", ON_FAILURE, about=about)


def output_field(reader: Reader) -> Field:
    """Say what `output` takes."""
    return Field(
        lambda node: _output(reader, node),
        "Where the result is written, in the current folder; {stem} is the model's file name without its suffix.",
        {"type": "string", "pattern": rf"^(?!.*\{{(?!({_OUTPUT})\}})[^{{}}]*\}}).*\S"},
    )


def _output(reader: Reader, node: Node) -> str | None:
    text: str | None = reader.text("output", "a file name such as '{stem}.opt.onnx'")(node)
    if text is None:
        return None
    wrong = next((field for field in re.findall(r"\{[^{}]*\}", text) if field[1:-1] not in OUTPUT_FIELDS), None)
    if wrong is not None:
        near = nearest(wrong[1:-1], OUTPUT_FIELDS) or OUTPUT_FIELDS[0]
        reader.problem(node, f"'output' knows no {quoted(wrong)}; did you mean '{{{near}}}'?")
        return None
    return text
