"""The parts of the benchmarks that judge: a benchmark that cannot see a fault shows nothing."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

from suite import chain, facts, parity, process
from suite.goals import DEFAULT, Comparison
from suite.records import ORIGINAL, Folder, Record

BEFORE = {"inputs": [["x", "float", ["batch", 3]]], "outputs": [["y", "float", ["batch", "made_up"]]]}


def test_a_reason_names_no_temporary_folder() -> None:
    folder = Path(tempfile.gettempdir()) / "tmpa1b2c3"
    assert process.reason(1, f"Traceback\nValueError: cannot load {folder}/m.onnx") == "ValueError: cannot load m.onnx"


@pytest.mark.parametrize(
    ("side", "value", "state"),
    [
        ("outputs", ["y", "float", ["batch", "made_up"]], "kept"),
        ("outputs", ["y", "float", ["batch", 8]], "refined"),
        ("outputs", ["y", "float", [512, 8]], "changed"),
        ("outputs", ["z", "float", ["batch", "made_up"]], "changed"),
        ("outputs", ["y", "float16", ["batch", "made_up"]], "changed"),
        ("outputs", ["y", "float", None], "changed"),
        ("inputs", ["x", "float", [1, 3]], "changed"),
    ],
)
def test_a_signature_is_kept_refined_or_changed(side, value, state):
    assert facts.compare_signatures(BEFORE, {**BEFORE, side: [value]})[0] == state


def test_a_lost_output_changes_the_signature():
    assert facts.compare_signatures(BEFORE, {**BEFORE, "outputs": []}) == ("changed", "1 outputs became 0")


def test_parity_sees_shapes_types_values_and_nan():
    x = np.array([1.0, 2.0, np.nan], np.float32)
    assert parity.difference(x, x) == (0.0, "")
    assert parity.difference(x, x[None])[1] == "has shape [1, 3] instead of [3]"
    assert parity.difference(x, x.astype(np.float64))[1] == "is float64 instead of float32"
    assert parity.difference(x, np.nan_to_num(x))[1] == "has NaN or infinity in other places"
    assert parity.difference(x, x + np.float32(0.5)) == (0.25, "")


def test_a_process_that_fails_hangs_or_dies_is_reported_in_one_line(tmp_path):
    def run(code: str, timeout: float = 60) -> process.Ran:
        return process.run([sys.executable, "-c", code], timeout=timeout, folder=tmp_path)

    assert run("print(1)").failure == ""
    assert run("raise ValueError('no such thing')").failure == "ValueError: no such thing"
    assert run("import os; os.kill(os.getpid(), 11)").failure == "died of SIGSEGV"
    assert run("import time; time.sleep(60)", timeout=0.2).failure == "not done in 0 s"


def test_memory_of_children_counts(tmp_path):
    child = "x = bytearray(b'1' * (64 << 20)); import time; time.sleep(2)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    assert process.run([sys.executable, "-c", code], timeout=60, folder=tmp_path).private > 64 << 20


def test_the_chain_is_a_model_of_the_length_asked_for(tmp_path):
    blocks = chain.build(500, tmp_path / "chain.onnx")
    model = onnx.load(tmp_path / "chain.onnx")
    onnx.checker.check_model(model, full_check=True)
    counts = facts.operators(model)
    assert 480 <= counts.total() <= 500
    assert all(counts["", name] >= count * blocks for name, count in chain.LEFT.items())


def _row(tool: str, nodes: int, **changes: object) -> Record:
    fields = {"nodes": nodes, "bytes": 100, "signature": "kept", "error": 0.0, "seconds": 1.0, **changes}
    return Record("m", tool, {}, **fields)


def test_only_a_valid_peer_can_be_the_best():
    peers = [
        _row("fair", 50),
        _row("contrib", 10, outside=2),
        _row("wrong", 5, wrong="does not run with sequence=9", error=None),
        _row("pinned", 4, signature="changed"),
        Record("m", "broken", {}, failure="died of SIGSEGV"),
    ]
    rows = [_row(ORIGINAL, 100), _row(DEFAULT, 60, bytes=102), *peers]
    comparison = Comparison(rows, [row.tool for row in peers])
    assert comparison.best("m").tool == "fair"
    goals = {goal.what: goal for goal in comparison.goals()}
    assert goals["default: no more nodes than the best valid peer"].detail == "m: 60 > 50 (fair)"
    assert goals["default: no file over 1 % larger"].met is False
    assert goals["default: right under every binding"].met
    assert goals["modern: nodes, mean, at most 0.65"].met is None


def test_a_record_is_loaded_for_the_same_version_only(tmp_path):
    folder = Folder(tmp_path)
    record = Record("m", "a tool", {"tool": "1"}, nodes=3)
    folder.save(record)
    assert folder.load("m", "a tool", {"tool": "1"}) == record
    assert folder.load("m", "a tool", {"tool": "2"}) is None
