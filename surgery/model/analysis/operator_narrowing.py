"""Inputs and outputs of an operator that may have a narrower float type instead of float32.

Sources: the type constraints of the schemas of onnx, or of the installed ONNX Runtime for operators that onnx does not
define, and the table of kernels of its CPU execution provider. If a kernel supports only float32, ONNX Runtime itself
inserts casts from and to float16 ("InsertCastTransformer"), but not for bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from surgery.base.operators.forms import Parameter, Schema, key_of, plain_domain
from surgery.base.operators.schemas import form_of, is_standard, schema_of
from surgery.model.targets.kernels import installed, registered

Runtime = Literal["cpu", "any"]
"""Whether CPU kernels of ONNX Runtime are required ("cpu"), or only the schema decides ("any")."""

_FLOAT = "tensor(float)"
_NEWEST = 2**31 - 1
_CASTED_BY_RUNTIME = "float16"

_AUXILIARY: Mapping[str, frozenset[str]] = {
    "BatchNormalization": frozenset({"scale", "B", "mean", "var", "input_mean", "input_var"}),
    "Dropout": frozenset({"ratio"}),
    "Resize": frozenset({"roi", "scales"}),
}
"""Parameters that stay float32 if the schema gives them a separate type variable: small statistics or coordinates."""


_MIXED_BODY = frozenset({"MeanVarianceNormalization"})
"""Operators that ONNX Runtime expands, in float16, to operators that partly read float32 constants; observed at session
creation."""

_FAILING = {"ScatterElements": "reduction", "ScatterND": "reduction"}
"""Operators whose float16 kernel fails at run time if this attribute is set."""


Kernel = tuple[int, int, Mapping[str, list[str]]]
"""The first and the last version of a kernel, and the allowed types of each type parameter."""


@dataclass(frozen=True)
class Narrowing:
    """The positions of the inputs and outputs that change their type together."""

    inputs: frozenset[int]
    outputs: frozenset[int]


@cache
def narrowing(
    domain: str,
    op: str,
    version: int,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    name: str,
    tables: Tables,
    runtime: Runtime,
) -> tuple[Narrowing, ...] | str:
    """Return the inputs and outputs that may have the element type `name` instead of float32, or why none may.

    There may be two ways, the preferred one first: without and with the parameters of a separate type variable.

    `inputs` and `outputs` are types in the notation of ONNX Runtime, "tensor(float)"; empty if omitted or unknown.
    """
    key = key_of(domain, op)
    place = plain_domain(domain), op
    form = form_of(*place, version) if is_standard(*place) else tables.forms.get(place)
    if form is None:
        return f"the schema of {key} is not known"
    actual = _actual(form.inputs, inputs)
    pairs = zip(_spread(form.outputs, len(outputs)), outputs)
    made = {parameter.variable for parameter, kind in pairs if kind == _FLOAT}
    narrow = {v for v, (kind, types) in actual.items() if kind == _FLOAT and f"tensor({name})" in types}
    if any(v not in actual and f"tensor({name})" in types for v, types in _open_outputs(form, outputs)):
        return f"{key} chooses the type of an output by itself"
    if runtime == "cpu" and key in _MIXED_BODY:
        return f"ONNX Runtime expands {key} to operators of different types in {name}"
    if not narrow or (made and not made & narrow):
        return f"{key} of opset {form.since} does not take {name}"
    helpers = {p.variable for p in form.inputs if p.name in _AUXILIARY.get(key, ())} - made
    choices = (narrow - helpers, narrow & made or narrow, narrow)
    ways = tuple(
        Narrowing(_positions(form.inputs, inputs, chosen), _positions(form.outputs, outputs, chosen))
        for chosen in choices
        if runtime == "any" or _runs(form, tables, actual, chosen, name)
    )
    return ways or f"ONNX Runtime has no kernel for {key} of opset {form.since} in {name} on the CPU"


def failing_attribute(domain: str, op: str) -> str | None:
    """Return the attribute with which the CPU kernel of an operator fails in a narrower type, or None."""
    return _FAILING.get(key_of(domain, op))


def _open_outputs(form: Schema, kinds: tuple[str, ...]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the type variable of each float32 output, and its allowed types."""
    for one, kind in zip(_spread(form.outputs, len(kinds)), kinds):
        if kind == _FLOAT:
            yield one.variable, one.types


def _spread(parameters: Sequence[Parameter], count: int) -> list[Parameter]:
    """Return the parameter of each position; the last one is repeated if it is variadic."""
    found = list(parameters[:count])
    if parameters and parameters[-1].variadic:
        found += [parameters[-1]] * (count - len(found))
    return found


def _actual(parameters: Sequence[Parameter], kinds: tuple[str, ...]) -> dict[str, tuple[str, frozenset[str]]]:
    """Return the current type and the allowed types of each type variable of the inputs."""
    pairs = zip(_spread(parameters, len(kinds)), kinds)
    return {one.variable: (kind, one.types) for one, kind in pairs if kind and not one.variable.startswith("tensor(")}


def _positions(parameters: Sequence[Parameter], kinds: tuple[str, ...], chosen: set[str]) -> frozenset[int]:
    numbered = enumerate(zip(_spread(parameters, len(kinds)), kinds))
    return frozenset(place for place, (one, kind) in numbered if kind == _FLOAT and one.variable in chosen)


def _runs(
    form: Schema, tables: Tables, actual: Mapping[str, tuple[str, frozenset[str]]], chosen: set[str], name: str
) -> bool:
    """Return whether a kernel accepts the types, or ONNX Runtime casts around the operator or expands it."""
    if tables.kernels is None:
        return True
    fitting = [
        types
        for first, last, types in tables.kernels.get((form.domain, form.name), [])
        if first == form.since or (first < form.since <= last and last != _NEWEST)
    ]
    if not fitting:
        return name == _CASTED_BY_RUNTIME and _has_body(form)
    kinds = {variable: f"tensor({name})" if variable in chosen else kind for variable, (kind, _) in actual.items()}
    if any(_takes(types, form, kinds) for types in fitting):
        return True
    if name != _CASTED_BY_RUNTIME:
        return False
    wide = {variable: kind.replace("(float16)", "(float)") for variable, kind in kinds.items()}
    return any(_takes(types, form, wide) for types in fitting)


def _takes(types: Mapping[str, list[str]], form: Schema, kinds: Mapping[str, str]) -> bool:
    """Return whether a kernel accepts these types; it may constrain a variable by the name of a parameter."""
    named = {one.name: kinds.get(one.variable, "") for one in form.inputs} | dict(kinds)
    return all(not named.get(key) or named[key] in allowed for key, allowed in types.items())


def _has_body(form: Schema) -> bool:
    schema: Any = schema_of(form.domain, form.name, form.since)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of the installed ONNX Runtime, from the result of `listed`.

    `kernels` has the kernels of its CPU execution provider by domain and operator, or is None if it cannot be queried,
    and `forms` has the newest schemas of operators that onnx does not define.
    """

    kernels: Mapping[tuple[str, str], list[Kernel]] | None
    forms: Mapping[tuple[str, str], Schema]

    @classmethod
    def of(cls, kernels: Sequence[Any], forms: Sequence[Any]) -> Tables:
        """Build the tables from the result of `listed`."""
        found: dict[tuple[str, str], list[Kernel]] = {}
        for domain, op, (first, last), types in kernels:
            found.setdefault((plain_domain(domain), op), []).append((first, last, types))
        schemas = {}
        for domain, op, since, inputs, outputs in forms:
            sides = [tuple(Parameter(n, v, frozenset(t), o) for n, v, t, o in side) for side in (inputs, outputs)]
            schemas[domain, op] = Schema(op, domain, since, sides[0], sides[1], {}, {}, False)
        return cls(found, schemas)


def listed() -> list[Any]:
    """List the kernels of the installed ONNX Runtime, and its schemas that onnx lacks; runs in a worker."""
    known = installed()
    forms = []
    for domain, op in known.names():
        form = None if is_standard(plain_domain(domain), op) else known.schema(domain, op, _NEWEST)
        if form is not None:
            sides = [
                [[one.name, one.variable, sorted(one.types), one.option] for one in side]
                for side in (form.inputs, form.outputs)
            ]
            forms.append([plain_domain(domain), op, form.since, *sides])
    return [registered(), forms]
