"""Passes in Python that raise, abort, hang, eat memory or return nonsense: each is a step status and no more."""

import os
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import SUPPORT
from support.breadth import sampled

from surgery import Graph
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.run_options import RunOptions
from surgery.engine.registry import declare
from surgery.engine.registry.catalog import catalog
from surgery.model.graph import text

PLUGIN = SUPPORT / "plugin_killers.py"
MODEL = """g (float[batch, 300] x) => (float[batch, 2] y)
<float[300, 2] w> {
    i = Identity(x)
    m = MatMul(i, w)
    r = Relu(m)
    y = Neg(r)
}"""


@pytest.fixture(autouse=True, scope="module")
def killers() -> None:
    catalog.load_plugin(str(PLUGIN))


@pytest.fixture
def model() -> onnx.ModelProto:
    made = text.parse(MODEL)
    weight = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    del made.graph.initializer[:]
    made.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return made


def apply(model: onnx.ModelProto, steps: str, verify: str = "{}", **options: bool) -> runner.Result:
    return runner.apply(
        model,
        recipes.parse(f"recipe: test\nverify: {verify}\nsteps: {steps}", "test.yaml"),
        options=RunOptions(**options),
    )


def line(text: str) -> int:
    """Return the number of the line of the plugin that contains a text."""
    lines = PLUGIN.read_text().splitlines()
    return next(number for number, found in enumerate(lines, 1) if text in found)


FORGET = line('"kill-forget"')
FATES = [
    (
        "kill-raise",
        "{}",
        3,
        f"pass 'kill-raise' raised LookupError: no such luck (plugin_killers.py:{line('no such')})",
    ),
    ("kill-raise-in-numpy", "{}", 3, f"array to concatenate (plugin_killers.py:{line('concatenate')})"),
    ("kill-usage", "{}", 2, "here: no such mode; choose another"),
    ("kill-blocked", "{}", 1, "the Relu is in the way"),
    (
        *("kill-forget", "{}", 3),
        f"plugin_killers.py:{FORGET}: pass 'kill-forget' returned nothing for the match at "
        "Relu -> r; return the value that replaces y, or refuse the match with 'require'",
    ),
    ("kill-name", "{}", 3, "pass 'kill-name' returned str for the match at Relu -> r; return the value"),
    ("kill-abort", "{}", 3, "pass 'kill-abort' crashed with SIGABRT"),
    ("kill-exit", "{}", 3, f"ended the process with exit code 7 (plugin_killers.py:{line('sys.exit(7')})"),
    pytest.param("kill-loop", "{timeout: 4}", 3, "pass 'kill-loop' took more than 4 s", marks=pytest.mark.slow),
    ("kill-memory", "{memory: 300MB}", 3, "pass 'kill-memory' ran out of memory"),
    ("kill-order", "{}", 3, "created a cycle"),
    ("kill-model-order", "{}", 3, "created a cycle"),
    ("kill-nonsense", "{}", 1, "checker: "),
    ("kill-return", "{}", 3, "pass 'kill-return' returned a str; return the onnx.ModelProto instead"),
]


@pytest.mark.parametrize(("name", "verify", "code", "message"), sampled(FATES, 4))
def test_a_crashing_pass_fails_its_step(
    model: onnx.ModelProto, name: str, verify: str, code: int, message: str
) -> None:
    result = apply(model, f"[{name}, drop-identity]", verify)
    (step,) = result.steps
    assert (step.status, result.exit_code) == ("failed", code)
    assert message in step.message
    assert result.proto is result.stored.proto
    rolled = apply(model, f"[{{pass: {name}, on_failure: rollback}}, drop-identity]", verify)
    assert [step.status for step in rolled.steps] == ["rolled_back", "committed"]
    assert (rolled.ok, rolled.exit_code) == (True, 1 if code == 3 else 0)
    if code == 3:
        assert rolled.unmet[0].words == f"'{name}' broke and was undone, see above"


@pytest.mark.slow
def test_child_processes_of_a_pass_do_not_outlive_it(model: onnx.ModelProto, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    result = apply(model, f"[{{kill-children: {{note: '{note}'}}}}]", "{timeout: 5}")
    assert "took more than 5 s" in result.steps[0].message
    pids = [int(pid) for pid in note.read_text().split()]
    deadline = time.monotonic() + 60
    while any(_lives(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(_lives(pid) for pid in pids)


def _lives(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet reaped by its new parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_result_of_a_contained_pass_is_committed(model: onnx.ModelProto, capfd: pytest.CaptureFixture[str]) -> None:
    result = apply(model, "[right-print]")
    assert [(step.status, step.sites) for step in result.steps] == [("committed", 1)]
    assert result.output.ops == {"MatMul": 1, "Relu": 1, "Neg": 1}
    captured = capfd.readouterr()
    assert "dropping" in captured.err and not captured.out


@pytest.mark.parametrize(("name", "said"), [("kill-raise", "looking"), ("kill-usage", "checking")])
def test_the_output_of_a_pass_that_raises_is_shown(
    model: onnx.ModelProto, capfd: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    apply(model, f"[{name}]")
    assert said in capfd.readouterr().err


def test_a_blocked_pass_keeps_its_refusals(model: onnx.ModelProto) -> None:
    (step,) = apply(model, "[kill-blocked]").steps
    assert [refusal.reason for refusal in step.refusals] == ["it is a Relu"]


def test_a_model_proto_pass_leaves_weights_in_their_files(model: onnx.ModelProto, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    result = runner.apply(path, recipes.parse("recipe: test\nsteps: [right-drop-identity-proto]", "test.yaml"))
    assert [step.status for step in result.steps] == ["committed"]
    (weight,) = result.proto.graph.initializer
    assert weight.external_data[0].value == str(path).lstrip("/")
    unchanged = runner.apply(
        path, recipes.parse("recipe: test\nsteps: [drop-identity, right-drop-identity-proto]", "-")
    )
    assert [step.status for step in unchanged.steps] == ["committed", "unchanged"]


def test_uncontained_passes_run_in_this_process(model: onnx.ModelProto) -> None:
    seen = []
    name = "right-tell-process"

    @declare.graph_pass(name)
    def tell(graph: Graph) -> None:
        """Tell where it runs."""
        seen.append(os.getpid())

    apply(model, f"[{name}]")
    assert seen == []
    apply(model, f"[{name}]", contained=False)
    assert seen == [os.getpid()]


def test_memory_is_limited_by_default(model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surgery.engine.bridges.run_pass.default_memory", lambda: 300 << 20)
    (step,) = apply(model, "[kill-memory]").steps
    assert "pass 'kill-memory' ran out of memory" in step.message
