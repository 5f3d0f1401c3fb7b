"""Settings of inputs, verification and accuracy, read key by key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surgery.base.frozen_dict import FrozenDict
from surgery.engine.recipe.draft import Draft
from surgery.engine.recipe.verification import Accuracy, Calibration, Inputs, Tensor, Verify
from surgery.engine.yaml.source import documents
from surgery.verification.inputs.spec import (
    AccuracySpec,
    InputsSpec,
    MetricLimit,
    MetricSpec,
    SampleSpec,
    TensorSpec,
    VerifySpec,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.npy", "b.npz", "c.pb", "d.txt", "code.py", "lib.so"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "e.npy").mkdir()
    return tmp_path


def read(kind: Any, written: str, folder: Path) -> tuple[Any, list[str], Draft]:
    (document,) = documents(written)
    assert document.root is not None
    draft = Draft("r.yaml", folder)
    return draft.read(kind, document.root, "key"), [str(one).split(": ", 1)[1] for one in draft.problems], draft


SNR, TOP1 = MetricLimit("snr", 30.0), MetricLimit("top1", 0.99)


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        (Tensor, "{values: [0, 1.5, true, a]}", TensorSpec(values=(0, 1.5, True, "a"))),
        (Tensor, "{range: [0, 9]}", TensorSpec(range=(0, 9))),
        (Tensor, "{range: [-1.5, -1.5]}", TensorSpec(range=(-1.5, -1.5))),
        (Inputs, "{dims: {N: 1, M: [2, 3]}, only_given: true}",
         InputsSpec(dims=FrozenDict(N=(1,), M=(2, 3)), only_given=True)),
        (Inputs, "{}", InputsSpec()),
        (Verify, "{rtol: 0, atol: 1e-5, seed: 3, timeout: 1.5}", VerifySpec(rtol=0, atol=1e-5, seed=3, timeout=1.5)),
        (Verify, "{memory: 2GiB}", VerifySpec(memory=2 << 30)),
        (Verify, "{memory: 100}", VerifySpec(memory=100)),
        (Verify, "{mode: end, compare: both, deployment: off, unverified: accept}",
         VerifySpec(mode="end", compare="both", deployment="off", unverified="accept")),
        (Verify, "{providers: CUDAExecutionProvider}", VerifySpec(providers=("CUDAExecutionProvider",))),
        (Calibration, "{sets: 1}", SampleSpec(sets=1)),
        (Accuracy, "{budget: snr >= 30 dB}", AccuracySpec((SNR,))),
        (Accuracy, "{budget: [snr >= 30 dB, top1 >= 99 %], sets: 5}", AccuracySpec((SNR, TOP1), SampleSpec(sets=5))),
        (Accuracy, "{budget: {all: snr >= 30 dB, y: [top1 >= 99 %]}}",
         AccuracySpec((SNR, MetricLimit("top1", 0.99, "y")))),
    ],
)  # fmt: skip
def test_settings_that_are_read(folder: Path, kind: Any, written: str, value: Any) -> None:
    assert read(kind, written, folder)[:2] == (value, [])


@pytest.mark.parametrize(
    ("kind", "written", "message"),
    [
        (Tensor, "{}", "input 'key' takes one of values, range, file; here are 0"),
        (Tensor, "{values: [1], range: [0, 1]}", "input 'key' takes one of values, range, file; here are 2"),
        (Tensor, "{value: [1]}", "no key 'value'; did you mean 'values'?"),
        (Tensor, "5", "'key' takes a mapping such as {values: [0, 1]} or {range: [0, 9]}, not 5"),
        (Tensor, "{values: 1}", "'values' takes a list such as [0, 1], not 1"),
        (Tensor, "{values: []}", "'values' takes a list such as [0, 1], not a list"),
        (Tensor, "{values: [1, [2]]}", "'values' lists numbers, bools or texts, not a list"),
        (Tensor, "{values: [~]}", "'values' lists numbers, bools or texts, not nothing"),
        (Tensor, "{range: 1}", "'range' takes the least and the greatest value, such as [0, 9], not 1"),
        (Tensor, "{range: [1]}", "'range' takes the least and the greatest value, such as [0, 9], not a list"),
        (Tensor, "{range: [1, 2, 3]}", "'range' takes the least and the greatest value, such as [0, 9], not a list"),
        (Tensor, "{range: [1, true]}", "'range' takes the least and the greatest value, such as [0, 9], not a list"),
        (Tensor, "{range: [1, .inf]}", "'range' takes the least and the greatest value, such as [0, 9], not a list"),
        (Tensor, "{range: [2, 1]}", "'range' starts above its end; did you mean [1, 2]?"),
        (Tensor, "{file: d.txt}", "'file' takes the path of a .npy, .npz or .pb file, not 'd.txt'"),
        (Tensor, "{file: none.npy}", "no file 'none.npy' in the recipe's folder"),
        (Tensor, "{file: e.npy}", "no file 'e.npy' in the recipe's folder"),
        (Inputs, "{dims: {N: 0}}", "'N' is at least 1, not 0"),
        (Inputs, "{dims: {N: []}}", "dim 'N' lists no extent"),
        (Inputs, "{dims: 5}", "'dims' takes a mapping such as {batch: [1, 3]}, not 5"),
        (Inputs, "{dims: {N: 1.5}}", "'N' takes a whole number or a list of them, not 1.5"),
        (Verify, "{timeout: 0}", "'timeout' is more than 0, not 0"),
        (Verify, "{memory: 0}", "'memory' takes a size such as 512MB or 2GiB, not 0"),
        (Verify, "{memory: true}", "'memory' takes a size such as 512MB or 2GiB, not true"),
        (Verify, "{memory: much}", "'memory' takes a size such as 512MB or 2GiB, not 'much'"),
        (Verify, "{memory: -1}", "'memory' takes a size such as 512MB or 2GiB, not -1"),
        (Verify, "{providers: CUDA}", "'CUDA' is not an execution provider such as 'CUDAExecutionProvider'"),
        (Verify, "{custom_op_library: none.so}", "no file 'none.so' in the recipe's folder"),
        (Verify, "{mode: ends}", "'mode' takes each, end or off, not 'ends'; did you mean 'end'?"),
        (Calibration, "{sets: 0}", "'sets' is at least 1, not 0"),
        (Accuracy, "{}", "'key' needs a budget such as 'snr >= 30 dB', or a metric"),
        (Accuracy, "{budget: snr <= 30 dB}", "'snr' takes >=, not <="),
        (Accuracy, "{metric: {function: 'code.py:f'}}", "'metric' needs a drop such as 0.5 %"),
        (Accuracy, "{metric: {drop: 1}}", "'metric' needs a function such as metric.py:score"),
        (Accuracy, "{metric: {function: 'code.py:f', drop: true}}",
         "'drop' takes a share such as 0.5 %, or a number such as 0.01, not true"),
        (Accuracy, "{metric: {function: 'code.py:f', drop: much}}",
         "a drop is a share of the metric such as '0.5 %', or a number such as 0.01"),
        (Accuracy, "{metric: {function: 'code.py:f', drop: 1, better: low}}",
         "'better' takes higher or lower, not 'low'; did you mean 'lower'?"),
    ],
)  # fmt: skip
def test_settings_that_are_wrong(folder: Path, kind: Any, written: str, message: str) -> None:
    found, problems, _ = read(kind, written, folder)
    assert problems == [message] and (found is None or written == "{value: [1]}")


@pytest.mark.parametrize(
    "written", ["{budget: 5}", "{budget: [5]}", "{budget: []}", "{budget: {y: []}}", "{budget: {y: 5}}"]
)
def test_a_budget_is_a_text(folder: Path, written: str) -> None:
    found, (problem,), _ = read(Accuracy, written, folder)
    assert found is None and problem.startswith("'budget' takes a limit such as 'snr >= 30 dB', or limits by output")


@pytest.mark.parametrize("name", ["a.npy", "b.npz", "c.pb"])
def test_a_file_of_a_tensor(folder: Path, name: str) -> None:
    found, problems, draft = read(Inputs, f"{{tensors: {{x: {{file: {name}}}}}}}", folder)
    assert problems == [] and found.tensors["x"].file == folder / name and not draft.runs_code
    place = found.tensors["x"].place
    assert (place.path, place.line, place.column) == ("r.yaml", 1, 15)


def test_code_is_recorded(folder: Path) -> None:
    found, problems, draft = read(Inputs, "{generator: 'code.py:make'}", folder)
    assert problems == [] and (found.generator.file, found.generator.function) == (folder / "code.py", "make")
    assert [(one.text, one.verb) for one in draft.local] == [("code.py", "run")]
    found, problems, draft = read(Verify, "{custom_op_library: lib.so}", folder)
    assert problems == [] and found.custom_op_library == (folder / "lib.so",)
    assert [(one.text, one.verb) for one in draft.local] == [("lib.so", "load")]
    for wrong in ("code.py", "code.txt:make", "code.py:1a", ":make", "5"):
        found, (problem,), draft = read(Inputs, f"{{generator: '{wrong}'}}", folder)
        assert found is None and problem.startswith("'generator' takes the path of a Python file and the name of")
        assert not draft.runs_code


@pytest.mark.parametrize(
    ("written", "drop", "relative", "lower"),
    [
        ("drop: 0.5 %", 0.005, True, False),
        ("drop: 0.01", 0.01, False, False),
        ("drop: 1", 1.0, False, False),
        ("drop: 2 %, better: lower", 0.02, True, True),
        ("drop: 2, better: higher", 2.0, False, False),
    ],
)
def test_a_metric(folder: Path, written: str, drop: float, relative: bool, lower: bool) -> None:
    found, problems, draft = read(Accuracy, f"{{metric: {{function: 'code.py:f', {written}}}}}", folder)
    assert problems == [] and found.limits == () and draft.runs_code
    assert found.metric == MetricSpec(folder / "code.py", "f", drop, relative, lower)
    assert (found.metric.place.line, found.metric.place.column) == (1, 21)
