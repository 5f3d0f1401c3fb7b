"""The kernels of the installed ONNX Runtime, as its own registry lists them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache

from surgery.targets.support import ONNX, Support
from surgery.workers import Worker


@cache
def kernels(provider: str) -> Mapping[tuple[str, str], tuple[Support, ...]]:
    """Return what an execution provider runs, by domain and operator; nothing where it is not installed.

    In a worker; `SurgeryError` where that fails.
    """
    with Worker(timeout=60) as worker:
        listed = worker.call("surgery.operators.kernels:registered", provider=provider)
    found: dict[tuple[str, str], list[Support]] = defaultdict(list)
    for domain, op, (first, last), types in listed:
        allowed = {variable: frozenset(map(element, names)) for variable, names in types.items()}
        found["" if domain == ONNX else domain, op].append(Support((first, last), allowed))
    return {key: tuple(rows) for key, rows in found.items()}


def element(kind: str) -> str:
    """Give the element type of "tensor(float)"; other types as they are."""
    inner = re.fullmatch(r"tensor\((\w+)\)", kind)
    return inner.group(1) if inner is not None else kind
