"""Which inputs and outputs of an operator may be of a narrower float type in place of float32.

Sources: the type constraints of the schemas, of onnx where it defines the operator and else of the installed ONNX
Runtime, and the table of kernels of its CPU provider. Where a kernel takes float32 only, ONNX Runtime itself casts
float16 around it ("InsertCastTransformer"); it does not do so for bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from surgery.operators.forms import Parameter, Schema, key_of, plain_domain
from surgery.operators.kernels import installed, registered
from surgery.operators.schemas import form_of, is_defined, schema_of

Runtime = Literal["cpu", "any"]
"""Whose kernels count: those of ONNX Runtime on the CPU, or nobody's, so that the schema alone decides."""

_FLOAT = "tensor(float)"
_NEWEST = 2**31 - 1
_CASTED_BY_RUNTIME = "float16"

_AUXILIARY: Mapping[str, frozenset[str]] = {
    "BatchNormalization": frozenset({"scale", "B", "mean", "var", "input_mean", "input_var"}),
    "Dropout": frozenset({"ratio"}),
    "Resize": frozenset({"roi", "scales"}),
}
"""Parameters that stay float32 wherever the schema gives them a type of their own: small, and statistics or
coordinates."""


_MIXED_BODY = frozenset({"MeanVarianceNormalization"})
"""Operators in whose place ONNX Runtime, in float16, puts others, some of which read constants of float32; seen when a
session is made."""

_FAILING = {"ScatterElements": "reduction", "ScatterND": "reduction"}
"""Operators with a kernel for float16 that says, when it is run, that it does not support float16 with this attribute
set."""


Kernel = tuple[int, int, Mapping[str, list[str]]]
"""The first and the last version that it is for, and the types that each type parameter may have."""


@dataclass(frozen=True)
class Narrowing:
    """The positions of the inputs and of the outputs that change their type together."""

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
) -> Narrowing | str:
    """Return what of an operator may be of the element type `name` in place of float32, or why nothing may.

    `inputs` and `outputs` are types as ONNX Runtime writes them, "tensor(float)"; empty where omitted or unknown.
    """
    key = key_of(domain, op)
    place = plain_domain(domain), op
    form = form_of(*place, version) if is_defined(place[0]) else tables.forms.get(place)
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
    for chosen in (narrow - helpers, narrow & made or narrow):
        if runtime == "any" or _runs(form, tables, actual, chosen, name):
            return Narrowing(
                _positions(form.inputs, inputs, chosen),
                _positions(form.outputs, outputs, chosen),
            )
    return f"ONNX Runtime has no kernel for {key} of opset {form.since} in {name} on the CPU"


def failing_attribute(domain: str, op: str) -> str | None:
    """Return the attribute with which the kernel of an operator on the CPU fails in a narrower type; None without."""
    return _FAILING.get(key_of(domain, op))


def _open_outputs(form: Schema, kinds: tuple[str, ...]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the type variable of each float32 output, and the types that it may have."""
    for one, kind in zip(_spread(form.outputs, len(kinds)), kinds):
        if kind == _FLOAT:
            yield one.variable, one.types


def _spread(parameters: Sequence[Parameter], count: int) -> list[Parameter]:
    """Return the parameter of each position; the last one repeats when it is variadic."""
    found = list(parameters[:count])
    if parameters and parameters[-1].variadic:
        found += [parameters[-1]] * (count - len(found))
    return found


def _actual(parameters: Sequence[Parameter], kinds: tuple[str, ...]) -> dict[str, tuple[str, frozenset[str]]]:
    """Return for each type variable of the inputs the type that it has, and those that it may have."""
    pairs = zip(_spread(parameters, len(kinds)), kinds)
    return {one.variable: (kind, one.types) for one, kind in pairs if kind and not one.variable.startswith("tensor(")}


def _positions(parameters: Sequence[Parameter], kinds: tuple[str, ...], chosen: set[str]) -> frozenset[int]:
    numbered = enumerate(zip(_spread(parameters, len(kinds)), kinds))
    return frozenset(place for place, (one, kind) in numbered if kind == _FLOAT and one.variable in chosen)


def _runs(
    form: Schema, tables: Tables, actual: Mapping[str, tuple[str, frozenset[str]]], chosen: set[str], name: str
) -> bool:
    """Return whether a kernel takes the types, or ONNX Runtime puts something in place of the operator."""
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
    """Return whether a kernel takes these types; it may constrain a variable by the name of a parameter."""
    named = {one.name: kinds.get(one.variable, "") for one in form.inputs} | dict(kinds)
    return all(not named.get(key) or named[key] in allowed for key, allowed in types.items())


def _has_body(form: Schema) -> bool:
    schema: Any = schema_of(form.domain, form.name, form.since)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


@dataclass(frozen=True, eq=False)
class Tables:
    """What the installed ONNX Runtime says of itself, as `listed` gives it.

    `kernels` are those of its CPU provider by domain and operator, None where it did not answer, and `forms` the newest
    schemas of operators that onnx does not define.
    """

    kernels: Mapping[tuple[str, str], list[Kernel]] | None
    forms: Mapping[tuple[str, str], Schema]

    @classmethod
    def of(cls, kernels: Sequence[Any], forms: Sequence[Any]) -> Tables:
        """Read what `listed` has given."""
        found: dict[tuple[str, str], list[Kernel]] = {}
        for domain, op, (first, last), types in kernels:
            found.setdefault((plain_domain(domain), op), []).append((first, last, types))
        schemas = {}
        for domain, op, since, inputs, outputs in forms:
            sides = [tuple(Parameter(n, v, frozenset(t), o) for n, v, t, o in side) for side in (inputs, outputs)]
            schemas[domain, op] = Schema(op, domain, since, sides[0], sides[1], {}, {}, False)
        return cls(found, schemas)


def listed() -> list[Any]:
    """List the kernels of the installed ONNX Runtime, and its schemas that onnx does not define. In a worker."""
    known = installed()
    forms = []
    for domain, op in known.names():
        form = None if is_defined(plain_domain(domain)) else known.schema(domain, op, _NEWEST)
        if form is not None:
            sides = [
                [[one.name, one.variable, sorted(one.types), one.option] for one in side]
                for side in (form.inputs, form.outputs)
            ]
            forms.append([domain, op, form.since, *sides])
    return [registered(), forms]
