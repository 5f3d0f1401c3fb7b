"""The reason for which a target does not run an operator."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from surgery.model.targets import kernel_table
from surgery.model.targets.installed_kernels import kernels_of
from surgery.model.targets.support import Support
from surgery.model.targets.target import STANDARD, Target

if TYPE_CHECKING:
    import onnx_ir as ir

_OTHER = "ort-cpu"
"""The target to choose where none is chosen: a table has its kernels, which takes a few milliseconds to read."""


def lacking(target: Target, op: str, dtype: ir.DataType | None = None) -> str:
    """Return that a target has no `op` ("com.microsoft::BiasGelu") in an element type; for `standard`, name another."""
    kind = dtype.name.lower() if dtype is not None else None
    what = f"{op} in {kind}" if kind is not None and target.has(op) else op
    has_other = target is STANDARD and any(row.takes(0, kind) for row in _cpu_kernels(op))
    return f"the target '{target.name}' has no {what}{f'; {_OTHER} has it' if has_other else ''}"


@cache
def _cpu_kernels(op: str) -> tuple[Support, ...]:
    """Return the CPU kernels of an operator in the newest known release of ONNX Runtime."""
    return kernels_of(kernel_table.releases()[-1], op)
