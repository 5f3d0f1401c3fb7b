"""Models that kill the process of whoever runs or optimizes them: contained, and blamed on the right stage."""

import resource
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import installed
from support import killer_models as killers

from surgery.base.errors import ModelFileError
from surgery.base.workers.client import forkserver
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.model import storage
from surgery.model.runtime.engine import shorten_native

pytestmark = pytest.mark.slow

STEPS = "[{pass: drop-identity, on_failure: rollback}, drop-dead]"

FATES: dict[Callable[[], onnx.ModelProto], str] = {
    killers.division_of_constants: "the original fails in ONNX Runtime: run crashed with SIGFPE",
    killers.output_from_nowhere: "Graph output (z) does not exist",
    partial(killers.chain_of_functions, 1000): "the original fails in ONNX Runtime: session crashed with SIGSEGV",
    killers.exploding_functions: "the original fails in ONNX Runtime: session ",
    killers.endless_loop: "the original fails in ONNX Runtime: run took more than 3 s",
    killers.huge_constant: "memory",
    killers.tile_bomb: "Tile output tensor would require more",
    killers.expand_bomb: "memory",
}

ENDLESS = (killers.exploding_functions, killers.endless_loop)


def apply(model: onnx.ModelProto, inputs: str = "{}", timeout: float = 60) -> runner.Result:
    lines = f"recipe: t\nverify: {{timeout: {timeout}, memory: 500MB}}\ninputs: {inputs}\nsteps: {STEPS}"
    return runner.apply(model, recipes.parse(lines, "t.yaml"))


@pytest.fixture(autouse=True, scope="module")
def small_stack() -> Iterator[None]:
    """Workers have a stack of 1 MiB, which overflows where one of 8 MiB does on a model eight times as deep."""
    server = forkserver().pid
    soft, hard = resource.prlimit(server, resource.RLIMIT_STACK)
    resource.prlimit(server, resource.RLIMIT_STACK, (1 << 20, hard))
    yield
    if forkserver().pid == server:
        resource.prlimit(server, resource.RLIMIT_STACK, (soft, hard))


@pytest.mark.parametrize(("make", "message"), FATES.items(), ids=lambda item: getattr(item, "__name__", None))
def test_a_crash_is_blamed_on_the_original_and_the_run_continues(
    make: Callable[[], onnx.ModelProto], message: str
) -> None:
    # A short limit only for what ends by it, and not too short for the checker, which must come back before.
    result = apply(make(), timeout=3 if make in ENDLESS else 60)
    first, second = result.steps
    # The same operators are left on the same values, whatever becomes of them when they run.
    assert (first.status, first.verdict and first.verdict.status) == ("committed", "equal")
    assert result.end is not None and result.end.status == "unverified"
    if message not in result.end.message:
        # Not the release in which that was seen: it ends as a plain session of the installed one does.
        ends = installed.fate(make())
        assert ends and (f"crashed with {ends}" if ends.startswith("SIG") else shorten_native(ends)) in (
            result.end.message
        )
    assert second.status == "unchanged"


def test_a_crash_on_user_inputs_is_reported_as_a_failed_run(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([killers.LEAST], np.int32))
    np.save(tmp_path / "b.npy", np.array([-1], np.int32))
    model = killers.division_of_inputs()
    killed = apply(model, f"{{tensors: {{a: {{file: {tmp_path}/a.npy}}, b: {{file: {tmp_path}/b.npy}}}}}}")
    assert killed.end is not None
    assert "the original fails in ONNX Runtime: run crashed with SIGFPE" in killed.end.message
    assert [step.status for step in apply(model).steps] == ["committed", "unchanged"]


def test_deep_branches_are_verified_up_to_the_depth_protobuf_reads(tmp_path: Path) -> None:
    result = apply(killers.nested_branches(30))
    assert [step.status for step in result.steps] == ["committed", "unchanged"]
    path = tmp_path / "deep.onnx"
    path.write_bytes(killers.nested_branches_as_bytes(50))
    with pytest.raises(ModelFileError, match=r"deep.onnx: it nests deeper than protobuf reads"):
        storage.load(path)


def test_a_cycle_is_reported() -> None:
    with pytest.raises(ModelFileError, match="the graph has a cycle: Identity -> i, Neg -> b, Identity -> i"):
        apply(killers.cycle())
