"""A standard pass that raises an exception at one site loses that site, and nothing else."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest
from support.breadth import sampled
from surgery.passes.constants import fold_constants
from surgery.passes.structure import unroll_loop

import surgery
from surgery.base.errors import MachineError
from surgery.engine.caching.cache_folder import CacheFolder
from surgery.engine.caching.step_cache import Steps
from surgery.engine.pipeline import transaction
from surgery.engine.pipeline.run_options import RunOptions
from surgery.interface.commands import main
from surgery.model.graph import text
from surgery.model.graph.values import Value
from surgery.model.patterns import rewrite_any
from surgery.model.shapes.table import ShapeTable

MODEL = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x) => (float[2] y, float[2] z) <float[2] a = {1, 2}, float[2] b = {3, 4}> {
        bad = Neg(a) y = Add(x, bad)
        good = Exp(b) z = Mul(x, good)
    }
"""
MESSAGE = "internal error: ZeroDivisionError: it is broken"


def raising(name: str) -> None:
    if name == "bad":
        raise ZeroDivisionError("it is broken")


def in_a_site(monkeypatch: pytest.MonkeyPatch) -> None:
    replace = fold_constants._Folding._replace

    def broken(self: Any, new: Any, value: Value, tensor: Any) -> None:
        replace(self, new, value, tensor)
        raising(value.name)

    monkeypatch.setattr(fold_constants._Folding, "_replace", broken)


def outside_of_a_site(monkeypatch: pytest.MonkeyPatch) -> None:
    content = fold_constants._content

    def broken(value: Value) -> Any:
        raising(value.name)
        return content(value)

    monkeypatch.setattr(fold_constants, "_content", broken)


def in_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    merge = ShapeTable.merge

    def broken(self: ShapeTable, value: ir.Value, other: ir.Value) -> None:
        raising((other.name or "").partition("_")[0])
        merge(self, value, other)

    monkeypatch.setattr(ShapeTable, "merge", broken)


PLACES = [in_a_site, outside_of_a_site, in_a_commit]


def recipe(steps: str = "[fold-constants]", failing: str = "abort") -> Any:
    return surgery.engine.recipe.parse(f"recipe: test\non_failure: {failing}\nsteps: {steps}", "test.yaml")


def ops(proto: onnx.ModelProto) -> list[str]:
    return sorted(node.op_type for node in proto.graph.node)


@pytest.mark.parametrize("place", sampled(PLACES, 3))
@pytest.mark.parametrize("failing", ["abort", "bisect"])
def test_the_other_sites_are_kept_verified_and_written(
    place: Any, failing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place(monkeypatch)
    result = surgery.apply(text.parse(MODEL), recipe(failing=failing), output=tmp_path / "out.onnx")
    (step,) = result.steps
    assert (step.status, step.sites, step.verdict and step.verdict.status.value) == ("committed", 1, "equal")
    assert ops(onnx.load(tmp_path / "out.onnx")) == ["Add", "Mul", "Neg"]
    ((name, defect),) = result.defects
    assert name == "fold-constants" and defect.anchor.endswith("bad") and defect.error.startswith(MESSAGE)
    assert (result.ok, result.exit_code, result.refused) == (True, 3, ())


@pytest.mark.parametrize("place", sampled(PLACES, 3))
def test_every_report_shows_the_exception(
    place: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place(monkeypatch)
    onnx.save(text.parse(MODEL), tmp_path / "in.onnx")
    command = ["run", "fold-constants", str(tmp_path / "in.onnx"), "-o", str(tmp_path / "out.onnx"), "--force"]
    assert main(command) == 3
    shown = capsys.readouterr()
    assert MESSAGE in shown.out and "a defect of surgery, please report it" in " ".join(shown.out.split())
    assert "wrote" in shown.err
    assert main([*command, "--format", "json"]) == 3
    (step,) = json.loads(capsys.readouterr().out)["steps"]
    assert [one["error"].startswith(MESSAGE) for one in step["defects"]] == [True]
    for form, mark in [("junit", "<error"), ("github", "::error"), ("sarif", '"error"'), ("markdown", MESSAGE)]:
        assert main([*command, "--format", form]) == 3
        out = capsys.readouterr().out
        assert MESSAGE in out and mark in out
    assert main([*command, "--report", str(tmp_path / "page.html"), "-q"]) == 3
    assert "a defect of surgery" in capsys.readouterr().out
    assert MESSAGE in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("place", ["_check_boundary", "_pairs"])
def test_a_pattern_pass_loses_the_match_at_which_it_raises(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first function runs outside of a site, the second within."""
    source = """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x, float[2] z) => (float[2] y, float[2] w) {
            a = Reciprocal(x) bad = Mul(z, a) y = Abs(bad) b = Reciprocal(z) c = Mul(x, b) w = Abs(c)
        }
    """
    function = getattr(sys.modules[rewrite_any.__module__], place)

    def broken(first: Any, second: Any) -> Any:
        match = second if place == "_check_boundary" else None
        for value in match.outputs if match is not None else first:
            raising(value.name)
        return function(first, second)

    monkeypatch.setattr(sys.modules[rewrite_any.__module__], place, broken)
    result = surgery.apply(text.parse(source), recipe("[fuse-reciprocal-mul]"))
    assert (result.steps[0].status, result.exit_code, len(result.defects)) == ("committed", 3, 1)
    assert ops(result.proto) == ["Abs", "Abs", "Div", "Mul", "Reciprocal"]


def test_a_pass_that_always_raises_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Iterable[Any]:
        raise ZeroDivisionError("it is broken")

    monkeypatch.setattr(unroll_loop, "inside_out", broken)
    steps = "[{pass: unroll-loop, on_failure: rollback}, fold-constants]"
    result = surgery.apply(text.parse(MODEL), recipe(steps))
    assert [step.status for step in result.steps] == ["rolled_back", "committed"]
    assert MESSAGE in result.steps[0].message
    assert (result.ok, result.exit_code) == (True, 3)
    aborted = surgery.apply(text.parse(MODEL), recipe("[unroll-loop, fold-constants]"))
    assert (aborted.ok, aborted.exit_code, len(aborted.steps)) == (False, 3, 1)


def test_a_pass_is_not_run_again_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "_MOST_SPARED", 1)
    monkeypatch.setattr(fold_constants, "_content", lambda value: 1 / 0)
    result = surgery.apply(text.parse(MODEL), recipe(failing="rollback"))
    assert (result.steps[0].status, result.exit_code) == ("rolled_back", 3)
    assert "ZeroDivisionError" in result.steps[0].message


def test_a_full_memory_is_no_defect_of_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Any, *_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(fold_constants._Folding, "_replace", full)
    with pytest.raises(MachineError, match="not enough memory"):
        surgery.apply(text.parse(MODEL), recipe())


def test_a_run_with_a_defect_is_not_cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run() -> Any:
        return surgery.apply(
            text.parse(MODEL), recipe(), options=RunOptions(cache=Steps(CacheFolder(tmp_path, warn=warnings.warn)))
        )

    with monkeypatch.context() as broken:
        in_a_site(broken)
        first = run()
    second = run()
    assert (len(first.defects), len(second.defects)) == (1, 0)
    assert ops(second.proto) == ["Add", "Mul"]
