"""Arithmetic in options of passes: what is computed, what stays a text, and what is said of mistakes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal

import onnx
import pytest

from surgery.engine import recipe
from surgery.engine.registry.arithmetic import evaluate, looks_arithmetic
from surgery.engine.registry.options import Option, Size
from surgery.interface import commands as cli
from surgery.model.graph import text


def validated(annotation: Any, value: Any) -> Any:
    return Option("o", annotation, None, "").validate(value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("1/255", 1 / 255),
        ("0.485*255", 0.485 * 255),
        ("-(1 + 2) * 3", -9),
        ("2**-8", 2**-8),
        ("2 ** 3 ** 2", 512),
        ("+1e-3/2", 5e-4),
        ("(0)", 0),
        (" 1 - 2 - 3 ", -4),
    ],
)
def test_numbers_are_computed(given: str, expected: float) -> None:
    assert evaluate(given) == expected
    assert validated(float, given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("1/0", "'1/0' divides by zero"),
        ("10**400", "'10**400' is too large"),
        ("1e308*10", "'1e308*10' is too large"),
        ("(-1)**0.5", "'(-1)**0.5' is not a real number"),
        ("1/x", "'1/x' has 'x' at column 3; only numbers, + - * / ** and ( ) are known"),
        ("2*abs(3)", "'2*abs(3)' has 'abs(3)' at column 3"),
        ("x/2", "'x/2' has 'x' at column 1"),
        ("1//2", "'1//2' has '1//2' at column 1"),
        ("1 + True", "'1 + True' has 'True' at column 5"),
        ("(1, 2*3)", "'(1, 2*3)' has '(1, 2*3)' at column 1"),
        ("1/", "'1/' is no arithmetic"),
        ("2 3*4", "'2 3*4' is no arithmetic: see column"),
        ("(1+2", "'(1+2' is no arithmetic: see column"),
        ("1+" * 99 + "11", "has more than 200 characters"),
        ("-" * 90 + "1", "is nested too deeply"),
    ],
)
def test_mistakes_are_located(given: str, message: str) -> None:
    with pytest.raises(ValueError, match="'") as error:
        evaluate(given if "200" not in message else given * 2)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("most", "more"),
    [
        ("1" * 198 + "*1", "1" * 199 + "*1"),
        ("-" * 50 + "1", "-" * 51 + "1"),
        ("1" + "*1" * 50, "1" + "*1" * 51),
        ("1**" * 50 + "1", "1**" * 51 + "1"),
    ],
)
def test_the_limits_on_length_and_depth_are_exact(most: str, more: str) -> None:
    assert evaluate(most) in (1, float("1" * 198))
    with pytest.raises(ValueError, match="200 characters" if len(more) > 200 else "nested too deeply"):
        evaluate(more)


def test_numbers_and_words_are_no_arithmetic() -> None:
    assert not any(map(looks_arithmetic, ["1", "-1e-5", "inf", "nan", "abc", "a-b", "", "1_000", "-x"]))
    with pytest.raises(ValueError, match="valid number"):
        validated(float, "abc")
    with pytest.raises(ValueError, match="'x/2' has 'x' at column 1"):
        validated(list[float], [1, "x/2"])


@pytest.mark.parametrize(
    ("annotation", "given", "expected"),
    [
        (float | None, "1/4", 0.25),
        (int, "2*3", 6),
        (int | None, "2**4", 16),
        (list[float], ["1/2", 3], [0.5, 3]),
        (float | list[float], ["1/2", "1/4"], [0.5, 0.25]),
        (float | list[float], "1/2", 0.5),
        (tuple[float, float] | None, ["-1/2", "1/2"], (-0.5, 0.5)),
        (tuple[float, ...], ["1/2", "1/2", "1/2"], (0.5, 0.5, 0.5)),
        (dict[str, float], {"a": "1/8"}, {"a": 0.125}),
        (dict[str, list[float]], {"a": ["1/8"]}, {"a": [0.125]}),
        # Where a text is a value of its own, it stays.
        (str, "1/2", "1/2"),
        (int | str, "1/2", "1/2"),
        (dict[str, int | str], {"n": "2*n"}, {"n": "2*n"}),
        (list[str], ["1/2"], ["1/2"]),
        (float | Literal["1/2"], "1/2", "1/2"),
        (Size, "1MB", 1_000_000),
        (Annotated[Path, "file"], "1/2", Path("1/2")),
    ],
)
def test_options_of_each_type(annotation: Any, given: Any, expected: Any) -> None:
    assert validated(annotation, given) == expected


def test_a_whole_number_is_required_where_one_is() -> None:
    with pytest.raises(ValueError, match="integer"):
        validated(int, "1/2")


MODEL = "g (float[N,3,4,4] x) => (float[N,3,4,4] y) { y = Neg(x) }"


def test_the_command_line_and_recipes_take_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out, other = tmp_path / "m.onnx", tmp_path / "a.onnx", tmp_path / "b.onnx"
    onnx.save(text.parse(MODEL), path)
    settings = {"scale": "1/255", "mean": "[0.485*255, 2*3, 1]", "dtype": "uint8"}
    flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    assert cli.main(["run", "embed-preprocessing", str(path), *flags, "-o", str(out), "--no-provenance"]) == 0
    again, mean = tmp_path / "c.onnx", f"[{0.485 * 255!r}, 6, 1]"
    for given, result in (
        (f"scale: {1 / 255!r}, mean: {mean}", other),
        ("scale: 1/255, mean: [0.485*255, 2*3, 1]", again),
    ):
        file = tmp_path / "r.yaml"
        file.write_text(f"verify: {{mode: 'off'}}\nsteps:\n  - embed-preprocessing: {{{given}, dtype: uint8}}\n")
        assert cli.main(["apply", str(file), str(path), "-o", str(result), "--no-provenance"]) == 0
    assert out.read_bytes() == other.read_bytes()
    assert again.read_bytes() == other.read_bytes()


def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(text.parse(MODEL), path)
    assert cli.main(["run", "embed-preprocessing", str(path), "--set", "scale=1/zero"]) == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said and "'scale'" in said and "'1/zero' has 'zero' at column 3" in said
    file = tmp_path / "r.yaml"
    file.write_text("steps:\n  - embed-preprocessing: {scale: 1/0}\n")
    assert cli.main(["recipe", "check", str(file), "--format", "json"]) == 2
    found = capsys.readouterr().out
    assert json.loads(found) and "'1/0' divides by zero" in found and '"line": 2' in found


def test_options_that_are_computed_are_read_in_recipes() -> None:
    step = recipe.parse("steps: [append-nms: {layout: v8, iou: 9/20, score: 1/4}]").steps[0]
    bound = step.bind()  # type: ignore[union-attr]
    assert math.isclose(bound["iou"], 0.45) and bound["score"] == 0.25
