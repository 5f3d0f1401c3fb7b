"""The CPU kernels of ONNX Runtime by release, for builds that cannot list their own.

`cpu_kernels.json` was read from the registries of these releases by `tests/support/kernel_table.py`. A row has the
domain, the operator, its first and last version (null: all later ones), the types of each type variable as a number in
`types`, and the first and last release with this kernel (null: up to the newest). An older form of a contrib operator
has the last release with it, its numbers of inputs and of required outputs, and the attributes that it lacks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

MANY = 2**31 - 1

Release = tuple[int, ...]


def release(version: str) -> Release:
    """Return the first two numbers of a version as a tuple that can be compared."""
    return tuple(int(part) if part.isdecimal() else 0 for part in version.split(".")[:2])


@cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(resources.files(__package__).joinpath("cpu_kernels.json").read_text("utf-8"))
    return found


def releases() -> list[str]:
    """Return the releases in the table, the newest last."""
    return list(_table()["releases"])


def rows(version: str, only: tuple[str, str] | None = None) -> list[list[Any]]:
    """List the CPU kernels of a release, in the form of `kernels.registered`; `only` is a domain and an operator.

    A release between two of the table has the kernels of the older one, a newer one those of the newest.
    """
    types = _table()["types"]
    wanted = release(version)
    covered = [release(one) for one in releases()]
    known = max((one for one in covered if one <= wanted), default=covered[0])
    return [
        [domain, op, [first, MANY if last is None else last], {name: types[number] for name, number in kinds.items()}]
        for domain, op, first, last, kinds, since, until in _table()["rows"]
        if only in (None, (domain, op)) and release(since) <= known and (until is None or known <= release(until))
    ]


@cache
def listed() -> frozenset[tuple[str, str]]:
    """Return the operators with a CPU kernel in any release, as pairs of domain and name."""
    return frozenset((domain, op) for domain, op, *_ in _table()["rows"])


@dataclass(frozen=True)
class OlderForm:
    """The form of a contrib operator in a release: its limits, and the attributes of later releases that it lacks."""

    inputs: int = MANY
    least_outputs: int = 1
    lacks: frozenset[str] = frozenset()


def form(version: str, op: str) -> OlderForm:
    """Return the form of a contrib operator ("com.microsoft::BiasGelu") in a release; no limits for the newest one."""
    for until, inputs, least, lacks in _forms().get(op, ()):
        if release(version) <= release(until):
            return OlderForm(inputs, least, frozenset(lacks))
    return OlderForm()


@cache
def _forms() -> dict[str, list[list[Any]]]:
    found: dict[str, list[list[Any]]] = {}
    for op, *older in _table()["forms"]:
        found.setdefault(op, []).append(older)
    return found
