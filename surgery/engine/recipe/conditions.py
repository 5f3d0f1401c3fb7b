"""The recipe keys for conditions on models: when a step runs, and what is expected; see `model`."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from surgery.base.errors import UsageError
from surgery.base.frozen_dict import FrozenDict
from surgery.engine.recipe import schema
from surgery.engine.recipe.count_condition import CountCondition
from surgery.engine.recipe.draft import Draft, PredicateUse, TakesError
from surgery.engine.recipe.fields import (
    Count,
    Flag,
    Frozen,
    Line,
    Section,
    Word,
    entries,
    key,
    needed,
    reads,
    text,
    value_of,
)
from surgery.engine.recipe.recipe_paths import below
from surgery.engine.yaml.yaml_nodes import Table, YamlNode, key_text, quoted
from surgery.model.targets import shipped as targets


class When(Section):
    """Conditions on the model before a step."""

    makes: ClassVar[Any] = schema.When
    wanted = 'a mapping such as {ops: {Softmax: ">= 1"}}'

    ops: Annotated[dict[str, Count], entries("a mapping such as {Dropout: 0}"), Frozen] = key(
        "The number of nodes of an operator: a number or a comparison."
    )
    nodes: Count = key("The number of all nodes.")
    opset: Count = key("The version of the default opset.")
    predicates: Annotated[dict[str, Flag], entries("a mapping such as {acme-has-head: true}"), Frozen] = key(
        "Predicates of packages or plugins, and what each has to answer: `true` or `false`."
    )

    @classmethod
    def seen(cls, draft: Draft, node: Table, found: dict[str, YamlNode]) -> None:
        """Record the predicates, whose names are checked after all plugins are imported."""
        at = found.get("predicates")
        if isinstance(at, Table):
            names = ((key_text(one), one) for one, _ in at.pairs)
            draft.predicates += [PredicateUse(draft.path, name, one) for name, one in names if name is not None]


def target_of(folder: Path, name: str) -> str:
    """Return the name of a shipped target, or the path of a profile, resolved against the folder of the recipe."""
    found = str(below(folder, name)) if name.endswith(targets.SUFFIXES) else name
    try:
        targets.find(found)
    except UsageError as error:
        raise ValueError(str(error)) from None
    return found


TARGET = Annotated[
    Line,
    AfterValidator(lambda name, info: target_of(info.context.folder, name)),
    text("the name of a target, or the path of a profile"),
]


_FITS = "A runtime that must run the whole model: the name of a shipped target or the path of a profile (.yaml)."


class _Expected(When):
    makes: ClassVar[Any] = schema.Expect
    wanted = 'a mapping such as {ops: {Dropout: 0}, nodes: "<= 500"}'

    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> Any:
        """Make expectations with their positions."""
        keys = [key for key, _ in node.pairs]
        keys += [key for _, inner in node.pairs if isinstance(inner, Table) for key, _ in inner.pairs]
        places = {str(key_text(key)): f"{draft.path}:{key.line}:{key.column}" for key in keys}
        return self.makes(**given, places=FrozenDict(places))


_Signature = Annotated[Literal["unchanged"], Word]
_SIGNATURE = "Inputs and outputs keep their names, order, types and dims."


_AT_LEAST = r"^\s*>=\s*([0-9]*\.?[0-9]+)\s*$"


def _speed(node: YamlNode) -> float:
    """Read a number, or the text `>= number`."""
    value = value_of(node)
    if isinstance(value, str):
        found = re.fullmatch(_AT_LEAST, value)
        value = float(found.group(1)) if found is not None else None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise TakesError("the minimum speed, such as 1.2")
    return value


_SHARE = r"^\s*(<=|<|>=|>)\s*([0-9]*\.?[0-9]+)\s*x?\s*$"


def _share(node: YamlNode, upper: bool) -> schema.Share:
    """Read a bound such as `<= 1.1x`."""
    value = value_of(node)
    found = re.fullmatch(_SHARE, value) if isinstance(value, str) else None
    if found is None:
        raise TakesError(f"a multiple of the last figure such as '{'<= 1.1x' if upper else '>= 0.9x'}'")
    operator, factor = found.groups()
    if (operator[0] == "<") != upper:
        what = (
            "this figure needs an upper bound, such as '<= 1.1x'"
            if upper
            else "a speed needs a lower bound, such as '>= 0.9x'"
        )
        raise ValueError(f"{quoted(value)}: {what}")
    return schema.Share(cast(schema.Bound, operator), float(factor))


def _executed(node: YamlNode, _: Draft) -> CountCondition | schema.Share:
    """Read a count, a comparison, or a multiple of the original's nodes."""
    value = value_of(node)
    if isinstance(value, str) and re.fullmatch(_SHARE, value) and value.rstrip().endswith("x"):
        return _share(node, True)
    try:
        return CountCondition.parse(value)
    except ValueError as error:
        raise ValueError(f"{error}, or a multiple of the original's nodes such as '<= 1x'") from None


class Expect(_Expected):
    """Expectations of the resulting model."""

    signature: _Signature = key(_SIGNATURE)
    speed: Annotated[
        float,
        BeforeValidator(_speed),
        WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": _AT_LEAST}]}),
    ] = key(
        "The minimum speed: the measured time of the original divided by that of the result, with one thread, on "
        "the sets under `inputs`, else the first sets of evaluation or calibration data, else generated inputs. It "
        "is missed only where the whole 95 % interval lies below. Not measured if none of the recipe's lossy steps "
        "changed the model and 1 or less is expected, and for models whose weights exceed half of the memory limit of "
        "a run, 4 GiB by default."
    )
    executed: Annotated[
        Any,
        reads(_executed),
        WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}),
    ] = key(
        "The number of nodes that ONNX Runtime executes with its default options, after its own optimizations: a "
        "number or a comparison, such as `<= 400`, or a multiple of those of the original, such as `<= 1x`."
    )
    target: TARGET = key(_FITS)

    empty: Annotated[Literal["allowed"], Word] = key("No step adds Attention and others that take no empty batch.")


class ExpectStep(_Expected):
    """Expectations of the model after a step."""

    sites: Count = key("The number of sites that the pass rewrote.")
    signature: _Signature = key(_SIGNATURE)
    target: TARGET = key(_FITS)


_Share = Annotated[
    Any,
    reads(lambda node, _: _share(node, True)),
    WithJsonSchema({"type": "string", "pattern": _SHARE.replace("|>=|>", "")}),
]


class Baseline(Section):
    """The figures of an earlier run, such as the last release, and how much those of this run may differ."""

    makes = schema.Baseline
    wanted = "a mapping such as {report: last.json}"
    needs: ClassVar = {"report": "'baseline' needs 'report', the JSON report of an earlier run"}

    report: Annotated[
        Line, AfterValidator(lambda name, info: below(info.context.folder, name)), text("the path of a JSON report")
    ] = needed(
        "The JSON report of an earlier run (`surgery apply --format json`), or the results of a batch (.jsonl) with a "
        "line for the model."
    )
    nodes: _Share = key(
        "How many nodes the result may have, as a multiple of the last: `<= 1x`. The default is `< 2x`."
    )
    bytes: _Share = key("The size of the written files, as a multiple of the last. The default is `< 2x`.")
    tolerance: _Share = key("The largest share of the tolerance that any step needed, as a multiple of the last.")
    speed: Annotated[
        Any,
        reads(lambda node, _: _share(node, False)),
        WithJsonSchema({"type": "string", "pattern": _SHARE.replace("<=|<|", "")}),
    ] = key(
        "The minimum speed relative to the original, as a multiple of the last: `>= 0.9x`. Measured as for `expect`."
    )

    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> schema.Baseline:
        """Make a baseline with the positions of its bounds."""
        places = {str(key_text(key)): f"{draft.path}:{key.line}:{key.column}" for key, _ in node.pairs}
        return schema.Baseline(**given, places=FrozenDict(places))
