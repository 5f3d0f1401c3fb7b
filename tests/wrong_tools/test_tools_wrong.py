"""Tools as steps on models on which they are known to be wrong, and every pass of onnxoptimizer on a few models.

The models are those of `tests/wrong_tools`, where each tool is called as its own documentation says. Here nothing wrong
may be committed: the step is taken back or contained, or the tool was given the model in a way that makes it right.
`tests/tools/sweep.py` does the same over thousands of models.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from support import TESTS
from support.breadth import sampled

from surgery.engine.pipeline import runner
from surgery.engine.recipe.loader import single_step
from surgery.model import storage
from surgery.model.graph import text

sys.path.insert(0, str(TESTS / "tools"))

import second_opinion
import sweep
import test_wrong_tools as examined

STEPS = {
    "converter": "onnx-version-converter",
    "graphsurgeon-cleanup": "graphsurgeon-fold",
    "graphsurgeon-fold": "graphsurgeon-fold",
    "onnxoptimizer": "onnxoptimizer",
    "onnxruntime": "ort",
    "onnxscript-optimize": "onnxscript-optimize",
    "onnxsim": "onnxsim",
}
WRONG = [case for case in examined.WRONG if case.tool in STEPS]
SAMPLE = ("drop-dropout/keeps_a_mask_that_is_read_at_opset_7", "fuse-conv-bn/folds_in_a_function")
pytestmark = pytest.mark.usefixtures("tools_at_hand")


def options(given: dict[str, Any]) -> dict[str, Any]:
    """Say in the words of the step what a case tells the tool."""
    return {{"to": "target"}.get(key, key): value.lower() if key == "level" else value for key, value in given.items()}


@pytest.mark.parametrize("case", sampled(WRONG, 5), ids=examined.name)
def test_no_wrong_result_is_committed(case: examined.Case) -> None:
    step = single_step(STEPS[case.tool], options(case.options), on_failure="rollback")
    result = runner.apply(case.model, step)
    (record,) = result.steps
    if record.status != "committed":
        assert record.status == "unchanged" or (record.status == "rolled_back" and record.message)
        return
    assert "draws" not in case.caught
    made = storage.resolve(result.proto)
    assert second_opinion.ports(made) == second_opinion.ports(case.model)
    assert second_opinion.checked(made) == ""
    feed = second_opinion.feed(case.model, case.given)
    assert second_opinion.difference(case.model, made, [feed], case.engine) == ""


@pytest.mark.parametrize("name", sampled(SAMPLE, 2))
def test_every_pass_of_onnxoptimizer_is_judged_or_contained(name: str) -> None:
    source = (TESTS / "cases" / f"{name}.onnxtxt").read_text(encoding="utf-8").partition("\n# after")[0]
    outcomes = list(sweep.outcomes(name, storage.from_proto(text.parse(source)), sweep.passes()))
    assert [outcome.step for outcome in outcomes] == [title for title, *_ in sweep.passes()]
    assert [str(outcome) for outcome in outcomes if outcome.status in sweep.BAD] == []
    assert {outcome.status.split()[0] for outcome in outcomes} >= {"unchanged", "rolled"}
