"""Whether the model of a session agrees with another one of its folder, as the page shows it."""

from pathlib import Path

import numpy as np
import onnx

import surgery
from surgery.features.workbench import chosen_inputs
from surgery.interface.workbench.comparison import compared
from surgery.model.graph import text

FIRST = """g (float[n, 2] x) => (float[n, 2] y) {
    [drop] d = Dropout(x)
    [abs] y = Abs(d)
}"""
SECOND = """g (float[n, 2] x) => (float[n, 2] y) {
    [same] y = Identity(x)
}"""


def test_models_agree_on_some_inputs_and_not_on_others(tmp_path: Path) -> None:
    for name, model in (("first", FIRST), ("second", SECOND)):
        onnx.save(text.parse(model), tmp_path / f"{name}.onnx")
    np.savez(tmp_path / "positive.npz", x=np.array([[1, 2]], np.float32))
    with surgery.Session.open(tmp_path / "first.onnx", fresh=True) as session:
        found = compared(session.snapshot, tmp_path, "second.onnx", None)["agreement"]
        assert not found["ok"] and found["status"] == "different"
        inputs = chosen_inputs.from_file(session.snapshot, tmp_path, "positive.npz").spec
        assert compared(session.snapshot, tmp_path, "second.onnx", inputs)["agreement"]["status"] == "equal"
        session.add({"replace-op": {"nodes": "abs", "op": "Identity", "keeps": "nothing"}})
        assert compared(session.snapshot, tmp_path, "second.onnx", None)["agreement"]["ok"]


def test_an_infinite_error_is_shown(tmp_path: Path) -> None:
    onnx.save(text.parse(FIRST), tmp_path / "first.onnx")
    divided = "g (float[n, 2] x) => (float[n, 2] y) <float zero = {0}> { a = Abs(x) y = Div(a, zero) }"
    onnx.save(text.parse(divided), tmp_path / "divided.onnx")
    with surgery.Session.open(tmp_path / "first.onnx", fresh=True) as session:
        (output,) = compared(session.snapshot, tmp_path, "divided.onnx", None)["agreement"]["outputs"]
    assert output["largest"] == "inf" and output["equal"] == 0 and output["worst"]["changed"] == "inf"
