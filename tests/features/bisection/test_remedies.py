"""What makes a pass fire where it does not: each change is tried, and said with the places that it helps at."""

import json
from pathlib import Path

import onnx
import pytest
from support.lacking import skip_opset
from support.short_models import shortened

from surgery.engine import recipe as recipes
from surgery.features.bisection.remedies import Remedies, remedies
from surgery.interface.commands import main
from surgery.model import storage
from surgery.model.graph import text

HARD_SIGMOID_AND_A_FACTOR = """
<ir_version: 9, opset_import: ["" : 17]>
g (float[N,4] x) => (float[N,4] y)
<float three = {3}, float zero = {0}, float six = {6}, float two = {2}> {
    a = Add(x, three)
    b = Clip(a, zero, six)
    c = Div(b, six)
    y = Mul(c, two)
}
"""


def tried(model: onnx.ModelProto, steps: str, name: str) -> Remedies:
    return remedies(storage.from_proto(model), recipes.parse(f"steps: {steps}"), name, {})


def test_the_lowest_sufficient_opset_is_named() -> None:
    found = tried(shortened("bert-tiny", layers=2), "[fuse-gelu]", "fuse-gelu")
    (left,) = found.left
    assert left.reason == "Gelu has this form since opset 20"
    assert len(left.places) == 2
    assert [(one.change, one.places) for one in left.remedies] == [
        ("target: ort-cpu", 2),  # which has Gelu as an operator of its own
        ("'upgrade-opset: {to: 20}' first", 2),
        ("recipe 'modern', whose steps run first", 2),
    ]
    assert "'fold-constants' first" in found.in_vain
    assert not any("upgrade-opset" in change for change in found.in_vain)


def test_an_interfering_earlier_step_is_named() -> None:
    found = tried(text.parse(HARD_SIGMOID_AND_A_FACTOR), "[merge-constants, fuse-hard-sigmoid]", "fuse-hard-sigmoid")
    (left,) = found.left
    assert "merge-constants" in left.passes
    assert any(one.change.startswith("'fuse-hard-sigmoid' before 'merge-constants' (") for one in left.remedies)


def test_a_pass_without_refusals_has_no_remedies() -> None:
    found = tried(text.parse(HARD_SIGMOID_AND_A_FACTOR), "[fuse-hard-sigmoid]", "fuse-hard-sigmoid")
    assert found == Remedies((), ())


def test_the_source_line_of_the_export_is_reported() -> None:
    found = tried(shortened("bert-tiny", layers=2), "[fuse-gelu]", "fuse-gelu")
    assert "transformers/activations.py" in found.left[0].exported
    assert found.left[0].exported.endswith("intermediate_act_fn")


def test_the_command_shows_and_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hard_sigmoid.onnx"
    onnx.save(text.parse(HARD_SIGMOID_AND_A_FACTOR), path)
    (tmp_path / "r.yaml").write_text("steps: [merge-constants, fuse-hard-sigmoid]\n")
    arguments = ["why", "fuse-hard-sigmoid", str(path), "--recipe", str(tmp_path / "r.yaml"), "--remedies"]
    assert main(arguments) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "fires at 1 of them with: 'fuse-hard-sigmoid' before 'merge-constants'" in shown
    assert main([*arguments, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["remedies"]["left"][0]["remedies"][0]["places"] == 1


ATTENTION_BY_EINSUM = """
<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[B,S,2,8] q, float[B,T,2,8] k, float[B,2,T,8] v) => (float[B,2,S,8] y) {
    product = Einsum<equation = "bshd,bthd->bhst">(q, k)
    p = Softmax(product)
    y = MatMul(p, v)
}
"""


def test_the_pass_for_an_operator_that_hides_a_pattern_is_tried() -> None:
    found = tried(text.parse(ATTENTION_BY_EINSUM), "[fuse-multi-head-attention]", "fuse-multi-head-attention")
    assert "'replace-einsum' first" in found.in_vain
    without = tried(text.parse(HARD_SIGMOID_AND_A_FACTOR), "[fuse-gelu]", "fuse-gelu")
    assert "'replace-einsum' first" not in without.in_vain


def test_a_shipped_recipe_whose_steps_help_is_named() -> None:
    skip_opset(23)
    (left,) = tried(shortened("bert-tiny", layers=2), "[fuse-attention]", "fuse-attention").left
    assert [(one.change, one.places) for one in left.remedies] == [("recipe 'modern', whose steps run first", 2)]
