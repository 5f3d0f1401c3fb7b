"""`surgery run`: values of options as in a recipe, and the recipe that it shows."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from surgery.engine import recipe
from surgery.engine.recipe import PassStep, Recipe
from surgery.engine.registry.catalog import catalog
from surgery.interface import commands as cli
from surgery.interface.command_line import _settings
from surgery.model.graph import text

MODEL = """g (float[batch, 4] x) => (float[batch, 4] y) { i = Identity(x) y = Neg(i) }"""
PLUGIN = '''
from typing import Literal

from surgery import Graph, Parity, Size, graph_pass


@graph_pass("run-options", parity=Parity.EXACT)
def run_options(
    graph: Graph,
    *,
    note: str = "none",
    count: int = 1,
    rate: float = 0.5,
    names: tuple[str, ...] = (),
    limit: Size = 10,
    mode: Literal["fast", "slow"] = "fast",
    on: bool = False,
) -> None:
    """Drop Identity nodes."""
    for node in graph.nodes("Identity"):
        graph.replace(node.outputs[0], node.required_input(0))
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model; the plugin is elsewhere, for it is imported once."""
    monkeypatch.chdir(tmp_path)
    onnx.save(text.parse(MODEL), tmp_path / "model.onnx")
    return tmp_path


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plugins") / "options.py"
    path.write_text(PLUGIN)
    return path


def surgery(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("count=20", 20),
        ("rate=1e-5", 1e-5),
        ("rate=2", 2.0),
        ("names=[a, b]", ("a", "b")),
        ("names=[]", ()),
        ("limit=1MB", 1_000_000),
        ("limit=4096", 4096),
        ("mode=slow", "slow"),
        ("on=true", True),
        ("on=yes", True),
        ("note=plain", "plain"),
        ("note=20", "20"),
        ("note=true", "true"),
        ("note=a: b", "a: b"),
        ("note=[a", "[a"),
        ("note='20'", "20"),
        ("note=x=y", "x=y"),
        ("note=", ""),
        ("note=*/Relu", "*/Relu"),
    ],
)
def test_option_values_are_parsed_as_in_a_recipe(plugin: Path, setting: str, expected: object) -> None:
    catalog.load_plugin(str(plugin))
    declared = catalog.find("run-options")
    given = _settings.read(declared, [setting])
    name = setting.partition("=")[0]
    assert declared.bind(given)[name] == expected
    # And the recipe that is shown says the same.
    from surgery.engine.recipe.resolved import written

    shown = recipe.parse(written({"steps": [{"run-options": given}]}))
    assert shown.steps == (PassStep("run-options", shown.steps[0].options),)
    assert declared.bind(shown.steps[0].options)[name] == expected


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["count=many"], "option 'count' of 'run-options' takes int"),
        (["count=[1]"], "takes int"),
        (["names=3"], "option 'names'"),
        (["limit=much"], "not a size"),
        (["mode=quick"], "takes fast | slow"),
        (["on=7"], "takes bool"),
        (["count"], "OPTION=VALUE"),
        (["=1"], "OPTION=VALUE"),
        (["names=[a"], "never closed"),
        (["names={a"], "never closed"),
        (["coutn=1"], "did you mean 'count'"),
        (["count=1", "count=2"], "gives 'count' twice"),
    ],
)
def test_wrong_values_are_named(
    folder: Path, plugin: Path, capsys: pytest.CaptureFixture[str], settings: list[str], words: str
) -> None:
    flags = [part for setting in settings for part in ("--set", setting)]
    code, out, err = surgery(capsys, "run", "run-options", "model.onnx", "--plugin", plugin, *flags)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err


def test_a_wrong_limit_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = surgery(capsys, "run", "to-float16", "model.onnx", "--accuracy", "snr >= -10 dB")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--accuracy 'snr >= -10 dB': a limit has the form" in err


def test_the_recipe_is_shown_and_means_the_same(folder: Path, plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("given.npz", x=np.ones((3, 4), np.float32))
    flags = ["--plugin", plugin, "--set", "names=[a, 'b c']", "--set", "note=20"]
    flags += ["--dims", "batch=2,5", "--inputs", "given.npz", "--unverified", "accept"]
    code, _, err = surgery(capsys, "run", "run-options", "model.onnx", *flags)
    assert code == 0
    _, _, shown = err.partition("equivalent recipe:\n")
    loaded = recipe.parse(shown, folder / "shown.yaml", trust=True)
    assert isinstance(loaded, Recipe) and len(loaded.steps) == 1
    step = loaded.steps[0]
    assert isinstance(step, PassStep) and step.name == "run-options"
    assert step.options == {"names": ["a", "b c"], "note": "20"}
    assert [Path(name).resolve() for name in loaded.plugins] == [plugin]
    assert loaded.inputs.dims == {"batch": (2, 5)} and loaded.verify.unverified == "accept"
    assert [spec.path.resolve() for spec in loaded.inputs.data] == [folder / "given.npz"]


def test_json_includes_the_recipe(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = surgery(
        capsys, "run", "fold-constants", "model.onnx", "--set", "max-growth=1KB", "--format", "json"
    )
    assert code == 0 and "as a recipe" not in err
    loaded = recipe.parse(json.loads(out)["yaml"])
    assert loaded.steps == recipe.single_step("fold-constants", {"max_growth": "1KB"}).steps


def test_the_recipe_is_saved_with_paths_from_its_folder(
    folder: Path, plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "recipes").mkdir()
    save = ["--save-recipe", "recipes/mine.yaml"]
    code, _, err = surgery(capsys, "run", "run-options", "model.onnx", "--plugin", plugin, *save)
    assert code == 0 and "wrote recipes/mine.yaml" in err
    code, out, _ = surgery(capsys, "apply", "recipes/mine.yaml", "model.onnx", "--trust", "-o", "out.onnx")
    assert code == 0 and "run-options" in out
    assert [node.op_type for node in onnx.load("out.onnx").graph.node] == ["Neg"]
    code, out, err = surgery(capsys, "run", "run-options", "model.onnx", "--plugin", plugin, *save)
    assert (code, out) == (2, "") and "--force" in err
    assert surgery(capsys, "run", "drop-identity", "model.onnx", *save, "--force")[0] == 0
    assert [step.name for step in recipe.load("recipes/mine.yaml").steps] == ["drop-identity"]
    code, out, err = surgery(capsys, "run", "drop-identity", "model.onnx", "--save-recipe", "no/such.yaml")
    assert (code, out, err.count("\n")) == (2, "", 1)
