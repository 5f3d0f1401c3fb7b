"""The time of each operator, of synthetic profiles and of one of ONNX Runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from surgery.model.graph import text
from surgery.verification.benchmarking.bench import bench
from surgery.verification.benchmarking.bench_spec import BenchSpec
from surgery.verification.benchmarking.profiling import measure_nodes, measure_profiles, node_times, operator_times
from surgery.verification.benchmarking.subjects import subject


def run(begin: float, *kernels: tuple[str, float, float]) -> list[dict[str, Any]]:
    """Write the events of a run of 1 ms: kernels with their begin within the run and their microseconds."""
    events: list[dict[str, Any]] = [{"cat": "Session", "name": "model_run", "ts": begin, "dur": 1000.0}]
    for number, (op, offset, duration) in enumerate(kernels):
        times = {"ts": begin + offset, "dur": duration, "args": {"op_name": op}}
        events.append({"cat": "Node", "name": f"n{number}_kernel_time", **times})
        events.append({"cat": "Node", "name": f"n{number}_fence_before", **times, "dur": 0})
    return events


def test_times_are_summed_by_operator() -> None:
    events = run(0, ("Conv", 0, 300), ("Relu", 300, 50), ("Conv", 400, 250))
    conv, relu = operator_times(events, 0)
    assert (conv.op, conv.nodes, conv.seconds) == ("Conv", 2, pytest.approx(550e-6))
    assert relu.nodes == 1 and relu.share == pytest.approx(50 / 600)


def test_the_median_of_the_runs_counts_and_no_warm_up() -> None:
    events = run(0, ("Conv", 0, 900))
    for number, duration in enumerate((100, 120, 800), start=1):
        events += run(2000 * number, ("Conv", 0, duration))
    (found,) = operator_times(events, 1)
    assert found.seconds == pytest.approx(120e-6) and found.nodes == 1


def test_subgraphs_count_once() -> None:
    events = run(0, ("Loop", 0, 500), ("MatMul", 10, 200), ("If", 220, 100), ("Add", 230, 40), ("Relu", 500, 7))
    found = {one.op: round(one.seconds * 1e6) for one in operator_times(events, 0)}
    assert found == {"Loop": 200, "MatMul": 200, "If": 60, "Add": 40, "Relu": 7}


def test_a_profile_without_runs_is_empty() -> None:
    assert operator_times([], 3) == ()


def test_the_time_of_a_node_is_the_median_of_its_runs() -> None:
    events = run(0, ("Conv", 0, 900))
    for number, duration in enumerate((100, 120, 800), start=1):
        events += run(2000 * number, ("Conv", 0, duration), ("Relu", 900, 7))
    assert node_times(events, 1) == {"n0": pytest.approx(120e-6), "n1": pytest.approx(7e-6)}


def test_nodes_with_names_of_their_own_have_times(tmp_path: Path) -> None:
    body = "g (float[n, 512] x) => (float[n, 512] y) { [soft] a = Softmax(x) b = Identity(a) [erf] y = Erf(b) }"
    onnx.save(text.parse(body), tmp_path / "a.onnx")
    found = measure_nodes(subject(tmp_path / "a.onnx"), [{"x": np.ones((512, 512), np.float32)}], BenchSpec())
    assert found.keys() == {"soft", "erf"} and all(0 < seconds < 10 for seconds in found.values())


def test_a_real_profile_has_the_nodes_that_run(tmp_path: Path) -> None:
    body = "g (float[n, 8] x) => (float[n, 8] y) { a = Softmax(x) b = Softmax(a) y = Erf(b) }"
    onnx.save(text.parse(body), tmp_path / "a.onnx")
    onnx.save(text.parse(body.replace("b = Softmax(a)", "b = Sin(a)")), tmp_path / "b.onnx")
    subjects = [subject(tmp_path / name) for name in ("a.onnx", "b.onnx")]
    found = measure_profiles(subjects, [{"x": np.ones((4, 8), np.float32)}], BenchSpec(), 0.1)
    counts = [{one.op: one.nodes for one in profile} for profile in found]
    assert counts == [{"Softmax": 2, "Erf": 1}, {"Softmax": 1, "Sin": 1, "Erf": 1}]
    for profile in found:
        assert sum(one.share for one in profile) == pytest.approx(1)
        assert [one.seconds for one in profile] == sorted((one.seconds for one in profile), reverse=True)


def test_a_comparison_includes_the_profile(tmp_path: Path) -> None:
    onnx.save(text.parse("g (float[n] x) => (float[n] y) { y = Erf(x) }"), tmp_path / "a.onnx")
    found = bench(tmp_path / "a.onnx", spec=BenchSpec(repeats=2), memory=False, profile=True)
    assert [one["op"] for one in found.to_json()["models"][0]["profile"]] == ["Erf"]
