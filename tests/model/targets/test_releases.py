"""Contrib operators in the form that an older release of ONNX Runtime has: fewer inputs, outputs or attributes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from support import TESTS

import surgery
from surgery.engine.recipe import PassStep, Recipe
from surgery.features import testing
from surgery.features.inspection.fit import fit
from surgery.model import storage
from surgery.model.targets.kernel_table import MANY, OlderForm, form, releases
from surgery.model.targets.profile import read
from surgery.model.targets.support import Support

GROUPED = "com.microsoft::GroupQueryAttention"
FUSE = Recipe("r", steps=(PassStep("fuse-group-query-attention"),))


def of_release(folder: Path, version: str) -> Path:
    """Write the profile of a release of ONNX Runtime on the CPU."""
    path = folder / "old.yaml"
    path.write_text(f'target: old\nrelease: "{version}"\ndomains: [ai.onnx, com.microsoft]\nexpands: true\n')
    return path


def model(situation: str) -> onnx.ModelProto:
    """Return the model of a case of fuse-group-query-attention."""
    return testing.read_case(TESTS / "cases" / "fuse-group-query-attention" / f"{situation}.onnxtxt").model()


def grouped(proto: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in proto.graph.node if node.op_type == "GroupQueryAttention"]


# The releases are those whose schemas first had the input, output or attribute (contrib_defs, bert_defs.cc).
@pytest.mark.parametrize(
    ("version", "inputs", "outputs", "has_causal"),
    [("1.22.0", 11, 3, False), ("1.24.4", 12, 3, False), ("1.27.1", 14, 1, False), ("1.30.0", 16, 1, True)],
)
def test_an_operator_had_another_form(version: str, inputs: int, outputs: int, has_causal: bool) -> None:
    found = form(version, GROUPED)
    assert (found.inputs, found.least_outputs, "causal" not in found.lacks) == (inputs, outputs, has_causal)


def test_the_newest_form_and_other_operators_have_no_limits() -> None:
    assert form(releases()[-1], GROUPED) == form("99.0", GROUPED) == OlderForm(MANY, 1, frozenset())
    assert form("1.22.0", "com.microsoft::BiasGelu") == form("1.22.0", "GroupQueryAttention") == OlderForm()


def test_a_node_has_the_outputs_that_an_older_release_requires(tmp_path: Path) -> None:
    before = model("fuses_a_causal_mask_for_a_target_whose_kernel_is_causal")
    old, new = (surgery.apply(before, FUSE, target=of_release(tmp_path, version)) for version in ("1.26", "1.27"))
    assert old.ok and new.ok
    assert [len(node.output) for node in grouped(old.proto)] == [3]
    assert [len(node.output) for node in grouped(new.proto)] == [1]


@pytest.mark.parametrize(
    ("situation", "version", "lacks"),
    [
        ("fuses_groups_without_a_mask", "1.29", "causal 0"),
        ("fuses_a_causal_mask_of_infinities", "1.31", "17 inputs"),
    ],
)
def test_a_node_that_an_older_release_rejects_is_not_made(
    tmp_path: Path, situation: str, version: str, lacks: str
) -> None:
    before = model(situation)
    target = of_release(tmp_path, version)
    result = surgery.apply(before, FUSE, target=target)
    assert result.ok and not grouped(result.proto)
    assert [refused.reason for refused in result.steps[0].refusals] == [
        f"the target 'old' has no {GROUPED} with {lacks}"
    ]
    newest = surgery.apply(before, FUSE, target="ort-cpu").proto
    name = f"{GROUPED} is run with at most 16 inputs" if "inputs" in lacks else f"{GROUPED} with {lacks}"
    found = [row.misfit.reason.words for row in fit(storage.from_proto(newest), read(target)).rows]
    assert found == [name if "inputs" in lacks else f"{name}: the target has no such attribute"]


@pytest.mark.parametrize(
    ("inputs", "attributes", "expected"),
    [
        (2, {}, None),
        (3, {"causal": 1}, "3 inputs"),
        (2, {"causal": 1}, "causal 1"),
        (2, {"causal": None, "other": 4}, None),
        (2, {"other": 5}, "other 5"),
    ],
)
def test_what_is_rejected_of_a_node(inputs: int, attributes: dict[str, int | None], expected: str | None) -> None:
    row = Support(attributes={"causal": (), "other": (3, 4)}, inputs=2)
    assert row.rejected(inputs, attributes) == expected
