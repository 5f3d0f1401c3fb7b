"""Lossy steps: a budget for all of them, sites that stay in float, and what later steps are compared with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.breadth import sampled

from surgery.base.promises import Parity
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.records import Result
from surgery.engine.pipeline.run_options import RunOptions
from surgery.engine.recipe import PassStep, Recipe
from surgery.engine.registry.declare import graph_pass
from surgery.model.graph.graph import Graph
from surgery.verification.accuracy.budget import read_argument
from surgery.verification.inputs.spec import AccuracySpec, InputsSpec, SampleSpec, VerifySpec

SIZE, LAYERS, POISONED = 16, 6, 4


@graph_pass("lossy-round", parity=Parity.LOSSY)
def lossy_round(graph: Graph, *, bits: int = 8) -> None:
    """Round the weights of products to so many bits, by one scale for all."""
    for node in graph.nodes("MatMul"):
        weight = node.required_input(1)
        with graph.site(node) as new:
            array = weight.tensor.numpy()  # type: ignore[union-attr]
            scale = np.abs(array).max() / (2 ** (bits - 1) - 1)
            new.set_input(node, 1, new.constant((np.round(array / scale) * scale).astype(array.dtype), "w"))


@graph_pass("lossy-clip", parity=Parity.LOSSY)
def lossy_clip(graph: Graph) -> None:
    """Clip what products read to the range that calibration shows."""
    nodes = graph.nodes("MatMul")
    values = [node.required_input(0) for node in nodes]

    def ranges() -> dict[str, float]:
        found: dict[str, float] = {}
        for value, array in graph.recordings(values):
            found[value.name] = max(found.get(value.name, 0.0), float(np.abs(array).max()))
        SEEN.append(found)
        return found

    most = graph.remember("ranges", ranges)
    for node, value in zip(nodes, values):
        with graph.site(node) as new:
            ends = [new.constant(np.array(sign * most[value.name], np.float32)) for sign in (-1, 1)]
            new.set_input(node, 0, new.node("Clip", value, *ends))


@graph_pass("lossy-then-exact", parity=Parity.EXACT)
def lossy_then_exact(graph: Graph) -> None:
    """Put an Identity after each product."""
    for node in graph.nodes("MatMul"):
        with graph.site(node) as new:
            new.replace(node.outputs[0], new.node("Identity", node.outputs[0]))


@graph_pass("lossy-then-wrong", parity=Parity.CLOSE)
def lossy_then_wrong(graph: Graph) -> None:
    """Scale the first weight by a thousandth more: less than was lost before, and more than rounding."""
    node = graph.nodes("MatMul")[0]
    with graph.site(node) as new:
        array = node.required_input(1).tensor.numpy()  # type: ignore[union-attr]
        new.set_input(node, 1, new.constant((array * 1.001).astype(array.dtype), "w"))


SEEN: list[dict[str, float]] = []


def _step(function: Callable[..., None], **options: Any) -> PassStep:
    return PassStep(name=function.__name__.replace("_", "-"), options=options)


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    SEEN.clear()


def _model(poisoned: int | None = None) -> onnx.ModelProto:
    """Build layers of products with residuals; one of them may have a channel that takes all of the range."""
    rng = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for layer in range(LAYERS):
        array = (rng.standard_normal((SIZE, SIZE)) / 6).astype(np.float32)
        if poisoned is not None and layer in (poisoned - 1, poisoned):
            # What is multiplied by it is zero: it only takes the range.
            array[:, 0], array[0, 0] = (0.0, 0.0) if layer < poisoned else (array[:, 0], 400.0)
        name = f"w{layer}"
        weights.append(onnx.numpy_helper.from_array(array, name))
        nodes.append(onnx.helper.make_node("MatMul", [last, name], [f"p{layer}"], f"product {layer}"))
        nodes.append(onnx.helper.make_node("Tanh", [f"p{layer}"], [f"t{layer}"]))
        last = f"t{layer}"
    nodes.append(onnx.helper.make_node("Identity", [last], ["y"]))
    ports = [onnx.helper.make_tensor_value_info(name, 1, ["n", SIZE]) for name in ("x", "y")]
    graph = onnx.helper.make_graph(nodes, "g", ports[:1], ports[1:], weights)
    return onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 21)])


def _run(
    model: onnx.ModelProto, *steps: PassStep, budget: str = "snr >= 30 dB", contained: bool = False, **verify: Any
) -> Result:
    spec = VerifySpec(accuracy=AccuracySpec(read_argument(budget), SampleSpec()), **verify)
    recipe = Recipe("r", steps, inputs=InputsSpec(calibration=SampleSpec(sets=3)), verify=spec)
    return runner.apply(model, recipe, options=RunOptions(contained=contained))


def _bytes(result: Result, folder: Path) -> bytes:
    path = folder / "written.onnx"
    result.save(path, force=True)
    return path.read_bytes()


def test_the_layer_with_an_outlier_stays_in_float() -> None:
    result = _run(_model(POISONED), _step(lossy_round), budget="snr >= 22 dB")
    step = result.steps[0]
    assert (step.status, step.verdict and step.verdict.status) == ("committed", "lossy")
    assert [one.site.anchor for one in step.kept] == [f"product {POISONED}"]
    assert step.sites == LAYERS - 1
    assert f"1 site stays unchanged: site {POISONED + 1} at 'product {POISONED}' uses" in step.message
    assert result.ok
    assert step.to_json()["kept"][0]["anchor"] == f"product {POISONED}"


@pytest.mark.parametrize(("limit", "bits"), sampled([(20, 6), (30, 8), (40, 9), (50, 10)], 3))
def test_the_budget_holds_on_unseen_inputs(limit: int, bits: int, tmp_path: Path) -> None:
    """What is converted differs by budget; what it loses is measured here on inputs that were not seen."""
    import onnxruntime

    model, path = _model(POISONED), tmp_path / "out.onnx"
    result = _run(model, _step(lossy_round, bits=bits), budget=f"snr >= {limit} dB")
    feeds = [np.random.default_rng(seed).standard_normal((5, SIZE)).astype(np.float32) for seed in range(700, 1000)]
    assert result.ok and result.steps[0].sites
    result.save(path)
    before, after = (
        onnxruntime.InferenceSession(one, providers=["CPUExecutionProvider"])
        for one in (model.SerializeToString(), path)
    )
    for x in feeds:
        y, z = (session.run(None, {"x": x})[0].astype(np.float64) for session in (before, after))
        assert 10 * np.log10((y**2).sum() / ((y - z) ** 2).sum()) >= limit


def test_later_steps_are_compared_with_the_lossy_result() -> None:
    result = _run(_model(), _step(lossy_round), _step(lossy_then_exact))
    assert [step.status for step in result.steps] == ["committed", "committed"]
    assert [step.verdict and step.verdict.status for step in result.steps] == ["lossy", "equal"]
    assert result.ok
    wrong = _run(_model(), _step(lossy_round), _step(lossy_then_wrong))
    assert [step.status for step in wrong.steps] == ["committed", "failed"]


def test_all_lossy_steps_share_one_budget() -> None:
    once = _run(_model(), _step(lossy_round, bits=7), budget="snr >= 10 dB")
    assert once.steps[0].verdict is not None and once.steps[0].verdict.details is not None
    first = once.steps[0].verdict.details.metrics
    twice = _run(
        _model(),
        _step(lossy_round, bits=7),
        _step(lossy_round, bits=5),
        budget="snr >= 10 dB",
    )
    last = twice.steps[1].verdict
    assert last is not None and last.details is not None and first is not None and last.details.metrics is not None
    assert last.details.metrics["snr"] < first["snr"]
    worse = _run(_model(), _step(lossy_round, bits=5), budget="snr >= 10 dB").steps[0].verdict
    assert worse is not None and worse.details is not None and worse.details.metrics is not None
    assert last.details.metrics["snr"] == pytest.approx(worse.details.metrics["snr"], abs=1.5)


def test_an_unreachable_budget_fails_the_step() -> None:
    result = _run(_model(), _step(lossy_round, bits=2), budget="snr >= 60 dB")
    step = result.steps[0]
    assert (step.status, result.ok) == ("failed", False)
    assert "budget snr >= 60 dB" in step.message
    assert len(step.kept) == LAYERS


def test_passes_calibrate_once_on_inputs_of_their_own() -> None:
    result = _run(_model(), _step(lossy_clip))
    assert result.steps[0].status == "committed", result.steps[0].message
    assert len(SEEN) == 1
    assert set(SEEN[0]) == {"x", *(f"t{layer}" for layer in range(LAYERS - 1))}
    assert all(0.0 < most <= 1.0 for name, most in SEEN[0].items() if name != "x")


def test_calibration_is_not_repeated_while_sites_are_tried() -> None:
    result = _run(_model(), _step(lossy_clip), budget="snr >= 200 dB")
    assert len(SEEN) == 1
    assert result.steps[0].kept or result.steps[0].status == "committed"


def test_lossy_steps_are_deterministic(tmp_path: Path) -> None:
    runs = [_run(_model(POISONED), _step(lossy_round, bits=6)) for _ in range(2)]
    assert _bytes(runs[0], tmp_path) == _bytes(runs[1], tmp_path)
    assert [one.to_json() for one in runs[0].steps[0].kept] == [one.to_json() for one in runs[1].steps[0].kept]


def test_a_lossy_step_is_measured_with_deferred_verification() -> None:
    result = _run(_model(), _step(lossy_round), _step(lossy_then_exact), mode="end")
    assert [step.verdict and step.verdict.status for step in result.steps if step.verdict] == ["lossy", "lossy"]
    assert result.ok


def test_a_pass_in_a_separate_process_calibrates_too(tmp_path: Path) -> None:
    result = _run(_model(), _step(lossy_clip), contained=True)
    assert result.steps[0].status == "committed", result.steps[0].message
    assert _bytes(result, tmp_path) == _bytes(_run(_model(), _step(lossy_clip)), tmp_path)
