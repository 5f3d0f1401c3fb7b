"""Recipes as files: paths, nesting, plugins and trust."""

import hashlib
from pathlib import Path

import pytest
from support.recipe_texts import REAL_FOLDER, mistakes, only, step

from surgery.base.errors import RecipeError, UsageError
from surgery.engine.recipe import PassStep, UseStep, load, names, parse, plugins, trust

pytestmark = pytest.mark.usefixtures("passes", "shelf")

# Files


def test_the_folder_of_shipped_recipes_exists() -> None:
    assert (REAL_FOLDER() / "tidy.yaml").is_file()


def test_load_by_name_and_by_path(tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert names() == ("bert", "tidy")
    assert load("tidy").name == "tidy"
    assert load("bert").path == shelf / "bert.yaml"
    Path("tidy").mkdir()
    assert load("tidy").path == shelf / "tidy.yaml"
    Path("own").write_text("steps: [drop-dropout]")
    assert load("own").name == load("./own").name == load(Path("own")).name == "own"
    Path("bert").write_text("steps: [drop-dropout]")
    assert load(Path("bert")).path == Path("bert")
    assert load("./bert").path == Path("bert")


def test_recipes_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("steps: [drop-dropout]")
    Path("m.onnx").write_bytes(b"\x08\x0a")
    Path("plan.json").write_text('{\n "format": "surgery-plan",' + " " * 200_000)
    Path("large.yaml").write_text("#" * 200_000)
    Path("folder").mkdir()
    for name, message in {
        "bret": "no recipe 'bret'; did you mean 'bert'?",
        "nothing": "no recipe 'nothing'; shipped are bert, tidy",
        "mien.yaml": "recipe 'mien.yaml' does not exist; did you mean 'mine.yaml'?",
        "mine.yml": "recipe 'mine.yml' does not exist; did you mean 'mine.yaml'?",
        "mine": "no recipe 'mine'; did you mean 'mine.yaml'?",
        "x/tidy.yaml": "recipe 'x/tidy.yaml' does not exist; did you mean 'tidy'?",
        "x/tydi.yaml": "recipe 'x/tydi.yaml' does not exist; there is no folder 'x'",
        "folder/nope.yaml": "recipe 'folder/nope.yaml' does not exist; check the path",
        "plan.json": "'plan.json' is a plan, not a recipe; apply it: surgery apply PLAN",
        "folder": "'folder' is a directory, not a recipe",
        "": "'' is a directory, not a recipe",
        "m.onnx": "'m.onnx' is a model, not a recipe; the recipe comes first, then the model",
        "large.yaml": "'large.yaml' is too large for a recipe (more than 128 KiB)",
        "a\0b": "no recipe 'a b'; shipped are bert, tidy",
        "z" * 5000: f"no recipe '{'z' * 40}…'; shipped are bert, tidy",
    }.items():
        with pytest.raises(UsageError) as caught:
            load(name)
        assert str(caught.value) == message


def test_paths_start_at_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    Path("a/x.npy").write_bytes(b"")
    text = "model: ../m.onnx\ninputs: {tensors: {x: {file: ../x.npy}}}\nsteps: [{use: ../c.yaml}]\n"
    Path("a/b/r.yaml").write_text(text)
    Path("a/c.yaml").write_text("model: /abs/m.onnx\nsteps: [drop-dropout]")
    recipe = load("a/b/r.yaml")
    assert recipe.model == Path("a/m.onnx")
    assert recipe.inputs.tensors["x"].file == Path("a/x.npy")
    assert only(recipe).recipe.path == Path("a/c.yaml")
    assert only(recipe).recipe.model == Path("/abs/m.onnx")
    # After a link `..` is not the folder above in the name.
    (tmp_path / "far" / "deep").mkdir(parents=True)
    Path("link").symlink_to(tmp_path / "far" / "deep")
    Path("link/r.yaml").write_text("model: ../m.onnx\nsteps: [drop-dropout]")
    model = load("link/r.yaml").model
    assert model is not None and model.resolve() == tmp_path.resolve() / "far" / "m.onnx"


def test_mistakes_of_nested_recipes_are_included(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path("r.yaml").write_text("steps:\n  - use: sub/a.yaml\n  - use: sub/a.yaml\n  - drop-dropuot\n  - use: sub\n")
    Path("sub/a.yaml").write_text("steps:\n  - use: b.yaml\n  - use: c.yaml\n  - xyz\n")
    Path("sub/b.yaml").write_text("stops: [drop-dropout]\n")
    with pytest.raises(RecipeError) as caught:
        load("r.yaml")
    assert str(caught.value).splitlines() == [
        "r.yaml:4:5: no pass 'drop-dropuot'; did you mean 'drop-dropout'?",
        "r.yaml:5:10: 'sub' is a directory, not a recipe",
        "sub/a.yaml:3:10: recipe 'c.yaml' does not exist; did you mean 'b.yaml'?",
        "sub/a.yaml:4:5: no pass 'xyz'; 'surgery passes' lists them",
        "sub/b.yaml:1:1: no key 'stops'; did you mean 'steps'?",
    ]


def test_circular_recipes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shelf: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.yaml").write_text(step("use: own.yaml"))
    Path("a.yaml").write_text(step("use: b.yaml"))
    Path("b.yaml").write_text(step("repeat: 2\n    steps: [{use: ./c.yaml}]"))
    Path("c.yaml").write_text(step("use: ../c/a.yaml").replace("../c", f"../{tmp_path.name}"))
    (shelf / "loop.yaml").write_text(step("use: loop"))
    for name, message in {
        "own.yaml": "own.yaml:2:10: a recipe cannot use itself: own.yaml -> own.yaml",
        "a.yaml": "c.yaml:2:10: a recipe cannot use itself: a.yaml -> b.yaml -> c.yaml -> a.yaml",
        "loop": f"{shelf}/loop.yaml:2:10: a recipe cannot use itself: loop.yaml -> loop.yaml",
    }.items():
        with pytest.raises(RecipeError) as caught:
            load(name)
        assert str(caught.value) == message
    (found,) = mistakes(step("use: own.yaml"), "./own.yaml")
    assert found == "./own.yaml:2:10: a recipe cannot use itself: own.yaml -> own.yaml"


def test_using_a_recipe_twice_is_not_circular() -> None:
    first, second = parse("steps: [{use: tidy}, {use: bert}]").steps
    assert isinstance(first, UseStep) and isinstance(second, UseStep)
    assert only(second.recipe).recipe is first.recipe


def test_deep_nesting_ends_in_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(12):
        inner = f"{{use: r{number + 1}.yaml}}"
        for _ in range(10):
            inner = f"{{repeat: 2, steps: [{inner}]}}"
        Path(f"r{number}.yaml").write_text(f"steps: [{inner}]")
    with pytest.raises(RecipeError, match=r"^r7.yaml:1:\d+: recipes nested more than 8 deep$"):
        load("r0.yaml")


# Plugins


PLUGIN = """
from surgery import Graph, graph_pass

@graph_pass('{}')
def change(graph: Graph, *, strength: int = 1) -> None:
    'Change.'
"""


def test_local_python_needs_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path("sub/wrong.py").write_text(PLUGIN.format("from-wrong") + "import builtins\nbuiltins.surgery_ran = True\n")
    Path("sub/x.yaml").write_text("plugins: [./wrong.py]\nsteps: [{from-wrong: {strength: 2}}]\n")
    digest = hashlib.sha256(Path("sub/wrong.py").read_bytes()).hexdigest()
    with pytest.raises(UsageError) as caught:
        load("sub/x.yaml")
    assert str(caught.value) == (
        f"sub/x.yaml wants to run ./wrong.py (sha256 {digest}, file {tmp_path}/sub/wrong.py); if you trust it, "
        f"pass --trust, or add it to the list 'trust' in {trust.config_file()}"
    )
    import builtins

    assert not hasattr(builtins, "surgery_ran")
    recipe = load("sub/x.yaml", trust=True)
    assert builtins.surgery_ran  # type: ignore[attr-defined]
    del builtins.surgery_ran  # type: ignore[attr-defined]
    assert recipe.plugins == ("sub/wrong.py",)
    assert only(recipe) == PassStep("from-wrong", {"strength": 2})


def test_mistakes_are_reported_with_the_request_for_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.py").write_text(PLUGIN.format("from-p"))
    found = mistakes("plugins: p.py\nabot: x\nsteps: [from-p, fold-constants: {rouns: 1}]\n")
    assert [line.split(" (")[0] for line in found] == [
        "r.yaml:1:10: the recipe wants to run p.py",
        "r.yaml:2:1: no key 'abot'; did you mean 'about'?",
        "r.yaml:3:34: pass 'fold-constants' has no option 'rouns'; did you mean 'rounds'?",
    ]
    assert found[0].endswith(f"; {plugins.how_to_trust()}")


def test_plugins_of_nested_recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path("sub/q.py").write_text(PLUGIN.format("from-q"))
    Path("sub/n.yaml").write_text("plugins: [q.py]\nsteps: [from-q]\n")
    text = "steps:\n  - from-q\n  - use: sub/n.yaml\n"
    with pytest.raises(UsageError, match=r"^sub/n.yaml wants to run q.py \(sha256 "):
        parse(text, "r.yaml")
    assert parse(text, "r.yaml", trust=True).plugins == ()
    assert mistakes("steps:\n  - from-qq\n  - use: sub/n.yaml\n", trust=True) == [
        "r.yaml:2:5: no pass 'from-qq'; did you mean 'from-q'?"
    ]


def test_plugins_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    Path("installed").mkdir()
    Path("installed/broken_plugin.py").write_text("raise RuntimeError('no\\nway')\n")
    Path("installed/leaving_plugin.py").write_text("raise SystemExit(3)\n")
    Path("syntax.py").write_text("def\n")
    text = "plugins: [syntax.py, broken_plugin, leaving_plugin]\nsteps: [unknown-pass]\n"
    found = mistakes(text, trust=True)
    assert found[0].startswith("r.yaml:1:11: plugin 'syntax.py' cannot be imported: SyntaxError: ")
    assert (
        found[1] == "r.yaml:1:22: plugin 'broken_plugin' cannot be imported: RuntimeError: no way (broken_plugin.py:1)"
    )
    assert found[2] == "r.yaml:1:37: plugin 'leaving_plugin' cannot be imported: SystemExit: 3 (leaving_plugin.py:1)"
    assert len(found) == 3


def test_modules_need_trust_only_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "installed").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "installed" / "good_plugin.py").write_text(PLUGIN.format("from-good"))
    (tmp_path / "here" / "local_plugin.py").write_text(PLUGIN.format("from-local"))
    (tmp_path / "here" / "local_package").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    assert only(parse("plugins: [good_plugin]\nsteps: [from-good]")).name == "from-good"
    # `python -m` looks in the current folder, so that a module there is a file that nobody installed.
    monkeypatch.syspath_prepend(str(tmp_path / "here"))
    with pytest.raises(UsageError, match=r"^r.yaml wants to run local_plugin \(sha256 [0-9a-f]{64}, file /.*\); "):
        parse("plugins: [local_plugin]\nsteps: [from-local]", "r.yaml")
    with pytest.raises(
        UsageError, match=r"^r.yaml wants to run local_package.inner \(folder /.*/here/local_package\); "
    ):
        parse("plugins: [local_package.inner]\nsteps: [from-local]", "r.yaml")
    text = "plugins: [local_plugin]\nsteps: [from-local]"
    assert only(parse(text, "r.yaml", trust=True)).name == "from-local"
