"""Operators of which a file with facts does not say what it says of others, listed question by question.

A file with a question has a function `without_row`: it yields what is missing of an operator. Asked is for every
operator of the newest opset of ONNX, in the domains ai.onnx and ai.onnx.ml, and for every operator of com.microsoft
that the installed ONNX Runtime runs on the CPU. Run it after a row or an operator was added:
`python tests/support/operators_without_rows.py`.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator

import onnx.defs

from surgery.base import operators
from surgery.base.operators.forms import Schema

DOMAINS = ("", "ai.onnx.ml")
CONTRIB = "com.microsoft"
ELSEWHERE = ("surgery.model.runtime.result_types", "surgery.features.inspection.silent_changes")
"""Files with a question that only their folder asks."""

Question = Callable[[Schema], Iterator[str]]


def questions() -> dict[str, Question]:
    """Return what each file asks, by the name of the file."""
    names = [f"{operators.__name__}.{item.name}" for item in pkgutil.iter_modules(operators.__path__)]
    modules = {name: importlib.import_module(name) for name in (*names, *ELSEWHERE)}
    return {
        name.rpartition(".")[2]: module.without_row
        for name, module in modules.items()
        if hasattr(module, "without_row")
    }


def asked_for() -> list[Schema]:
    """Return the newest form of each operator that must be known."""
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    on_cpu = {
        (kernel.domain, kernel.op_name)
        for kernel in native.get_all_opkernel_def()
        if kernel.provider == "CPUExecutionProvider"
    }
    standard = [form for form in onnx.defs.get_all_schemas() if form.domain in DOMAINS]
    contrib = [
        form
        for form in native.get_all_operator_schema()
        if form.domain == CONTRIB and (form.domain, form.name) in on_cpu
    ]
    newest: dict[tuple[str, str], Schema] = {}
    for form in (*standard, *contrib):
        key = form.domain, form.name
        if not form.deprecated and (key not in newest or newest[key].since < form.since_version):
            newest[key] = Schema.of(form)
    return [newest[key] for key in sorted(newest)]


def without_rows(schemas: Iterable[Schema]) -> dict[str, dict[str, list[str]]]:
    """Return what is missing, by question and operator."""
    listed = list(schemas)
    found = {
        name: {schema.key: missing for schema in listed if (missing := list(question(schema)))}
        for name, question in questions().items()
    }
    return {name: operators for name, operators in found.items() if operators}


if __name__ == "__main__":
    for name, missing in without_rows(asked_for()).items():
        sys.stdout.write(f"{questions()[name].__module__.replace('.', '/')}.py\n")
        sys.stdout.writelines(f"    {op}: {', '.join(what)}\n" for op, what in missing.items())
