"""The case files of the standard passes."""

from __future__ import annotations

from functools import cache

import onnx_ir as ir

from support import TESTS
from surgery import testing
from surgery.graph import text
from surgery.registry.passes import Pass


@cache
def read() -> tuple[testing.Case, ...]:
    """Read all of them, once: several tests are about them."""
    return tuple(testing.cases(TESTS / "cases"))


def check(case: testing.Case, *, bless: bool) -> None:
    """Raise AssertionError for an outcome that is not as the case says, or rewrite the case when asked to."""
    if bless and testing.findings(case):
        case = testing.bless(case)
    testing.check(case)


def check_example(declared: Pass) -> None:
    """Raise AssertionError where the example in the docstring of a pass is missing, or is not changed by the pass."""
    example = testing.example(declared)
    assert example is not None, f"{declared.name} has no example in its docstring"
    before, after = (ir.from_proto(text.parse(source)) for source in (example.before, example.after))
    assert text.structural_diff(before, after, declared=True)
