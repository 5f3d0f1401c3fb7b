"""Passes rely on valid nodes. What an invalid model makes them raise is no defect of theirs, and never ends a run."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import onnx
import pytest
from onnx import helper
from support.breadth import sampled

from surgery.base.errors import SurgeryError
from surgery.engine.pipeline import runner
from surgery.engine.recipe import parse
from surgery.engine.registry.catalog import catalog
from surgery.model.graph import text


def _without_attribute(model: onnx.ModelProto) -> None:
    del model.graph.node[-1].attribute[:]


def _without_inputs(model: onnx.ModelProto) -> None:
    del model.graph.node[-1].input[:]


def _attribute(name: str, value: object) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        attributes = [found for found in model.graph.node[-1].attribute if found.name != name]
        del model.graph.node[-1].attribute[:]
        model.graph.node[-1].attribute.extend([*attributes, helper.make_attribute(name, value)])

    return change


_PIECES = (
    "<int64[1] s = {0}, int64[1] e = {1}, int64[1] f = {2}, int64[1] a = {0}>"
    " { p = Slice(x, s, e, a) q = Slice(x, e, f, a) y = Concat<axis = 0>(p, q) }"
)
_BRANCHES = (
    "g (bool c, float[2] x) => (float[2] y) { y = If<then_branch = t () => (float[2] a) { a = Relu(x) },"
    " else_branch = e () => (float[2] b) { b = Exp(x) }>(c) }"
)
_TURNED = "g (float[2,3] x) => (float[p,q] y) { r = Relu(x) y = Transpose<perm = [1,0]>(r) }"
MALFORMED = {
    "Concat without an axis": (f"g (float[2,3] x) => (float[2,3] y) {_PIECES}", _without_attribute),
    "Concat with a text for an axis": (f"g (float[2,3] x) => (float[2,3] y) {_PIECES}", _attribute("axis", "last")),
    "If without branches": (_BRANCHES, _without_attribute),
    "If with a number for a branch": (_BRANCHES, _attribute("then_branch", 3)),
    "Mul without inputs": ("g (float[2] x) => (float[2] y) { r = Relu(x) y = Mul(r, x) }", _without_inputs),
    "Transpose of more axes than there are": (_TURNED, _attribute("perm", [0, 2])),
    "Transpose with a repeated axis": (_TURNED, _attribute("perm", [1, 1])),
    "Transpose with one number": (_TURNED, _attribute("perm", 1)),
    "two Transposes of a matrix, one of them of axis 2": (
        "g (float[2,3] x) => (float[p,q] y) { t = Transpose<perm = [0,2]>(x) y = Transpose<perm = [1,0]>(t) }",
        lambda model: None,
    ),
    "Einsum with numbers for an equation": (
        'g (float[2,3] x, float[3,2] z) => (float[p,q] y) { y = Einsum<equation = "ij,jk->ik">(x, z) }',
        _attribute("equation", [1, 2]),
    ),
    "DequantizeLinear of an axis that is not there": (
        "g (float[2,2] x) => (float[p,q] y) <int8[2,2] w = {1,2,3,4}, float[2] s = {1,2}>"
        " { d = DequantizeLinear<axis = 7>(w, s) y = MatMul(x, d) }",
        lambda model: None,
    ),
    "Reshape to two counts": (
        "g (float[2,3] x) => (float[p,q] y) <int64[2] s = {-1,-1}, int64[2] t = {4,4}>"
        " { r = Reshape(x, s) y = Reshape(r, t) }",
        lambda model: None,
    ),
}


def _passes_without_options() -> list[str]:
    found = []
    for one in catalog.passes().values():
        with suppress(SurgeryError):
            one.bind({}, Path())
            # What the tools of others do with an invalid model is their affair: their failures are named as theirs.
            found += [one.name] if one.is_standard and one.theme != "tools" else []
    return found


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("mode", sampled(["off", "each"], 2))
def test_no_pass_breaks_on_an_invalid_model(name: str, mode: str) -> None:
    source, spoil = MALFORMED[name]
    model = text.parse(source)
    spoil(model)
    steps = ", ".join(
        _passes_without_options() if mode == "off" else ("pieces-to-gather", "merge-layouts", "to-float16")
    )
    recipe = f'on_failure: rollback\nverify: {{mode: "{mode}"}}\nsteps: [{steps}]'
    found = runner.apply(model, parse(recipe))
    broken = [(step.name, step.message) for step in found.steps if step.exit_code == 3 or step.defects]
    assert broken == [] and found.exit_code != 3
    assert not any("internal error" in step.message for step in found.steps)


def test_what_the_model_lacks_is_the_reason() -> None:
    source, spoil = MALFORMED["Concat without an axis"]
    model = text.parse(source)
    spoil(model)
    (step,) = runner.apply(model, parse("steps: [pieces-to-gather]")).steps
    assert [one.reason for one in step.refusals if "is invalid" in one.reason]
    assert "'axis' is missing" in step.refusals[-1].reason
