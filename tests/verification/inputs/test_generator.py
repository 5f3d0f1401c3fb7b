"""Inputs made by a user's function: fed, contained, and every mistake in it one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.given_sets import model

from surgery.base.errors import RecipeError, UsageError
from surgery.engine.recipe import load
from surgery.verification.inputs.spec import GeneratorSpec, InputsSpec, Place, TensorSpec, VerifySpec
from surgery.verification.verdict.verifier import Verifier

RIGHT = """
import numpy as np


def make(dims, seed):
    x = np.random.default_rng(seed).standard_normal((dims["batch"], 4)).astype("float32")
    return {"x": x, "i": np.full(dims["batch"], seed)}
"""


def _verifier(folder: Path, source: str, function: str = "make", timeout: float = 60, **inputs: object) -> Verifier:
    (folder / "gen.py").write_text(source)
    spec = InputsSpec(generator=GeneratorSpec(folder / "gen.py", function, Place("r.yaml", 3, 9)), **inputs)  # type: ignore[arg-type]
    return Verifier(model().SerializeToString(), spec, VerifySpec(seed=7, timeout=timeout))


def test_generated_arrays_are_fed_with_a_seed_for_each_set(tmp_path: Path) -> None:
    verifier = _verifier(tmp_path, RIGHT)
    verifier.original.prepare()
    seeds = [item["seed"] for item in verifier.original.bindings if "refused" not in item]
    assert seeds == list(range(7, 7 + len(seeds))) and len(seeds) > 2
    assert {item["character"] for item in verifier.original.bindings} == {"generator"}
    assert len({item["dims"]["batch"] for item in verifier.original.bindings}) > 1
    for run in verifier.original.runs:
        assert set(run.feed["i"].tolist()) == {run.binding.seed}
        assert run.feed["x"].shape == (run.binding.dims["batch"], 4)


def test_inputs_missing_from_the_generator_are_drawn(tmp_path: Path) -> None:
    verifier = _verifier(
        tmp_path, "import numpy\ndef make(dims, seed):\n    return {'i': numpy.full(dims['batch'], 5)}\n"
    )
    verifier.original.prepare()
    assert all(set(run.feed["i"].tolist()) == {5} for run in verifier.original.runs)
    assert {"normal", "edges"} <= {item["character"] for item in verifier.original.bindings}
    assert len({run.feed["x"].tobytes() for run in verifier.original.runs}) == len(verifier.original.runs)


def test_only_given_requires_all_inputs_from_the_generator(tmp_path: Path) -> None:
    source = "import numpy\ndef make(dims, seed):\n    return {'i': numpy.full(dims['batch'], 5)}\n"
    with pytest.raises(RecipeError, match="it returns no 'x'; only_given asks for all inputs"):
        _verifier(tmp_path, source, only_given=True).original.prepare()
    verifier = _verifier(tmp_path, source, only_given=True, tensors={"x": TensorSpec(range=(2, 3))})
    verifier.original.prepare()
    assert all(run.feed["x"].min() >= 2 for run in verifier.original.runs)


def test_a_generator_can_read_files_of_its_folder_and_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.full((1, 4), 0.25, np.float32))
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "neighbour.py").write_text("FILE = 'x.npy'\n")
    monkeypatch.chdir(tmp_path)
    source = RIGHT.replace("import numpy as np", "import numpy as np\nimport neighbour").replace(
        'x = np.random.default_rng(seed).standard_normal((dims["batch"], 4)).astype("float32")',
        "print('hello')\n    x = np.repeat(np.load(neighbour.FILE), dims['batch'], axis=0)",
    )
    verifier = _verifier(tmp_path / "code", source)
    verifier.original.prepare()
    assert all((run.feed["x"] == 0.25).all() for run in verifier.original.runs)


BODY = "import numpy as np\n\ndef make(dims, seed):\n    {}\n"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return dims['btch']", "line 4: KeyError: 'btch'; called with dims {'batch': 2}"),
        ("raise SystemExit(3)", "line 4: SystemExit: 3; called with dims"),
        ("return [1]", "it returns a list, not a dict of arrays by input name"),
        ("return {1: 2}", "it returns a dict, not a dict of arrays by input name"),
        ("return {'x': object()}", "its value for 'x' is not an array of numbers or text"),
        ("return {'x': np.zeros((dims['batch'], 4))}", "'x' is float64, the model takes float32; convert it"),
        (
            "return {'x': np.zeros((7, 4), 'f4')}",
            "it returns 'x' of shape [7, 4] for dims {'batch': 2}; take the sizes",
        ),
        ("return {'x': np.zeros((dims['batch'], 5), 'f4')}", "'x' has shape [2, 5], the model takes [batch, 4]"),
        ("return {'i': [1, 2]}", "'i' is a list, the model takes one tensor"),
        ("return {'xx': np.zeros(1)}", "the model has no input 'xx'; did you mean 'x'?"),
        (
            "return {'x': np.random.default_rng().random((dims['batch'], 4), 'f4')}",
            "it returns different arrays when called again with the same seed; draw from "
            "np.random.default_rng(seed) only",
        ),
        ("import os; os.abort()", "crashed with SIGABRT"),
    ],
)
def test_mistakes_in_a_generator_are_reported_in_one_line(tmp_path: Path, body: str, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        _verifier(tmp_path, BODY.format(body)).original.prepare()
    assert str(caught.value).startswith(f"r.yaml:3:9: gen.py:make: {words}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def make(dims, seed)\n    pass\n", "line 1: SyntaxError: "),
        ("import no_such_module\n", "line 1: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def other(dims, seed):\n    pass\n", "no function 'make' in it; it has other"),
        ("make = 3\n", "no function 'make' in it; it has none"),
        ("def make():\n    pass\n", "TypeError: make() takes 0 positional arguments but 2 were given"),
        pytest.param("while True:\n    pass\n", "the import of gen.py took more than 4 s", marks=pytest.mark.slow),
    ],
)
def test_invalid_generator_files_are_reported_in_one_line(tmp_path: Path, source: str, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        _verifier(tmp_path, source, timeout=4 if "while" in source else 60).original.prepare()
    assert str(caught.value).startswith(f"r.yaml:3:9: gen.py:make: {words}")
    assert "\n" not in str(caught.value)


def test_a_generator_in_a_recipe_requires_trust(tmp_path: Path) -> None:
    (tmp_path / "gen.py").write_text("raise SystemExit\n")
    recipe = tmp_path / "r.yaml"
    recipe.write_text("steps: [drop-identity]\ninputs:\n  generator: gen.py:make\n")
    refusal = r"wants to run gen\.py \(sha256 [0-9a-f]{64}, file .*\); if you trust it, pass --trust"
    with pytest.raises(UsageError, match=refusal):
        load(recipe)
    assert load(recipe, trust=True).inputs.generator == GeneratorSpec(tmp_path / "gen.py", "make")


def test_the_generator_of_a_nested_recipe_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "gen.py").write_text("raise SystemExit\n")
    (tmp_path / "inner.yaml").write_text("steps: [drop-identity]\ninputs:\n  generator: gen.py:make\n")
    (tmp_path / "outer.yaml").write_text("steps:\n  - use: ./inner.yaml\n")
    assert load(tmp_path / "outer.yaml").inputs.generator is None
