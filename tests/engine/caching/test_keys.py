"""What a cached outcome depends on, and which runs and steps depend on too much."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surgery import Graph, graph_pass
from surgery.engine.caching import keys
from surgery.engine.caching.cache_folder import CacheFolder
from surgery.engine.caching.step_cache import Steps
from surgery.engine.pipeline.candidate import State
from surgery.engine.pipeline.step_cache_interface import RunStart
from surgery.engine.recipe import parse
from surgery.engine.recipe.schema import PassStep
from surgery.model.graph import text
from surgery.model.storage import loading
from surgery.model.targets import STANDARD

PLAIN = "g (float[N,2] x) => (float[N,2] y) { y = Relu(x) }"
DRAWS = "g (float[N,2] x) => (float[N,2] y) { r = RandomNormalLike(x) y = Add(x, r) }"


def state(model: str = PLAIN) -> State:
    proto = text.parse(model)
    return State.of(proto, proto.SerializeToString(deterministic=True))


def start(settings: str = "", model: str = PLAIN, **more: Any) -> RunStart:
    recipe = parse(f"recipe: t\n{settings}\nsteps: [drop-identity]", trust=True)
    first = state(model)
    return replace(RunStart(loading.opened(first.proto), first, recipe, STANDARD, contained=True), **more)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CacheFolder:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros((1, 2), np.float32))
    Path("made.py").write_text("def make(): return {}\n", encoding="utf-8")
    return CacheFolder(tmp_path / "cache", pytest.fail)


REFUSED = {
    "in this process": (lambda: start(contained=False), "for debugging"),
    "of a plan": (lambda: start(chosen=True), "a plan selects the sites"),
    "on a provider": (lambda: start("verify: {providers: [CUDAExecutionProvider]}"), "CUDAExecutionProvider depend"),
    "with a function": (lambda: start("inputs: {generator: made.py:make}"), "come from Python code"),
    "of a model that draws": (lambda: start(model=DRAWS), "draws random numbers"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_run_that_depends_on_more_is_not_cached(what: str, folder: CacheFolder, tmp_path: Path) -> None:
    run, why = REFUSED[what]
    steps = Steps(folder)
    steps.begin(run())
    assert why in steps.refusal
    (step,) = run().recipe.steps
    assert isinstance(step, PassStep) and not steps.may_know(step, state())
    for find in (steps.find_deployed, steps.find_end):
        assert find(state()) is None
    assert steps.find_whole("(end)", state()) is None
    steps.finish()
    assert not [*(tmp_path / "cache").rglob("*.step")] and (steps.found, steps.missed) == (0, 0)


def test_a_run_that_depends_on_its_recipe_and_model_is_cached(folder: CacheFolder) -> None:
    assert keys.refusal(start()) == "" == keys.refusal(start("inputs: {data: x.npy}"))


def test_the_key_of_a_run_has_everything_that_outcomes_depend_on(
    folder: CacheFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "_engine", lambda folder: "source")

    def key(settings: str = "", original: str = "digest", **more: Any) -> str:
        return keys.run_key(start(settings, **more), original, folder)

    found = [key(), key(original="other"), key("verify: {seed: 7}"), key("inputs: {dims: {N: 3}}")]
    found += [key("inputs: {data: x.npy}"), key("expect: {empty: allowed}"), key(target=replace(STANDARD, name="t"))]
    np.save("x.npy", np.ones((1, 2), np.float32))
    found.append(key("inputs: {data: x.npy}"))
    for name in ("ONNX_A", "ORT_A", "OMP_A", "MKL_A", "OPENBLAS_A"):
        with monkeypatch.context() as changed:
            changed.setenv(name, "1")
            found.append(key())
    with monkeypatch.context() as changed:
        changed.setattr(keys.packages, "packages", lambda: {"onnx": "0"})
        found.append(key())
        changed.setattr(keys.packages, "processor", lambda: "another")
        found.append(key())
    with monkeypatch.context() as changed:
        changed.setattr(keys, "_engine", lambda folder: "another source")
        found.append(key())
    assert len({*found}) == len(found)
    monkeypatch.setenv("OTHER", "1")
    assert key() == found[0]


@graph_pass("neither-cached")
def neither_cached(graph: Graph) -> None:
    """Do nothing, as a pass that is not part of surgery."""


def step_key(step: str, rules: str = "") -> str | None:
    (found,) = parse(f"recipe: t\n{rules}\nsteps: [{step}]").steps
    assert isinstance(found, PassStep)
    return keys.step_key(found)


def test_the_key_of_a_step_has_its_pass_and_its_options(folder: CacheFolder) -> None:
    plain = step_key("fold-constants")
    assert plain is not None
    assert plain == step_key("{pass: fold-constants, on_failure: rollback}")
    others = [
        step_key("drop-identity"),
        step_key("{pass: fold-constants, on_failure: bisect}"),
        step_key("{pass: fold-constants, on_failure: keep}"),
        step_key("{fold-constants: {max_growth: 3}}"),
        step_key("{pass: fold-constants, except: [{op: Relu}]}"),
        step_key("r", "rules:\n  r: {match: y = Relu(x), emit: y = x, parity: exact}"),
        step_key("r", "rules:\n  r: {match: y = Abs(x), emit: y = x, parity: exact}"),
    ]
    assert None not in others and len({plain, *others}) == len(others) + 1
    assert step_key("neither-cached") is None


@pytest.mark.parametrize(("name", "whole"), [("a.npz", True), ("a.onnx", False), ("a.index.json", False)])
def test_a_file_that_may_refer_to_others_is_not_enough(name: str, whole: bool, folder: CacheFolder) -> None:
    Path(name).write_bytes(b"{}")
    assert (keys._content(Path(name)) is not None) is whole
    Path("folder.json").mkdir()
    assert keys._content(Path("folder.json")) is None


def test_sets_have_the_same_key_in_all_processes() -> None:
    given = {"b": frozenset({"y", "x"}), "a": (1, [2.0, None])}
    assert keys._plain(given) == [["'a'", ["1", ["2.0", "None"]]], ["'b'", ["'x'", "'y'"]]]
