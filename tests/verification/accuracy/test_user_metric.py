"""A metric of the user's: called with outputs and labels, contained, held to a drop; each mistake in it is one line."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from surgery.base.errors import RecipeError, UsageError
from surgery.base.promises import Parity
from surgery.interface import commands as cli
from surgery.verification.accuracy.budget import read_argument
from surgery.verification.accuracy.user_metric import Score, describe_metric, read_drop
from surgery.verification.comparing.details import Verdict
from surgery.verification.inputs.spec import AccuracySpec, DataSpec, MetricSpec, Place, SampleSpec, VerifySpec
from surgery.verification.verdict.verifier import Verifier

SETS, ROWS, CLASSES = 4, 25, 8
HEAD = f'<ir_version: 10, opset_import: ["": 21]> g (float[N,{CLASSES}] x) => (float[N,{CLASSES}] y) '
ACCURACY = """
import numpy as np


def score(outputs, sets):
    assert len(outputs) == len(sets)
    right = [out["y"].argmax(-1) == one["label"] for out, one in zip(outputs, sets)]
    return np.concatenate(right).mean()
"""
WEIGHT = np.arange(CLASSES) / 100


def _labelled(folder: Path) -> Path:
    """Write sets whose labels the original reproduces in 90 of 100 rows."""
    data = folder / "eval"
    data.mkdir()
    rng = np.random.default_rng(0)
    for number in range(SETS):
        x = rng.random((ROWS, CLASSES), np.float32)
        label = x.argmax(-1)
        wrong = slice(0, 3 if number % 2 else 2)
        label[wrong] = (label[wrong] + 1) % CLASSES
        np.savez(data / f"{number}.npz", x=x, label=label)
    return data


def _after(bias: float) -> str:
    values = ", ".join(str(bias * k) for k in range(CLASSES))
    return f"{{ b = Constant<value=float[{CLASSES}] {{{values}}}>() y = Add(x, b) }}"


def _verdict(
    folder: Path, metric: MetricSpec | None, after: str, budget: str = "", timeout: float = 60, labels: bool = True
) -> Verdict:
    one, other = (onnx.parser.parse_model(HEAD + body).SerializeToString() for body in ("{ y = Identity(x) }", after))
    data = (DataSpec(_labelled(folder)),) if labels else ()
    limits = read_argument(budget) if budget else ()
    spec = VerifySpec(accuracy=AccuracySpec(limits, SampleSpec(data), metric), timeout=timeout)
    with closing(Verifier(one, None, spec)) as verifier:
        return verifier.verify(other, Parity.LOSSY)


def _metric(folder: Path, source: str = ACCURACY, drop: str = "0.5 %", **more: Any) -> MetricSpec:
    (folder / "metric.py").write_text(source)
    return MetricSpec(folder / "metric.py", "score", *read_drop(drop), **more)


def test_a_metric_is_called_with_outputs_and_labels(tmp_path: Path) -> None:
    verdict = _verdict(tmp_path, _metric(tmp_path), _after(1e-6))
    assert verdict.status == "lossy", verdict
    assert "; metric.py:score 0.9; budget metric.py:score drops by at most 0.5 %;" in verdict.message
    assert verdict.message.endswith("; measured on 4 sets of inputs")
    assert verdict.details is not None
    found = json.loads(json.dumps(verdict.to_json(), allow_nan=False))["details"]["accuracy"]
    assert (found["limits"], found["metric"]["original"], found["metric"]["used"]) == ([], 0.9, 0.0)


@pytest.mark.parametrize(("drop", "status"), [("0.5 %", "different"), ("60 %", "lossy"), ("0.01", "different")])
def test_the_allowed_drop_is_enforced(tmp_path: Path, drop: str, status: str) -> None:
    verdict = _verdict(tmp_path, _metric(tmp_path, drop=drop), _after(0.05))
    assert verdict.status == status
    assert "metric.py:score 0.49 instead of 0.9" in verdict.message


def test_a_margin_is_left_for_other_inputs(tmp_path: Path) -> None:
    """The metric of few sets varies: it loses 0.41 +- 0.05 here, of the 0.45 that are allowed."""
    verdict = _verdict(tmp_path, _metric(tmp_path, drop="50 %"), _after(0.05))
    assert verdict.status == "different"
    assert "metric.py:score 0.49 instead of 0.9 +- 0.0" in verdict.message
    assert "; other inputs may exceed the budget" in verdict.message
    found = verdict.to_json()["details"]["accuracy"]["metric"]
    assert found["used"] == pytest.approx(0.41 / 0.45) and 1.0 < found["guarded"] < 1.2


def test_a_metric_that_needs_all_sets_has_no_margin(tmp_path: Path) -> None:
    source = ACCURACY.replace("assert len(outputs) == len(sets)", f"assert len(outputs) == {SETS}")
    assert _verdict(tmp_path, _metric(tmp_path, source, drop="50 %"), _after(0.05)).status == "lossy"


def test_limits_apply_in_addition_to_the_metric(tmp_path: Path) -> None:
    """The metric is as before, while the outputs are not."""
    verdict = _verdict(tmp_path, _metric(tmp_path), "{ c = Constant<value_float=2.0>() y = Mul(x, c) }", "snr >= 20 dB")
    assert verdict.status == "different" and verdict.message.startswith("output 'y' has SNR ")


def test_without_limits_only_the_metric_applies(tmp_path: Path) -> None:
    verdict = _verdict(tmp_path, _metric(tmp_path), "{ c = Constant<value_float=2.0>() y = Mul(x, c) }")
    assert verdict.status == "lossy"


def test_a_lower_value_may_be_better(tmp_path: Path) -> None:
    source = ACCURACY.replace("return np", "return 1 - np")
    better, worse = _metric(tmp_path, source, lower=True), _metric(tmp_path, source)
    assert _verdict(tmp_path, better, _after(0.05)).status == "different"
    for path in (tmp_path / "eval").iterdir():
        path.unlink()
    (tmp_path / "eval").rmdir()
    assert _verdict(tmp_path, worse, _after(0.05)).status == "lossy"


def test_the_used_share_of_the_drop() -> None:
    spec = MetricSpec(Path("metric.py"), "score", 0.01, relative=True)
    assert Score(spec, 0.8, 0.796).use == pytest.approx(0.5)
    assert Score(spec, -10.0, -10.05).use == pytest.approx(0.5)
    assert Score(replace(spec, lower=True), 10.0, 10.05).use == pytest.approx(0.5)
    assert Score(replace(spec, relative=False), 0.8, 0.79).use == pytest.approx(1.0)
    assert Score(spec, 0.8, 0.9).use == 0.0
    assert Score(replace(spec, drop=0.0), 0.8, 0.7999).use == float("inf")
    assert Score(replace(spec, drop=0.0), 0.8, 0.8).use == 0.0
    assert describe_metric(replace(spec, lower=True)) == "metric.py:score rises by at most 1 %"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (f"{ACCURACY}    raise ValueError('x')\n".replace("return", "value ="), "line 9: ValueError: x"),
        ("def score(outputs, sets):\n    return float('nan')\n", "it returns nan"),
        ("def score(outputs, sets):\n    return 'good'\n", "it returns a str, not a number"),
        ("def score(outputs, sets):\n    pass\n", r"line|TypeError: "),
        ("def score(outputs):\n    return 1\n", r"TypeError: score\(\) takes 1 positional argument but 2 were given"),
        ("def other(outputs, sets):\n    return 1\n", "no function 'score' in it; it has other"),
        ("def score(outputs, sets:\n", "line 1: SyntaxError: "),
        ("import nothing_like_it\n", "line 1: ModuleNotFoundError: "),
        ("import os\ndef score(outputs, sets):\n    os._exit(3)\n", "exit"),
        ("import random\ndef score(outputs, sets):\n    return random.random()\n", "for the same outputs; draw from "),
        ("def score(outputs, sets):\n    outputs[0]['y'][:] = 0\n", "line 2: ValueError: .*read-only"),
        ("def score(outputs, sets):\n    return sets[0]['labels'].sum()\n", "line 2: KeyError: 'labels'"),
    ],
)
def test_a_wrong_metric_is_reported_in_one_line(tmp_path: Path, source: str, message: str) -> None:
    spec = _metric(tmp_path, source)
    with pytest.raises(UsageError, match=message) as caught:
        _verdict(tmp_path, spec, _after(0.001))
    assert caught.value.where == "metric.py:score" and "\n" not in str(caught.value)


def test_the_place_in_the_recipe_is_named(tmp_path: Path) -> None:
    spec = _metric(tmp_path, "def score(outputs, sets):\n    return 1 / 0\n", place=Place("r.yaml", 3, 9))
    with pytest.raises(RecipeError, match=r"^r.yaml:3:9: metric.py:score: line 2: ZeroDivisionError: "):
        _verdict(tmp_path, spec, _after(0.001))


@pytest.mark.slow
def test_a_metric_that_hangs_is_ended(tmp_path: Path) -> None:
    spec = _metric(tmp_path, "import time\ndef score(outputs, sets):\n    time.sleep(600)\n")
    with pytest.raises(UsageError, match=r"took more than 8"):
        _verdict(tmp_path, spec, _after(0.001), timeout=8)


FAILS_LATER = """
def score(outputs, sets):
    if abs(outputs[0]["y"] - sets[0]["x"]).max() > 0:
        {}
    return 1.0
"""


@pytest.mark.parametrize(
    ("then", "message"),
    [("return float('inf')", "it returns inf"), ("raise ValueError('too far')", "line 4: ValueError: too far")],
)
def test_a_changed_model_without_a_value_is_over_budget(tmp_path: Path, then: str, message: str) -> None:
    verdict = _verdict(tmp_path, _metric(tmp_path, FAILS_LATER.format(then)), _after(0.001))
    assert verdict.status == "different"
    assert verdict.message.startswith(f"metric.py:score cannot be computed for the changed model: {message}, budget ")


def test_a_metric_may_use_synthetic_sets(tmp_path: Path) -> None:
    source = (
        "def score(outputs, sets):\n    return sum(float((o['y'] == s['x']).mean()) for o, s in zip(outputs, sets))\n"
    )
    verdict = _verdict(tmp_path, _metric(tmp_path, source), _after(0.0), labels=False)
    assert verdict.status == "lossy" and "64 synthetic sets" in verdict.message


def test_a_misspelt_input_is_not_a_label(tmp_path: Path) -> None:
    path = tmp_path / "one.npz"
    np.savez(path, xx=np.ones((1, CLASSES), np.float32))
    spec = VerifySpec(accuracy=AccuracySpec((), SampleSpec((DataSpec(path),))))
    one, other = (
        onnx.parser.parse_model(HEAD + body).SerializeToString() for body in ("{ y = Identity(x) }", _after(1))
    )
    with (
        closing(Verifier(one, None, spec)) as verifier,
        pytest.raises(UsageError, match=r"no value is given for input 'x'|no input 'xx'; did you mean 'x'\?"),
    ):
        verifier.verify(other, Parity.LOSSY)


# From end to end

LAYER = 16
PLUGIN = '''
import numpy as np
from surgery import Graph, Parity, graph_pass


@graph_pass("coarse-weights", parity=Parity.LOSSY)
def coarse_weights(graph: Graph) -> None:
    """Round the weights of products by one scale for all."""
    for node in graph.nodes("MatMul"):
        weight = node.required_input(1).tensor.numpy()
        with graph.site(node) as new:
            scale = np.abs(weight).max() / 7
            new.set_input(node, 1, new.constant((np.round(weight / scale) * scale).astype(np.float32), "w"))
'''


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a classifier of two layers, one of which has a weight that takes all of the range, and its data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    rng = np.random.default_rng(0)
    first, second = (rng.standard_normal((LAYER, LAYER)).astype(np.float32) / 4 for _ in range(2))
    second[0, 0] = 60.0
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g (float[N,{LAYER}] x) => (float[N,{LAYER}] y) '
        "{ a = MatMul(x, w1) b = Tanh(a) y = MatMul(b, w2) }"
    )
    model.graph.initializer.extend(
        [onnx.numpy_helper.from_array(first, "w1"), onnx.numpy_helper.from_array(second, "w2")]
    )
    onnx.save(model, "m.onnx")
    Path("eval").mkdir()
    for number in range(SETS):
        x = rng.standard_normal((50, LAYER)).astype(np.float32)
        np.savez(f"eval/{number}.npz", x=x, label=(np.tanh(x @ first) @ second).argmax(-1))
    Path("plugin.py").write_text(PLUGIN)
    Path("metric.py").write_text(ACCURACY)
    return tmp_path


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = cli.main([*arguments])
    out, err = capsys.readouterr()
    return code, out + err


@pytest.mark.slow
def test_a_recipe_keeps_the_sites_in_float_that_the_metric_needs(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (work / "r.yaml").write_text(
        "plugins: ./plugin.py\naccuracy: {metric: {function: metric.py:score, drop: 20 %}, data: eval}\n"
        "steps: [coarse-weights]\n"
    )
    code, said = _run(capsys, "apply", "r.yaml", "m.onnx", "-o", "out.onnx")
    assert code == 2 and "wants to run" in said
    code, said = _run(capsys, "apply", "r.yaml", "m.onnx", "-o", "out.onnx", "--trust", "--format", "json")
    assert code == 0, said
    step = json.loads(said[said.index("{") : said.rindex("}") + 1])["steps"][0]
    assert step["verdict"] == "lossy"
    assert [one["site"] for one in step["kept"]] == [2] and step["kept"][0]["metric"] < 0.8
    metric = step["details"]["accuracy"]["metric"]
    assert metric["original"] == 1.0 and 0.8 <= metric["value"] < 1.0


@pytest.mark.slow
def test_flags_give_a_metric_and_are_in_the_recipe(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--metric", "metric.py:score", "--evaluation", "eval", "--plugin", "plugin.py", "--trust")
    code, said = _run(capsys, "run", "coarse-weights", "m.onnx", *flags, "--drop", "60 %", "--save-recipe", "s.yaml")
    assert code == 0, said
    assert "metric.py:score drops by at most 60 %" in " ".join(said.split())
    code, again = _run(capsys, "apply", "s.yaml", "m.onnx", "--trust")
    assert code == 0 and "metric.py:score drops by at most 60 %" in " ".join(again.split())
    code, said = _run(capsys, "run", "coarse-weights", "m.onnx", "--drop", "1 %", "--plugin", "plugin.py")
    assert code == 2 and "--drop needs --metric FILE.py:FUNCTION" in said
    code, said = _run(capsys, "run", "coarse-weights", "m.onnx", "--metric", "metric.py", "--plugin", "plugin.py")
    assert code == 2 and "--metric metric.py: expected FILE.py:FUNCTION" in said


@pytest.mark.slow
def test_a_table_of_sensitivities_shows_the_metric(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--metric", "metric.py:score", "--evaluation", "eval", "--plugin", "plugin.py", "--trust")
    code, said = _run(capsys, "sensitivity", "m.onnx", "--pass", "coarse-weights", *flags)
    assert code == 0, said
    assert "metric" in said and "metric.py:score drops by at most 0.5 %" in " ".join(said.split())
