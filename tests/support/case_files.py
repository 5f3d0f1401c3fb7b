"""The case files of the standard passes."""

from __future__ import annotations

from functools import cache

import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from support import TESTS, installed, lacking
from surgery.engine.registry.catalog import catalog
from surgery.engine.registry.passes import Pass
from surgery.features import testing
from surgery.model.graph import text


@cache
def read() -> tuple[testing.Case, ...]:
    """Read all of them, once: several tests are about them."""
    return tuple(testing.cases(TESTS / "cases"))


def check(case: testing.Case, *, bless: bool) -> None:
    """Raise AssertionError for an outcome that is not as the case says, or rewrite the case when asked to.

    The test is skipped if the installed releases lack something that the case needs.
    """
    models = [case.model(), *([case.expected()] if case.fires else [])]
    lacking.skip_lacking(*models)
    if case.pass_name == "upgrade-opset":
        lacking.skip_opset(case.options.get("to", 0))
    if bless and testing.findings(case):
        case = testing.bless(case)
    try:
        testing.check(case)
    except AssertionError as error:
        lacking.skip_unnamed(*case.refused, str(error))
        lacking.skip_wide(models[0], *case.refused)
        lacking.skip_invalid(*models)
        reasons = testing.run(models[0], catalog.find(case.pass_name), case.options, target=case.target).reasons
        lacking.skip_unknown(reasons)
        lacking.skip_unrun(set(reasons).difference(case.refused))
        if case.fires:
            _skip_unrun(*models)
        raise


def _skip_unrun(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Skip the test if older releases do not run an expected result, which was verified with the newest ones."""
    reason = installed.difference(before, after) if lacking.are_old() else ""
    if reason:
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} does not run the expected result: {reason}")


def check_example(declared: Pass) -> None:
    """Raise AssertionError where the example in the docstring of a pass is missing, or is not changed by the pass."""
    example = testing.example(declared)
    assert example is not None, f"{declared.name} has no example in its docstring"
    models = [text.parse(source) for source in (example.before, example.after)]
    lacking.skip_lacking(*models)
    before, after = map(ir.from_proto, models)
    if text.structural_diff(before, after, declared=True):
        return
    lacking.skip_unrun(testing.run(models[0], declared, {}, target="ort-cpu").reasons)
    raise AssertionError(f"{declared.name} leaves its example as it is")
