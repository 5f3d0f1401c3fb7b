"""The kernels of the installed ONNX Runtime, from its own registry."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache

from surgery.targets.support import ONNX, Support
from surgery.workers import Worker
from surgery.workers.installed import require_runtime


@cache
def kernels(provider: str) -> Mapping[tuple[str, str], tuple[Support, ...]]:
    """Return the kernels of an execution provider by domain and operator; empty if it is not installed.

    They are listed in a worker; raises `SurgeryError` if that fails.
    """
    require_runtime()
    with Worker(timeout=60) as worker:
        listed = worker.call("surgery.operators.kernels:registered", provider=provider)
    found: dict[tuple[str, str], list[Support]] = defaultdict(list)
    for domain, op, (first, last), types in listed:
        allowed = {variable: frozenset(map(element, names)) for variable, names in types.items()}
        found["" if domain == ONNX else domain, op].append(Support((first, last), allowed))
    return {key: tuple(rows) for key, rows in found.items()}


def element(kind: str) -> str:
    """Return the element type in a type such as "tensor(float)"; return other types unchanged."""
    inner = re.fullmatch(r"tensor\((\w+)\)", kind)
    return inner.group(1) if inner is not None else kind
