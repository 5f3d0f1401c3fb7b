"""Models with more weights than memory: regions are compared, and the whole runs in pieces if regions do not decide."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from surgery import Graph, Parity, Result, graph_pass
from surgery.base.workers import Worker
from surgery.engine import recipe
from surgery.engine.pipeline import runner
from surgery.interface import commands as cli
from surgery.model.graph import text
from surgery.model.runtime import engine
from surgery.model.runtime.reference_runs import external_bytes
from surgery.verification.running import pieces

WEIGHT = 256 * 256 * 4

MODEL = """g (float[n,256] x) => (float[n,256] y) {
    i = Identity(x) m = MatMul(i, w) t = Tanh(m) d = Dropout(t) k = MatMul(d, v) y = Relu(k) }"""


@graph_pass("relu-of-relu", parity=Parity.EXACT)
def relu_of_relu(graph: Graph) -> None:
    """Take the Relu of each Relu, which is the same."""
    for node in graph.nodes("Relu"):
        with graph.site(node) as new:
            new.set_input(node, 0, new.node("Relu", node.required_input(0)))


@graph_pass("relu-for-tanh", parity=Parity.EXACT)
def relu_for_tanh(graph: Graph) -> None:
    """Turn each Tanh into another function, which is wrong."""
    for node in graph.nodes("Tanh"):
        with graph.site(node) as new:
            new.replace(node.outputs[0], new.node("Relu", node.required_input(0)))


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes of weights each model had that was run."""
    found: list[int] = []
    call = Worker.call

    def noted(self: Worker, function: str, /, **arguments: Any) -> Any:
        if function.startswith("surgery.model.runtime"):
            models = arguments.get("skeletons") or [arguments["skeleton"]]
            found.extend(external_bytes(onnx.load_model_from_string(model)) for model in models)
        return call(self, function, **arguments)

    monkeypatch.setattr(Worker, "call", noted)
    return found


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model with 512 KiB of weights, twice as many as the memory holds."""
    made = text.parse(MODEL)
    for seed, name in enumerate("wv"):
        weight = np.random.default_rng(seed).normal(size=(256, 256)).astype(np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    onnx.save(made, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    monkeypatch.setattr(engine, "half_of_memory", lambda: WEIGHT)
    monkeypatch.setattr(pieces, "MANY_WEIGHTS", WEIGHT)
    monkeypatch.setattr(pieces, "_WEIGHTS_OF_PIECE", WEIGHT)
    return tmp_path / "m.onnx"


def apply(model: Path, steps: str, verify: str = "{}") -> Result:
    return runner.apply(model, recipe.parse(f"recipe: t\non_failure: rollback\nverify: {verify}\nsteps: {steps}"))


def test_regions_are_compared(model: Path, ran: list[int]) -> None:
    result = apply(model, "[drop-identity, drop-dropout, relu-of-relu]")
    assert result.ok and [step.status for step in result.steps] == ["committed"] * 3
    assert [node.op_type for node in result.proto.graph.node] == ["MatMul", "Tanh", "MatMul", "Relu", "Relu"]
    assert all(step.verdict is not None and step.verdict.region for step in result.steps)
    assert result.end is not None and result.end.is_unverified and "of memory" in result.end.message
    assert result.validity is not None and result.validity.ok
    assert ran and max(ran) <= WEIGHT


def test_a_wrong_step_is_rolled_back(model: Path, ran: list[int]) -> None:
    result = apply(model, "[relu-for-tanh, drop-identity]")
    assert [step.status for step in result.steps] == ["rolled_back", "committed"]
    assert "output 'y'" in result.steps[0].message
    assert "Tanh" in [node.op_type for node in result.proto.graph.node]
    assert ran and max(ran) <= WEIGHT


def test_with_enough_memory_the_whole_model_runs(model: Path, ran: list[int]) -> None:
    result = apply(model, "[drop-identity]", "{memory: 1GB}")
    assert result.end is not None and result.end.passed and max(ran) == 2 * WEIGHT


def test_two_models_are_compared(model: Path, ran: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    right, wrong = model.with_name("right.onnx"), model.with_name("wrong.onnx")
    apply(model, "[drop-identity]").save(right)
    changed = onnx.load(right, load_external_data=False)
    next(node for node in changed.graph.node if node.op_type == "Tanh").op_type = "Sigmoid"
    wrong.write_bytes(changed.SerializeToString())
    assert cli.main(["verify", str(model), str(right)]) == 0
    assert "region" in capsys.readouterr().out
    assert cli.main(["verify", str(model), str(wrong)]) == 1
    assert "output 'y'" in capsys.readouterr().out and max(ran, default=0) <= WEIGHT


@graph_pass("both-products", parity=Parity.CLOSE)
def both_products(graph: Graph) -> None:
    """Negate both weights, which cancels out, as Tanh is odd; the region has all weights."""
    first, second = graph.nodes("MatMul")
    with graph.site(second) as new:
        one, other = (node.required_input(1).constant for node in (first, second))
        assert one is not None and other is not None
        product = new.node("MatMul", first.required_input(0), new.constant(-one))
        new.replace(second.outputs[0], new.node("MatMul", new.node("Tanh", product), new.constant(-other)))


@graph_pass("round-to-sixteenths", parity=Parity.LOSSY)
def round_to_sixteenths(graph: Graph) -> None:
    """Round the weights of products to multiples of 1/16."""
    for node in graph.nodes("MatMul"):
        with graph.site(node) as new:
            weight = node.required_input(1).constant
            assert weight is not None
            new.set_input(node, 1, new.constant(np.round(weight * 16) / 16))


def test_a_region_with_too_many_weights_is_compared_as_a_whole_in_pieces(model: Path, ran: list[int]) -> None:
    (step,) = apply(model, "[both-products]").steps
    assert step.status == "committed" and step.verdict is not None
    assert step.verdict.status in ("equal", "close") and step.verdict.region is None
    assert max(ran) <= WEIGHT


@pytest.mark.parametrize(("budget", "status"), [("snr >= 20 dB", "committed"), ("snr >= 60 dB", "rolled_back")])
def test_a_lossy_step_is_measured_in_pieces(model: Path, ran: list[int], budget: str, status: str) -> None:
    text = f"recipe: t\non_failure: rollback\naccuracy: {{budget: {budget}}}\nsteps: [round-to-sixteenths]"
    (step,) = runner.apply(model, recipe.parse(text)).steps
    assert (step.status, step.verdict is not None and step.verdict.is_unverified) == (status, False)
    assert max(ran) <= WEIGHT


CUSTOM = """g (float[n,4] x) => (float[n,4] y) <float z = {3}> {
    a = Mul(x, z) t = Tanh(a) s = Softmax(t) y = com.acme.Thing(s) }"""


@graph_pass("scale-in-two-steps", parity=Parity.CLOSE)
def scale_in_two_steps(graph: Graph) -> None:
    """Multiply in two steps, which rounds differently."""
    for node in graph.nodes("Mul"):
        with graph.site(node) as new:
            parts = [new.constant(np.array(number, np.float32)) for number in (1.1, 3 / 1.1)]
            first = new.node("Mul", node.required_input(0), parts[0])
            new.set_input(node, 0, first)
            new.set_input(node, 1, parts[1])


def test_a_step_that_rounds_is_verified_though_the_model_cannot_run() -> None:
    model = text.parse(CUSTOM)
    model.opset_import.append(onnx.helper.make_opsetid("com.acme", 1))
    result = runner.apply(model, recipe.parse("recipe: t\non_failure: rollback\nsteps: [scale-in-two-steps]"))
    (step,) = result.steps
    assert step.status == "committed" and step.verdict is not None
    assert step.verdict.status == "close" and step.verdict.region
