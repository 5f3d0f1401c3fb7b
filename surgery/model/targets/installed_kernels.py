"""The kernels of the installed ONNX Runtime, from its own registry, and those of other releases."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from surgery.base.workers import Worker
from surgery.base.workers.installed import require_runtime
from surgery.model.targets.kernel_table import form, rows
from surgery.model.targets.support import ONNX, Support


@cache
def kernels(provider: str) -> Mapping[tuple[str, str], tuple[Support, ...]]:
    """Return the kernels of an execution provider by domain and operator; empty if it is not installed.

    They are listed in a worker; raises `SurgeryError` if that fails.
    """
    require_runtime()
    with Worker(timeout=60) as worker:
        return _by_operator(*worker.call("surgery.model.targets.kernels:of_build", provider=provider))


@cache
def kernels_of_release(version: str) -> Mapping[tuple[str, str], tuple[Support, ...]]:
    """Return the CPU kernels of a release of ONNX Runtime by domain and operator, from our own table."""
    return _by_operator(version, rows(version))


def kernels_of(version: str, op: str) -> tuple[Support, ...]:
    """Return the CPU kernels of one operator ("com.microsoft::BiasGelu") in a release of ONNX Runtime."""
    domain, _, name = op.rpartition("::")
    return _by_operator(version, rows(version, (domain or ONNX, name))).get((domain, name), ())


def _by_operator(version: str, listed: Iterable[Any]) -> Mapping[tuple[str, str], tuple[Support, ...]]:
    found: dict[tuple[str, str], list[Support]] = defaultdict(list)
    for domain, op, (first, last), types in listed:
        allowed = {variable: frozenset(map(element, names)) for variable, names in types.items()}
        of = form(version, f"{domain}::{op}")
        lacking: Mapping[str, tuple[Any, ...]] = dict.fromkeys(of.lacks, ())
        row = Support((first, last), allowed, attributes=lacking, inputs=of.inputs, least_outputs=of.least_outputs)
        found["" if domain == ONNX else domain, op].append(row)
    return {key: tuple(rows) for key, rows in found.items()}


def element(kind: str) -> str:
    """Return the element type in a type such as "tensor(float)"; return other types unchanged."""
    inner = re.fullmatch(r"tensor\((\w+)\)", kind)
    return inner.group(1) if inner is not None else kind
