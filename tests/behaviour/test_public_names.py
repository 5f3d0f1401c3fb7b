"""The public names of the package, as a prompt shows them."""

from pathlib import Path

from support import ROOT

import surgery

MODEL = ROOT / "models" / "resnet-tiny.onnx"


def test_a_prompt_lists_every_public_name() -> None:
    listed = set(dir(surgery))
    assert set(surgery.__all__) <= listed
    assert {"apply", "run", "plan", "check", "opset", "explain", "histogram", "diff", "inspect", "bench"} <= listed
    for name in surgery.__all__:
        assert getattr(surgery, name) is not None
    assert "TYPE_CHECKING" not in dir(surgery)


def test_results_are_shown_in_one_line(tmp_path: Path) -> None:
    result = surgery.apply(MODEL, "tidy", output=tmp_path / "out.onnx")
    shown = [
        repr(surgery.load(MODEL)),
        repr(result),
        repr(surgery.diff(MODEL, tmp_path / "out.onnx")),
        repr(surgery.verify(MODEL, tmp_path / "out.onnx")),
    ]
    assert all("\n" not in one and len(one) < 120 for one in shown)
    assert shown[0] == "<StoredModel 'resnet-tiny.onnx': 175 nodes, ai.onnx 17>"
    assert shown[1] == f"<Result of 'tidy': ok, 175 -> {result.output.nodes} nodes, {len(result.steps)} steps>"
    assert shown[2].startswith("<Difference: ") and shown[3].startswith("<Pair: ok, equal on ")
