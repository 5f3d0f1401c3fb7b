"""What is said of inputs and outputs in another order."""

from pathlib import Path

import onnx
import pytest

from surgery.interface import commands as cli
from surgery.model.graph import text
from surgery.model.proto.signature import signature

MODEL = "g (float[N,3] a, float[N,3] b) => (float[N,3] y, float[N,3] z) { y = Sub(a, b) z = Neg(b) }"


def test_the_new_order_is_named() -> None:
    model = text.parse(MODEL)
    swapped = text.parse(MODEL.replace("float[N,3] a, float[N,3] b)", "float[N,3] b, float[N,3] a)"))
    (said,) = signature(model).differences(signature(swapped))
    assert said == "the inputs have another order: b, a; values are compared by name"


def test_long_lists_are_cut() -> None:
    ports = [f"float[2] i{number}" for number in range(12)]
    models = [text.parse(f"g ({', '.join(order)}) => (float[2] y) {{ y = Neg(i0) }}") for order in (ports, ports[::-1])]
    (said,) = signature(models[0]).differences(signature(models[1]))
    assert "i11, i10, i9, i8, i7, i6, i5, i4 and 4 more; values" in said


def test_a_reordered_model_is_equal_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(text.parse(MODEL), path)
    assert (
        cli.main(["run", "reorder", str(path), "--set", "inputs=[b, a]", "--set", "outputs=[z]", "-o", str(out)]) == 0
    )
    made = onnx.load(out).graph
    assert [value.name for value in (*made.input, *made.output)] == ["b", "a", "z", "y"]
    capsys.readouterr()
    assert cli.main(["verify", str(path), str(out)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "equal on" in shown and "the inputs have another order: b, a" in shown
