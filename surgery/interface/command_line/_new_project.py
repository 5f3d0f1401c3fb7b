"""Scaffolding of a project for a model: a recipe with the matching steps, a test and a CI workflow."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import ExpectationError, UsageError
from surgery.base.frozen_dict import FrozenDict
from surgery.base.json_record import Record
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.agenda import Agenda
from surgery.engine.recipe.writer import written
from surgery.interface.command_line._new_pass import require_free, write_files
from surgery.model import storage
from surgery.model.targets import STANDARD

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import Observer, Result
    from surgery.engine.recipe import Recipe

_SIZES = 2
"""Maximum number of sizes of each dynamic dim in the recipe."""
_CHANGED = "committed"


@dataclass(frozen=True)
class NewProject(Record, keys="model recipe test workflow steps"):
    """The files of a new project with their text; `result` is the run of the new recipe."""

    model: Path
    recipe: Path
    test: Path
    workflow: Path
    texts: dict[Path, str]
    steps: tuple[str, ...]
    result: Result

    def write(self, *, force: bool = False) -> None:
        """Write all files, or none; OutputError if one exists that must not be overwritten."""
        write_files(self.texts, force=force)

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the JSON report."""
        result = self.result
        return {**super().to_json(), "nodes_before": result.input.nodes, "nodes_after": result.output.nodes}


def propose(
    model: Path,
    folder: Path,
    *,
    source: str = "default",
    target: str | None = None,
    force: bool = False,
    observer: Observer | None = None,
) -> NewProject:
    """Run a recipe on a model, and propose a recipe of the steps that changed it, with expectations.

    The proposed recipe is run as well, and its expectations come from that run. Raise UsageError if the folder does not
    exist, OutputError if such files exist and `force` is not set, ExpectationError if the model cannot be verified.
    """
    if not folder.is_dir():
        raise UsageError("this is not a folder" if folder.exists() else "no such folder", where=str(folder))
    word = re.sub(r"\W", "_", model.stem)
    files = folder / f"{model.stem}.yaml", folder / "tests" / f"test_{word}.py", folder / _workflow_path(model)
    storage.load(model)  # report problems with the model first
    require_free(files, force=force)
    given = recipes.load(source)
    aimed = given if target is None else replace(given, target=target)
    first = _verified(model, aimed, observer, source)
    fired = [step.name for step in first.steps if step.status == _CHANGED]
    values = {
        "recipe": model.stem,
        "about": f"The steps of {source} that change {model.name}",
        "model": os.path.relpath(model, folder),
        "target": aimed.target if aimed.target != STANDARD.name else None,
        "on_failure": "abort",
        "steps": _steps(aimed, first) or [{"use": source}],
    }
    values, result = _settled(model, files[0], values, _dims(first), observer)
    text = written({**values, "expect": _expectations(result)}, _HEAD)
    path = os.path.relpath(files[0], folder)
    texts = {
        files[0]: text,
        files[1]: _TEST.format(word=word, recipe=json.dumps(path), model=model.name, path=json.dumps(values["model"])),
        files[2]: _workflow(model.stem, path, os.path.relpath(files[1], folder)),
    }
    return NewProject(model, *files, texts, tuple(fired), result)


def _workflow_path(model: Path) -> Path:
    return Path(".github", "workflows", f"{model.stem}.yml")


def _verified(model: Path, recipe: Recipe, observer: Observer | None, name: str) -> Result:
    """Run a recipe; ExpectationError if the result cannot be trusted."""
    result = runner.apply(model, recipe, options=runner.RunOptions(observer=observer))
    if not result.ok:
        what = f"a run of {name} on it fails"
        raise ExpectationError(what, where=str(model), todo=f"see 'surgery apply {name} {model}'")
    return result


def _steps(recipe: Recipe, result: Result) -> list[Any]:
    """Return the steps that changed the model, in order, in the format of a recipe."""
    planned = {(one.step.name, one.step.where): one.step for one in Agenda(recipe).steps}
    found: list[Any] = []
    for record in result.steps:
        if record.status != _CHANGED:
            continue
        step = planned.get((record.name, record.where))
        options = dict(step.options) if step is not None else {}
        entry = {record.name: options} if options else record.name
        found += [entry] if entry not in found[-1:] else []
    return found


def _dims(result: Result) -> dict[str, list[int]]:
    """Return sizes of each dynamic dim that the original ran with."""
    sizes: dict[str, dict[int, None]] = {}
    for binding in result.bindings:
        if not binding.get("refused"):
            for name, size in binding["dims"].items():
                sizes.setdefault(name, {})[size] = None
    return {name: sorted(list(found)[:_SIZES]) for name, found in sizes.items()}


def _settled(
    model: Path, file: Path, values: dict[str, Any], dims: Mapping[str, list[int]], observer: Observer | None
) -> tuple[dict[str, Any], Result]:
    """Run the proposal, with the sizes of dims if the model accepts them together; return it with the result."""
    wanted = [dims, {}] if dims else [{}]
    for sizes in wanted:
        tried = _with_dims(values, sizes)
        read = recipes.parse(written(tried), file)
        result = runner.apply(model, read, options=runner.RunOptions(observer=observer))
        if result.ok and not any(binding.get("refused") for binding in result.bindings):
            return tried, result
    if not result.ok:
        raise ExpectationError("the steps that match it fail without the others", where=str(model))
    return tried, result


def _with_dims(values: dict[str, Any], dims: Mapping[str, list[int]]) -> dict[str, Any]:
    """Return the values with an entry `inputs` before the steps, if there are dims."""
    inputs = {"inputs": {"dims": FrozenDict(dims)}} if dims else {}
    steps = {"steps": values["steps"]}
    return {**{key: value for key, value in values.items() if key != "steps"}, **inputs, **steps}


def _expectations(result: Result) -> dict[str, Any]:
    """Return expectations from the result: the removed operators, the number of nodes, the signature."""
    gone = {op: 0 for op in sorted(result.input.ops) if not result.output.ops.get(op)}
    return {"ops": gone, "nodes": f"<= {result.output.nodes}", "signature": "unchanged"}


_HEAD = """Written by 'surgery init'. Order matters: a pass may need what the one before it leaves.
'surgery apply default MODEL' tries all passes again, for example after another export."""

_TEST = '''"""What the recipe makes of {model} is verified, and is what the recipe expects."""

from pathlib import Path

import surgery

FOLDER = Path(__file__).parent.parent
MODEL = FOLDER / {path}
RECIPE = FOLDER / {recipe}


def test_{word}(tmp_path: Path) -> None:
    result = surgery.apply(MODEL, RECIPE, output=tmp_path / "optimized.onnx")
    assert result.ok
    assert [step.name for step in result.steps if step.status not in ("committed", "unchanged")] == []
'''


def _workflow(name: str, recipe: str, test: str) -> str:
    """Return a workflow of GitHub; a JSON string is a YAML string, and commands take any name in quotes."""
    return _WORKFLOW.format(name=json.dumps(name), recipe=shlex.quote(recipe), test=shlex.quote(test))


_WORKFLOW = """# Checks, applies and tests the recipe on each pull request.
name: {name}
on: pull_request
jobs:
  model:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v5
        with: {{lfs: true}}
      - uses: actions/setup-python@v6
        with: {{python-version: "3.13"}}
      # surgery is not on a package index yet: set the variable SURGERY of the repository to where pip finds it, such as
      # git+https://github.com/OWNER/surgery@TAG
      - run: pip install "onnx-surgery[cpu] @ ${{{{ vars.SURGERY }}}}" pytest
      - run: surgery recipe check {recipe} --format github
      - run: surgery apply {recipe} --strict --format github
      - run: pytest {test}
"""
