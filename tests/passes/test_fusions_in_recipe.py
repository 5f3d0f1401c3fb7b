"""What a pass fuses to ONNX Runtime's operators on its own, it also fuses in the recipe, after the passes before it.

A pass that does not know an operator which an earlier step makes never fires in the recipe, while its own cases pass.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import onnx
import pytest
from support import lacking
from support.breadth import sampled
from support.case_files import read

from surgery.engine import recipe
from surgery.engine.pipeline.pipeline import Pipeline
from surgery.engine.recipe.schema import pass_steps
from surgery.features.testing.case import Case
from surgery.model import storage
from surgery.model.graph import text

RECIPE = recipe.load("ort")

PREFERRED = {"fuse-skip-layer-norm", "fuse-skip-rms-norm"}
"""Passes whose operator the target does not prefer; the recipe leaves the sum and the norm apart."""

EXCEPTIONS = {
    "fuse-conv-activation/fuses_any_sum_when_asked": "an option that the recipe does not set",
    "fuse-group-query-attention/fuses_one_head_for_all_queries": "merge-transposes reads one head as a Reshape",
    "fuse-matmul-transpose-scale/fuses_a_reversed_matrix_on_the_left": "fuse-transpose-gemm takes it first",
    "fuse-multi-head-attention/keeps_a_cache_that_the_mask_is_made_from": "the cache stays unfused",
    "fuse-multi-head-attention/reads_one_packed_projection_through_its_split": "fuse-packed-attention takes it",
}


def _made(case: Case) -> set[str]:
    """Return ONNX Runtime's operators that a case expects of its pass."""
    before, after = text.parse(case.before), text.parse(case.after or "")
    return _own(after) - _own(before)


def _own(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in model.graph.node if node.domain == "com.microsoft"}


def _cases() -> list[Case]:
    names = {step.name for step in pass_steps(RECIPE.steps)} - PREFERRED
    wanted = [case for case in read() if case.pass_name in names and case.target == "ort-cpu" and case.after]
    return [case for case in wanted if _is_read(case) and _made(case)]


def _is_read(case: Case) -> bool:
    """Return whether the installed onnx reads the texts of a case; older ones read no empty names in quotes."""
    try:
        text.parse(case.before), text.parse(case.after or "")
    except text.TextError:
        if not lacking.are_old():
            raise
        return False
    return True


@pytest.mark.parametrize("name", sampled(sorted({case.pass_name for case in _cases()}), 4))
def test_the_recipe_makes_what_the_pass_makes(name: str, tmp_path: Path) -> None:
    lost = {}
    for case in _cases():
        key = f"{case.pass_name}/{case.path.stem}"
        if case.pass_name != name or key in EXCEPTIONS:
            continue
        path = tmp_path / "model.onnx"
        onnx.save(text.parse(case.before), path)
        with closing(Pipeline(storage.load(path), RECIPE, trusted=True)) as pipeline:
            pipeline.run(RECIPE.steps)
            pipeline.settle()
            missing = _made(case) - _own(pipeline.model.proto)
        if missing:
            lost[key] = missing
    assert not lost
