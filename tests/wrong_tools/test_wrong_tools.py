"""Released tools that make a wrong model of a right one, as steps of a recipe: the step is taken back.

`wrong/<tool>/<what it does>.onnxtxt` holds a legal model and, in comments above it, what the tool gets wrong:

    # says: the sentence
    # with: {level: BASIC}      options of the step
    # caught: different         how it shows: see `Caught`
    # given: {x: [1, 2]}        an input on which a second opinion sees it (the rest is drawn)
    # engine: onnxruntime       who gives the second opinion; the reference evaluator when not said
    # needs: NumPy 2            what is only wrong with this; see `LACKED`

`right/<tool>/` holds models on which the same tools do right; those steps are committed.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import second_opinion as plain
from packaging.version import Version
from ruamel.yaml import YAML
from support.breadth import sampled

from surgery.base.errors import WorkerError
from surgery.base.workers.fork import call_in_fork
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.runner import StepRecord
from surgery.engine.registry.catalog import catalog
from surgery.model.graph import text

FOLDER = Path(__file__).parent
EXAMINED = {
    "converter": ("onnx", "1.23.2"),
    "graphsurgeon-cleanup": ("onnx-graphsurgeon", "0.6.1"),
    "graphsurgeon-fold": ("onnx-graphsurgeon", "0.6.1"),
    "onnxoptimizer": ("onnxoptimizer", "0.4.2"),
    "onnxruntime": ("onnxruntime", "1.31.1"),
    "onnxscript-optimize": ("onnxscript", "0.7.2"),
    "onnxscript-rewrite": ("onnxscript", "0.7.2"),
    "onnxsim": ("onnxsim", "0.8.1"),
    "onnxslim": ("onnxslim", "0.1.98"),
}
"""The distribution after each tool, and the version in which the wrong results were seen."""


@dataclass(frozen=True)
class Case:
    """A model, the tool to run on it, and what is known of that."""

    path: Path
    tool: str
    source: str
    says: str = ""
    caught: str = ""
    engine: str = "reference"
    needs: str = ""
    opset: int = text.DEFAULT_OPSET
    options: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> onnx.ModelProto:
        return text.parse(self.source, opset=self.opset)


def read(path: Path) -> Case:
    source = path.read_text(encoding="utf-8")
    keys: dict[str, Any] = {}
    for line in source.splitlines():
        if not line.startswith("#"):
            break
        key, _, value = line[1:].partition(":")
        key = key.strip()
        keys[key] = YAML(typ="safe", pure=True).load(value) if key in ("with", "given", "opset") else value.strip()
    options = keys.pop("with", {})
    return Case(path, path.parent.name, source, options=options, **keys)


WRONG = [read(path) for path in sorted((FOLDER / "wrong").glob("*/*.onnxtxt"))]
RIGHT = [read(path) for path in sorted((FOLDER / "right").glob("*/*.onnxtxt"))]


def name(case: Case) -> str:
    return f"{case.tool}/{case.path.stem}"


@pytest.fixture(autouse=True, scope="module")
def tools() -> None:
    catalog.load_plugin(str(FOLDER / "tools.py"))
    # Each step runs in a fork of this process, which then need not import it.
    importlib.import_module("onnxsim")


def apply(case: Case, folder: Path) -> tuple[runner.Result, StepRecord]:
    """Run the tool as a step; what it was given and what it made is put into the folder."""
    options = json.dumps({**case.options, "copy": str(folder / "model")})
    source = f"recipe: test\nsteps:\n  - pass: tool-{case.tool}\n    with: {options}\n    on_failure: rollback\n"
    result = runner.apply(case.model, recipes.parse(source, "test.yaml"))
    (step,) = result.steps
    return result, step


def made_by(case: Case, folder: Path) -> onnx.ModelProto | None:
    """Read what the tool made of the model of the case, which it must have been given; None when it changed nothing."""
    given, made = (onnx.load(folder / f"model.{what}", format="protobuf") for what in ("given", "made"))
    assert text.structural_diff(ir.from_proto(case.model), ir.from_proto(given)) == ""
    return made if text.print_model(given) != text.print_model(made) else None


def other(case: Case) -> str:
    """Say why the tool may do right: it is not of the version that did wrong, or something else lacks."""
    distribution, examined = EXAMINED[case.tool]
    version = importlib.metadata.version(distribution)
    if Version(version) != Version(examined):
        return f"{'fixed' if Version(version) > Version(examined) else 'not yet'} in {distribution} {version}"
    return f"not without {case.needs}" if case.needs and LACKED[case.needs]() else ""


def _wraps() -> bool:
    """Return whether NumPy takes -1 as a byte, as its releases before 2 do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            np.array(-1, np.uint8)
        except OverflowError:
            return False
    return True


LACKED = {"NumPy 2": _wraps}
"""What tells that something is not installed that a wrong result needs."""


def shown(case: Case, folder: Path) -> str:
    """Say how a second opinion sees that the tool is wrong; empty when it does not."""
    if case.caught in ("raised", "SIGSEGV"):
        return broken(case)
    before, made = case.model, made_by(case, folder)
    if made is None:
        return ""
    match case.caught:
        case "checker":
            assert plain.checked(before) == ""
            return plain.checked(made)
        case "signature":
            return "" if plain.ports(before) == plain.ports(made) else "other inputs or outputs"
    feed = plain.feed(before, case.given)
    match case.caught:
        case "different" | "unverified":
            return plain.difference(before, made, [feed], case.engine)
        case "merged draws":
            return "always zero" if plain.all_zero(made, feed) and not plain.all_zero(before, feed) else ""
        case "folded draws":
            return "always the same" if plain.repeats(made, feed) and not plain.repeats(before, feed) else ""
    raise AssertionError(f"nothing is known of '{case.caught}'")


def broken(case: Case) -> str:
    """Call the tool itself, outside of any recipe, and say how it ends."""
    tool = catalog.find(f"tool-{case.tool}").function

    def work() -> str:
        try:
            tool(case.model, **case.options)
        except Exception as error:
            return f"raised {type(error).__name__}"
        return ""

    try:
        return str(call_in_fork(work, stage="tool", timeout=60, memory=None)[0])
    except WorkerError as error:
        return str(error)


def caught(step: StepRecord) -> str:
    """Say how the engine saw that a step is wrong."""
    verdict = step.verdict
    if verdict is not None:
        return verdict.status
    for how, starts in {"checker": ("checker: ", "shape inference: "), "signature": ("signature: ",)}.items():
        if step.message.startswith(starts):
            return how
    return step.message


@pytest.mark.parametrize("case", sampled(WRONG, 6), ids=name)
def test_a_wrong_result_is_rolled_back(case: Case, tmp_path: Path) -> None:
    assert case.says, "no sentence says what the tool gets wrong"
    result, step = apply(case, tmp_path)
    evidence = shown(case, tmp_path)
    if not evidence and other(case):
        pytest.skip(f"{other(case)}: {case.says}")
    assert evidence, "a second opinion sees nothing wrong with what the tool made"
    assert step.status == "rolled_back", f"not seen: {evidence}"
    how = {"merged draws": "different", "folded draws": "different"}.get(case.caught, case.caught)
    assert how in caught(step)
    assert result.proto.SerializeToString(deterministic=True) == case.model.SerializeToString(deterministic=True)


@pytest.mark.parametrize("case", sampled(RIGHT, 3), ids=name)
def test_a_correct_result_is_kept(case: Case, tmp_path: Path) -> None:
    _, step = apply(case, tmp_path)
    made = made_by(case, tmp_path)
    assert made is not None, "the tool changed nothing"
    assert plain.difference(case.model, made, [plain.feed(case.model, case.given)], case.engine) == ""
    assert plain.checked(made) == ""
    assert step.status == "committed", step.message


def test_every_tool_has_three_correct_results() -> None:
    """No tool is refused whatever it does."""
    for tool in {distribution for distribution, _ in EXAMINED.values()}:
        uses = [case for case in RIGHT if EXAMINED[case.tool][0] == tool]
        assert len(uses) >= 3, tool
