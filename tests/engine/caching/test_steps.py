"""The cache of steps: what is known is not done again, and what is done again makes the same."""

from pathlib import Path

import pytest
from support import cached_runs
from support.breadth import sampled
from support.cached_runs import MODEL, RECIPE, run, without_distances, write_model

from surgery.engine.caching import cache_folder, keys
from surgery.engine.caching.step_cache import Steps
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.run_options import RunOptions
from surgery.engine.provenance.code_digests import PassSource
from surgery.engine.recipe import parse
from surgery.engine.registry.passes import Pass
from surgery.interface.drawing import History, document
from surgery.model.graph import text

RULES = "rules:\n  cut-relu: {match: y = Relu(x), emit: y = x, parity: exact}\n"
AFTER = ["drop-dropout", "fuse-matmul-add", "merge-transposes"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.onnx")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_a_second_run_is_fully_cached_and_gives_the_same_result(model: Path, cache: Path) -> None:
    plain, first, second = run(model, None), run(model, cache), run(model, cache)
    assert plain.sha256 == first.sha256 == second.sha256 != ""
    assert plain.report == first.report == second.report
    assert first.cached == [] and len(second.cached) == len(first.result.steps) == 6
    assert second.watcher.stages == []
    assert second.result.to_json()["cached"] == {"steps": 6, "end": True}
    statuses = [step.status for step in first.result.steps]
    assert statuses == ["committed", "committed", "committed", "unchanged", "committed", "unchanged"]
    refused = second.result.steps[2].refused_sites
    assert [site.number for site in refused] == [2] and "y" in refused[0].why


def test_the_original_does_not_run_for_a_second_run(model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from surgery.verification.comparing.reference_run import ReferenceRun

    run(model, cache)
    # The file is older than a moment, so that its digest is remembered.
    monkeypatch.setattr(cache_folder, "_SETTLED", 0)
    run(model, cache)

    def fail(self: ReferenceRun) -> None:
        raise AssertionError("the original ran")

    monkeypatch.setattr(ReferenceRun, "_prepare", fail)
    assert len(run(model, cache).cached) == 6


@pytest.mark.parametrize(
    ("old", "new", "ran"),
    sampled(
        [
            ("  - merge-transposes", "  - merge-transposes\n  - drop-no-op", ["drop-no-op"]),
            ("  - merge-transposes", "  - fold-constants", ["fold-constants"]),
            ("  - drop-dropout\n", "", []),
            ("  - drop-dropout\n", "  - drop-no-op\n  - drop-dropout\n", ["drop-no-op"]),
            ("  - fold-constants\n", "  - fold-constants: {max_growth: 1MB}\n", ["fold-constants"]),
            ("    on_failure: bisect\n", "    on_failure: rollback\n", ["cut-relu", *AFTER]),
        ],
        3,
    ),
    ids=["one more", "another last", "one less that changed nothing", "one more in between", "option", "on_failure"],
)
def test_changed_steps_of_a_recipe_run_again(model: Path, cache: Path, old: str, new: str, ran: list[str]) -> None:
    run(model, cache)
    changed = RECIPE.replace(old, new).replace("Relu: 1", "Relu: '>= 1'")
    assert changed != RECIPE
    found, plain = run(model, cache, changed), run(model, None, changed)
    # What ran ahead of a step that was undone ran twice.
    assert list(dict.fromkeys(found.watcher.ran)) == ran
    assert found.sha256 == plain.sha256
    assert without_distances(found.report) == without_distances(plain.report)


@pytest.mark.parametrize(
    ("old", "new"),
    sampled(
        [
            ("[1, 3]", "[1, 4]"),
            ("inputs:", "verify: {seed: 1}\ninputs:"),
            ("inputs:", "verify: {rtol: 1e-3, atol: 1e-4}\ninputs:"),
            ("inputs:", "verify: {compare: whole}\ninputs:"),
            ("inputs:", "target: ort-cpu\ninputs:"),
        ],
        5,
    ),
    ids=["dims", "seed", "tolerance", "compare", "target"],
)
def test_changed_verification_settings_invalidate_the_cache(model: Path, cache: Path, old: str, new: str) -> None:
    run(model, cache)
    assert run(model, cache, RECIPE.replace(old, new)).cached == []


def test_a_rule_is_part_of_the_key(model: Path, cache: Path) -> None:
    run(model, cache)
    changed = run(model, cache, RECIPE.replace("emit: y = x", "emit: y = Abs(x)"))
    assert changed.watcher.ran[0] == "cut-relu" and changed.cached == ["drop-identity", "fold-constants"]


def test_a_changed_pass_source_invalidates_the_cache(model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(model, cache)
    known = keys.code_digests.source_of

    def changed(one: Pass) -> PassSource:
        found = known(one)
        return PassSource(found.origin, "0" * 64) if one.name == "fuse-matmul-add" else found

    monkeypatch.setattr(keys.code_digests, "source_of", changed)
    found = run(model, cache)
    # The step makes the same, so that those after it are known.
    assert found.watcher.ran == ["fuse-matmul-add"]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["engine", "packages"])
def test_another_version_invalidates_the_cache(
    model: Path, cache: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(model, cache)
    if what == "engine":
        monkeypatch.setattr(keys, "_engine", lambda folder: "another")
    else:
        monkeypatch.setattr(keys.packages, "packages", lambda: {"onnxruntime": "0.1"})
    assert run(model, cache).cached == []


@pytest.mark.slow
def test_other_weights_are_another_model(model: Path, cache: Path) -> None:
    first = run(model, cache)
    write_model(model, seed=1)
    second = run(model, cache)
    assert second.cached == [] and second.sha256 != first.sha256


def test_weights_changed_in_place_with_an_old_mtime_are_detected(
    model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    monkeypatch.setattr(cache_folder, "_SETTLED", 0)
    run(model, cache)
    before = model.stat()
    data = bytearray(model.read_bytes())
    data[-40_000] ^= 1
    with model.open("r+b") as file:
        file.write(data)
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (model.stat().st_size, model.stat().st_ino) == (before.st_size, before.st_ino)
    assert run(model, cache).cached == []


def test_a_copy_at_another_place_is_the_same_model(model: Path, cache: Path, tmp_path: Path) -> None:
    first = run(model, cache)
    other = tmp_path / "other" / "copy.onnx"
    other.parent.mkdir()
    other.write_bytes(model.read_bytes())
    second = run(other, cache)
    assert len(second.cached) == 6 and second.sha256 == first.sha256


@pytest.mark.slow
def test_inputs_are_identified_by_content(model: Path, cache: Path, tmp_path: Path) -> None:
    import numpy as np

    recipe = RECIPE.replace("inputs: {", f"inputs: {{data: {tmp_path}/x.npz, ")
    for value, cached in ((1.0, 0), (1.0, 6), (2.0, 0)):
        np.savez(tmp_path / "x.npz", x=np.full((2, 160), value, np.float32))
        assert len(run(model, cache, recipe).cached) == cached


def test_a_wrong_step_is_cached_too(model: Path, cache: Path) -> None:
    recipe = RECIPE.replace("bisect", "rollback").replace("Relu: 1", "Relu: 3")
    first, second = run(model, cache, recipe), run(model, cache, recipe)
    assert second.watcher.ran == [] and first.report == second.report
    assert second.result.steps[2].status == "rolled_back" and second.result.steps[2].cached
    # To end the run for it is another matter.
    third = run(model, cache, recipe.replace("rollback", "abort"))
    assert (third.result.failure and third.result.failure.name) == "cut-relu"
    assert third.sha256 == ""


@pytest.mark.slow
def test_sites_that_were_wrong_are_avoided_in_later_rounds(model: Path, cache: Path) -> None:
    recipe = RECIPE.replace(
        "  - drop-dropout\n",
        "  - repeat: until-stable\n    steps: [drop-no-op, {pass: cut-relu, on_failure: bisect}]\n",
    )
    plain, first, second = run(model, None, recipe), run(model, cache, recipe), run(model, cache, recipe)
    assert plain.report == first.report == second.report
    assert second.watcher.stages == []
    for path in cached_runs.entries(cache)[2::3]:
        path.unlink()
    part = run(model, cache, recipe)
    assert part.sha256 == plain.sha256
    assert without_distances(part.report) == without_distances(plain.report)
    assert 0 < len(part.cached) < len(second.cached)


@pytest.mark.parametrize("mode", ["end", "off"])
def test_other_verification_modes_are_cached(model: Path, cache: Path, mode: str) -> None:
    recipe = RECIPE.replace("inputs:", f"verify: {{mode: {mode}}}\ninputs:").replace("Relu: 1", "Relu: 3")
    recipe = recipe.replace("  - pass: cut-relu\n    on_failure: bisect\n", "").replace(RULES, "")
    plain, first, second = run(model, None, recipe), run(model, cache, recipe), run(model, cache, recipe)
    assert plain.report == first.report == second.report and second.watcher.stages == []
    assert len(second.cached) == len(first.result.steps)


@pytest.mark.slow
def test_a_failed_final_check_is_found_again(model: Path, cache: Path) -> None:
    recipe = RECIPE.replace("inputs:", "verify: {mode: end}\ninputs:").replace("bisect", "rollback")
    recipe = recipe.replace("Relu: 1", "Relu: 3")
    plain, first, second = run(model, None, recipe), run(model, cache, recipe), run(model, cache, recipe)
    assert plain.report == first.report == second.report
    assert [step.name for step in second.result.refused] == ["(end)", "cut-relu"]


@pytest.mark.slow
def test_the_drawing_of_a_run_is_the_same(model: Path, cache: Path) -> None:
    drawings = []
    for place in (None, cache, cache):
        history = History()
        run(model, place, history=history)
        drawings.append(document(history))
    assert drawings[0] == drawings[1] == drawings[2]


@pytest.mark.slow
def test_an_unchanged_prefix_is_cached_after_a_signature_change(model: Path, cache: Path) -> None:
    recipe = RECIPE.replace("  - drop-dropout\n", "  - set-dims: {dims: {batch: 2}}\n")
    plain, first, second = run(model, None, recipe), run(model, cache, recipe), run(model, cache, recipe)
    assert plain.report == first.report == second.report and second.watcher.stages == []
    last = RECIPE.replace("  - drop-dropout\n", "  - set-dims: {dims: {batch: 2}}\n").replace(
        "merge-transposes", "drop-no-op"
    )
    found, plain = run(model, cache, last), run(model, None, last)
    assert found.watcher.ran == ["drop-no-op"] and (found.sha256, found.report) == (plain.sha256, plain.report)


LOSSY = """
recipe: lossy
inputs: {dims: {batch: [1, 3]}}
accuracy: {budget: snr >= 20 dB}
steps: [fold-constants, to-float16, drop-no-op]
"""


@pytest.mark.slow
def test_a_lossy_step_is_cached_as_reference_of_later_steps(model: Path, cache: Path) -> None:
    plain, first, second = run(model, None, LOSSY), run(model, cache, LOSSY), run(model, cache, LOSSY)
    assert plain.report == first.report == second.report and second.watcher.stages == []
    assert [step.verdict and step.verdict.status for step in second.result.steps][1] == "lossy"
    more = LOSSY.replace("drop-no-op", "drop-no-op, common-subexpressions, cut-relu").replace(
        "steps:", f"{RULES}on_failure: rollback\nsteps:"
    )
    found, plain = run(model, cache, more), run(model, None, more)
    assert found.watcher.ran == ["common-subexpressions", "cut-relu"]
    assert found.sha256 == plain.sha256
    assert without_distances(found.report) == without_distances(plain.report)


# What is not cached


@pytest.mark.slow
def test_a_run_in_this_process_is_not_cached(model: Path, cache: Path) -> None:
    run(model, cache)
    found = run(model, cache, contained=False)
    assert found.cached == [] and found.cache is not None and "for debugging" in found.cache.refusal


@pytest.mark.slow
def test_a_model_that_draws_is_not_cached(model: Path, cache: Path) -> None:
    import onnx

    loaded = onnx.load(model)
    drawing = text.parse(MODEL.replace("y = Neg(r3)", "d = RandomNormal <shape = [1]> ()  y = Add(r3, d)"))
    drawing.graph.initializer.extend(loaded.graph.initializer)
    onnx.save(drawing, model)
    for _ in range(2):
        found = run(model, cache)
        assert found.cached == [] and found.cache is not None and "random numbers" in found.cache.refusal


@pytest.mark.slow
def test_inputs_of_python_code_are_not_cached(model: Path, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "make.py").write_text(
        "import numpy as np\n"
        "def make(dims, seed):\n"
        "    return {'x': np.random.default_rng(seed).normal(size=(dims['batch'], 160)).astype('float32')}\n"
    )
    from surgery.engine import recipe as recipes
    from surgery.engine.caching.cache_folder import CacheFolder
    from surgery.engine.caching.step_cache import Steps
    from surgery.engine.pipeline import runner

    recipe = RECIPE.replace("inputs: {", "inputs: {generator: 'make.py:make', ")
    loaded = recipes.parse(recipe, str(tmp_path / "test.yaml"), trust=True)
    for _ in range(2):
        steps = Steps(CacheFolder(cache, pytest.fail))
        result = runner.apply(model, loaded, options=RunOptions(cache=steps))
        assert result.ok and result.cached[0] == 0 and "Python code" in steps.refusal


def test_plugin_passes_always_run_and_other_steps_are_cached(model: Path, cache: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "cached_plugin.py"
    plugin.write_text(
        "from surgery import Graph, Parity, graph_pass\n\n\n"
        "@graph_pass('plugin-drop-identity', parity=Parity.EXACT)\n"
        "def drop(graph: Graph) -> None:\n"
        "    '''Drop each Identity.'''\n"
        "    for node in graph.nodes('Identity'):\n"
        "        graph.replace(node.outputs[0], node.required_input(0))\n"
    )
    from surgery.engine.registry.catalog import catalog

    catalog.load_plugin(str(plugin))
    recipe = RECIPE.replace("- drop-identity", "- plugin-drop-identity")
    first, second = run(model, cache, recipe), run(model, cache, recipe)
    assert first.report == second.report and first.sha256 == second.sha256
    assert second.watcher.ran == ["plugin-drop-identity"]


@pytest.mark.slow
def test_a_result_affected_by_a_limit_is_not_cached(model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from surgery.engine.pipeline import transaction

    with monkeypatch.context() as patch:
        patch.setattr(transaction, "MOST_RUNS", 1)
        limited = run(model, cache, RECIPE.replace("Relu: 1", "Relu: '>= 1'"))
    assert "gave up" in limited.result.steps[2].message
    found, plain = run(model, cache), run(model, None)
    assert "cut-relu" in found.watcher.ran and found.report == plain.report


def test_runs_of_one_cache_are_counted_separately(model: Path, cache: Path) -> None:
    run(model, cache)
    steps = Steps(cache_folder.CacheFolder(cache, pytest.fail))
    for _ in range(2):
        assert runner.apply(model, parse(RECIPE), options=RunOptions(cache=steps)).ok
    _, first, second = steps.folder.uses.read_text().splitlines()
    assert first == second and steps.found == 2 * int(first.split()[0]) > 0
