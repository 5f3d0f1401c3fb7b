"""Support of operators in runtimes: the types of ONNX Runtime's CPU kernels, and known failures.

The tables of kernels and schemas are read from the runtime itself, in a worker process. A build that crashes when it
lists its kernels has those of its release in `kernel_table`.
"""

from __future__ import annotations

import os
import resource
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, NoReturn

from surgery.base.operators.forms import Schema
from surgery.model.targets.kernel_table import rows

if TYPE_CHECKING:
    import onnx_ir as ir

_NEWEST = 2**31 - 1

_USUAL_TYPES = frozenset({"FLOAT", "FLOAT16"})
"""The element types in which runtimes compute an operator, unless known otherwise."""

_TYPES = {
    "Gemm": frozenset({"FLOAT16", "FLOAT", "DOUBLE", "BFLOAT16"}),
    "Pad": frozenset({"FLOAT", "DOUBLE", "INT8", "INT32", "INT64", "UINT8", "UINT32", "UINT64"}),
}
"""Exceptions by operator. The standard has more types: Gemm of integers, double activations, Pad of float16."""


def is_computed(op: str, dtype: ir.DataType | None) -> bool:
    """Return whether runtimes compute an operator in a type, so that a pass may produce it; False for None."""
    return dtype is not None and dtype.name in _TYPES.get(op, _USUAL_TYPES)


NO_FLOAT64 = frozenset({"GRU", "LSTM"})
"""Operators whose float64 kernel fails at run time, because it does not support float64 yet."""

MISTAKEN_BY_EVALUATOR = {("BatchNormalization", 7), ("BatchNormalization", 9), ("RoiAlign", 10)}
"""Operators and versions that the reference evaluator of onnx 1.23 computes incorrectly: it normalizes with batch
statistics, and shifts regions by half a pixel."""

Constraints = Mapping[str, Sequence[str]]
"""The types of a kernel, such as "tensor(double)", by the name of the type variable or of the parameter."""


_CPU = "CPUExecutionProvider"


def registered(provider: str = _CPU) -> list[list[Any]]:
    """List the kernels of the installed ONNX Runtime for a provider: domain, operator, versions, types.

    A build that crashes when it lists them has the CPU kernels of its release, and no known kernels of other providers.
    """
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    if not lists_kernels():
        return rows(onnxruntime.__version__) if provider == _CPU else []
    return [
        [kernel.domain, kernel.op_name, list(kernel.version_range), dict(kernel.type_constraints)]
        for kernel in native.get_all_opkernel_def()
        if kernel.provider == provider
    ]


def of_build(provider: str) -> list[Any]:
    """Return the release of the installed ONNX Runtime, and its kernels for a provider; see `registered`."""
    import onnxruntime

    return [onnxruntime.__version__, registered(provider)]


_ALWAYS_THERE = frozenset({_CPU, "AzureExecutionProvider", "XnnpackExecutionProvider"})
"""Execution providers that need no shared library of their own."""


@cache
def lists_kernels() -> bool:
    """Return whether the installed ONNX Runtime can list its kernels without crashing this process.

    For the list it creates every provider of the build, and follows a null pointer for one that cannot be created, such
    as TensorRT without its libraries. So builds with such providers are tried in a fork first.
    """
    import onnxruntime

    if _ALWAYS_THERE.issuperset(onnxruntime.get_available_providers()):
        return True
    with warnings.catch_warnings():
        # The child runs native code only, and uses no lock of another thread.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        _list_and_exit()
    return os.waitpid(child, 0)[1] == 0


def _list_and_exit() -> NoReturn:
    """List the kernels without messages, and end this process with status 0 unless it crashes."""
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        native.get_all_opkernel_def()
        code = 0
    finally:
        os._exit(code)


def widened(kind: str) -> str:
    """Return a type with float64 instead of a narrower float."""
    for name in ("(float16)", "(bfloat16)", "(float)"):
        kind = kind.replace(name, "(double)")
    return kind


class Kernels:
    """The kernels and schemas of the installed runtime."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, str, int], Schema | None] = {}

    @cached_property
    def _kernels(self) -> Mapping[tuple[str, str], list[tuple[int, int, Constraints]]]:
        found: dict[tuple[str, str], list[tuple[int, int, Constraints]]] = defaultdict(list)
        for domain, op, (begin, end), constraints in registered():
            found[domain, op].append((begin, end, constraints))
        return found

    @cached_property
    def _schemas(self) -> Mapping[tuple[str, str], list[Any]]:
        from onnxruntime.capi import onnxruntime_pybind11_state as native

        found = defaultdict(list)
        for schema in native.get_all_operator_schema():
            found[schema.domain, schema.name].append(schema)
        return found

    def schema(self, domain: str, op_type: str, opset: int) -> Schema | None:
        """Return the schema at an opset; None if the runtime does not know the operator."""
        key = domain, op_type, opset
        if key not in self._read:
            older = [item for item in self._schemas.get((domain, op_type), ()) if item.since_version <= opset]
            self._read[key] = Schema.of(max(older, key=lambda item: item.since_version)) if older else None
        return self._read[key]

    def names(self) -> list[tuple[str, str]]:
        """List the operators of the runtime as pairs of domain and name."""
        return list(self._schemas)

    def of(self, domain: str, op_type: str, since: int) -> list[Constraints]:
        """List the type constraints of the kernels of an operator; empty if there is no kernel."""
        return [
            constraints
            for begin, end, constraints in self._kernels.get((domain, op_type), ())
            if begin == since or (begin < since <= end and end != _NEWEST)
        ]


@cache
def installed() -> Kernels:
    """Return the kernels and schemas of the installed runtime, which are read once per process."""
    return Kernels()


def choose(
    kernels: Sequence[Constraints], actual: Mapping[str, tuple[str, frozenset[str]]], wide: Sequence[str]
) -> dict[str, bool] | None:
    """Choose the type variables that can be float64; return None if no kernel accepts the node.

    `actual` has, for each variable, its current type and the names under which a kernel may constrain it; `wide` lists
    the variables that should be float64.
    """
    for choice in _choices(wide):
        types = {name: widened(kind) if choice.get(name) else kind for name, (kind, _) in actual.items()}
        for constraints in kernels:
            if all(
                types[name] in constraints[key]
                for name, (_, keys) in actual.items()
                for key in keys
                if key in constraints
            ):
                return choice
    return None


def _choices(names: Sequence[str]) -> Iterator[dict[str, bool]]:
    """Yield all assignments of True or False to the names, those with most True first."""
    ways = sorted(product((True, False), repeat=len(names)), key=lambda way: -sum(way))
    for way in ways:
        yield dict(zip(names, way))
