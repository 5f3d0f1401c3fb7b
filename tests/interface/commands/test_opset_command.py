"""`surgery opset`: the lowest opset as a model stands, how it gets to others, and what stands in the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import onnx.helper
import pytest

import surgery
from surgery.base.operators.schemas import newest_opset
from surgery.engine.registry.catalog import catalog
from surgery.features.inspection import releases
from surgery.features.inspection.opsets import study
from surgery.interface import commands as cli
from surgery.model import storage
from surgery.model.graph import text

NORM = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] x) => (float[N,4] y) <float[4] s = {1, 1, 1, 1}> {
    a = Softmax<axis = 1>(x)
    one = LayerNormalization(a, s)
    two = LayerNormalization(one, s)
    y = Relu(two)
}"""
BRANCH = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] x, bool c) => (float[N,4] y) <float[4] s = {1, 1, 1, 1}> {
    y = If (c) <then_branch = t () => (a) { a = LayerNormalization(x, s) }, else_branch = e () => (b) { b = Relu(x) }>
}"""
FUNCTION = """<ir_version: 8, opset_import: ["" : 15, "local" : 1, "com.acme" : 2, "com.microsoft" : 1]>
g (float[2,4] x) => (float[2,4] y) {
    a = local.f(x)
    b = com.microsoft.Gelu(a)
    y = com.acme.Strange(b)
}
<domain: "local", opset_import: ["" : 17]>
f (x) => (y) { y = Identity(x) }"""


def lowest(source: str) -> tuple[int | None, str]:
    """Return the lowest opset as is, and the reason against the one below."""
    found = study(storage.from_proto(text.parse(source)))
    return found.lowest, found.obstacles[0].reason if found.obstacles else ""


def save(source: str, folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(text.parse(source), path)
    return path


SLICE = """b = Constant<value = int64[1] {{0}}>() e = Constant<value = int64[1] {{2}}>()
    a = Constant<value = int64[1] {{{}}}>() y = Slice(x, b, e, a)"""


def one(types: str, node: str, opset: int) -> str:
    given, made = types.split("=>")
    return f'<ir_version: 7, opset_import: ["" : {opset}]>\ng ({given}) => ({made}) {{ {node} }}'


@pytest.mark.parametrize(
    ("source", "opset", "reason"),
    [
        (one("float[2] x => float[2] y", "y = Relu(x)", 21), 1, ""),
        (one("int32[2] x => int32[2] y", "y = Relu(x)", 21), 14, "tensor(int32) is not allowed before"),
        (one("float[2] x => float[2] y", "y = Gelu(x)", 21), 20, "the operator did not exist before"),
        (one("float[2,3] x => float[2,3] y", "y = Softmax(x)", 13), 13, "attribute axis has another default before"),
        (
            one("float[2,3] x => float[2,3] y", "y = Softmax<axis = 0>(x)", 13),
            13,
            "before, all axes from axis on were flattened",
        ),
        (one("float[2,3] x => float[2,3] y", "y = Softmax<axis = -1>(x)", 13), 11, "an axis could not be negative"),
        (one("float[2] x, int64[1] s => float[?] y", "y = Reshape<allowzero = 0>(x, s)", 14), 14, "allowzero"),
        (one("float[2] x, int64[1] s => float[?] y", "y = Reshape(x, s)", 14), 5, ""),
        (one("float[2,1] x, int64[1] a => float[2] y", "y = Squeeze(x, a)", 13), 13, "1 input at most before"),
        (one("float[2,1] x => float[2] y", "y = Squeeze(x)", 13), 1, ""),
        (one("float[1,2,4] x => float[1,2,2] y", 'y = MaxPool<kernel_shape = [2], strides = [2]>(x)', 12), 1, ""),
        (one("float[2] x, double[2] e => float[2] y", "y = Pow(x, e)", 12), 12, "had to be the same type before"),
        (one("float[2] x => float[2] y", "y = Dropout(x)", 13), 7, ""),
        (one("float[2] x => bool[2] m", "y, m = Dropout(x)", 13), 12, "the mask had another meaning before"),
        (one("float[1,1,2,2] x, float[1,4] r, int64[1] b => float[?] y", "y = RoiAlign(x, r, b)", 16), 16, "half"),
        (one("float[2,3] x, float[3] b => float[2,3] y", "y = Max(x, b)", 13), 8, "not broadcast before"),
        (one("float[n] x, float[m] b => float[?] y", "y = Sum(x, b)", 13), 8, "not broadcast before"),
        (one("float[3] x, float[3] b => float[3] y", "y = Min(x, b)", 13), 1, ""),
        (one("float[4] x, int64[2] p => float[?] y", 'y = Pad<mode = "wrap">(x, p)', 19), 19, "wrap did not exist"),
        (
            one(
                "float[4] x, int64[2] i, float[2] u => float[4] y",
                'y = ScatterElements<reduction = "max">(x, i, u)',
                18,
            ),
            18,
            "reduction by max or min did not exist before",
        ),
        (
            one(
                "float[4] x, int64[2] i, float[2] u => float[4] y",
                'y = ScatterElements<reduction = "mul">(x, i, u)',
                18,
            ),
            16,
            "attribute reduction did not exist before",
        ),
        (one("float[4] x => float[?] y", SLICE.format(-1), 13), 11, "an axis could not be negative before"),
        (one("float[4] x => float[?] y", SLICE.format(0), 13), 10, "attribute ends is required before"),
        (one("float[2] x, float[2] b => float[2] y", "y = Mod(x, b)", 28), 28, "fmod had to be 1 for floats before"),
        (one("float[2] x, float[2] b => float[2] y", "y = Mod<fmod = 1>(x, b)", 28), 10, "the operator did not exist"),
        (one("int32[2] x, int32[2] b => int32[2] y", "y = Mod(x, b)", 28), 10, "the operator did not exist"),
        (
            one(
                "float[1,1,4] x, float[3] s => float[?] y",
                'y = Resize<coordinate_transformation_mode = "half_pixel_symmetric">(x, , s)',
                19,
            ),
            19,
            "half_pixel_symmetric coordinates did not exist before",
        ),
    ],
)  # fmt: skip
def test_the_floor_of_a_node(source: str, opset: int, reason: str) -> None:
    found, why = lowest(source)
    assert found == opset
    assert reason in why


def test_a_floor_looks_into_branches() -> None:
    assert lowest(BRANCH) == (17, "the operator did not exist before")


def test_an_unknown_type_is_an_obstacle_for_a_function() -> None:
    found = study(storage.from_proto(text.parse(FUNCTION)))
    assert found.lowest == 16
    assert "the type of 'x' is not known" in found.obstacles[0].reason


def test_obstacles_are_grouped_and_candidates_have_their_releases() -> None:
    found = study(storage.from_proto(text.parse(NORM)), catalog.find("downgrade-opset"), catalog.find("upgrade-opset"))
    assert [(item.op, item.opset, len(item.nodes)) for item in found.obstacles] == [
        ("LayerNormalization", 17, 2),
        ("Softmax", 13, 1),
    ]
    ways = {item.opset: item for item in found.candidates}
    assert ways[18].how == "converted" and ways[18].by == "upgrade-opset"
    assert ways[17].how == "current" and ways[17].release.runtime == "1.12"
    assert ways[13].how == "converted" and ways[13].operators["LayerNormalization"] == (2, 0)
    assert (ways[13].release.onnx, ways[13].release.ir_version, ways[13].release.runtime) == ("1.8.0", 7, "1.6")
    assert found.lowest_converted is not None and found.lowest_converted <= 13


def test_the_study_leaves_the_model_unchanged() -> None:
    stored = storage.from_proto(text.parse(NORM))
    before = stored.proto.SerializeToString(deterministic=True)
    study(stored, catalog.find("downgrade-opset"), catalog.find("upgrade-opset"))
    assert stored.proto.SerializeToString(deterministic=True) == before


def test_without_conversion_passes_only_current_candidates_are_found() -> None:
    found = study(storage.from_proto(text.parse(NORM)))
    assert {item.how for item in found.candidates} == {"current", "blocked"}
    assert found.lowest_converted == 17


def test_domains_and_functions_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["opset", str(save(FUNCTION, tmp_path)), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    kinds = {domain["name"]: domain["kind"] for domain in found["domains"]}
    assert kinds == {"local": "functions of the model", "com.acme": "unknown", "com.microsoft": "ONNX Runtime"}
    assert found["functions"] == {"local::f": 17}
    assert found["opset"] == 15


def test_the_ml_domain_has_a_separate_floor() -> None:
    source = """<ir_version: 8, opset_import: ["ai.onnx.ml" : 3]>
g (float[2,2] x) => (float[2,2] y) { y = ai.onnx.ml.Scaler<offset = [0.0], scale = [1.0]>(x) }"""
    found = study(storage.from_proto(text.parse(source)))
    assert (found.opset, found.lowest, found.candidates) == (0, None, ())
    assert [(domain.kind, domain.lowest) for domain in found.domains] == [("ONNX", 1)]


def run(path: Path, *arguments: str) -> int:
    return cli.main(["opset", str(path), *arguments])


def test_a_table_of_opsets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(save(NORM, tmp_path)) == 0
    told = capsys.readouterr().out
    assert "opset 17, IR version 8 (ONNX Runtime 1.9 or newer)" in told
    assert "lowest opset without conversion: 17; converted: " in told
    assert "2 x LayerNormalization (17): the operator did not exist before" in told


@pytest.mark.parametrize("to", [17, 18, 13])
def test_an_opset_within_reach(to: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(save(NORM, tmp_path), "--to", str(to), "--format", "json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [item["opset"] for item in found["candidates"]] == [to]
    assert all(item["opset"] > to for item in found["obstacles"])


@pytest.mark.parametrize(
    ("source", "to", "reason"),
    [
        (
            FUNCTION.replace("com.acme.Strange", "com.acme.Odd").replace("Identity(x)", "NotYetKnown(x)"),
            9,
            "NotYetKnown",
        ),
        (one("float[2,3] x => float[2,3] y, bool[2,3] m", "y, m = Dropout(x)", 11), 13, "the mask of Dropout is read"),
    ],
)
def test_an_opset_out_of_reach(
    source: str, to: int, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(save(source, tmp_path), "--to", str(to)) == 1
    assert reason in capsys.readouterr().out


@pytest.mark.parametrize("to", ["0", "-3", "400"])
def test_a_nonexistent_opset(to: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(save(NORM, tmp_path), f"--to={to}") == 2
    assert f"opset {to} does not exist" in capsys.readouterr().err


def test_a_file_that_is_not_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "none.onnx") == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_releases_match_the_onnx_version_table() -> None:
    for name, ir_version, opset, *_ in onnx.helper.VERSION_TABLE:
        found = releases.release(opset)
        assert found.ir_version is not None and found.ir_version <= ir_version
        assert found.onnx is not None and found.onnx.split(".")[:2] <= name.split(".")[:2]
    assert releases.release(newest_opset() + 1).onnx is None


def test_newer_opsets_and_ir_versions_never_run_on_older_runtimes() -> None:
    def number(name: str) -> tuple[int, ...]:
        return tuple(map(int, name.split(".")))

    runtimes = [found for opset in range(7, newest_opset() + 1) if (found := releases.release(opset).runtime)]
    readers = [found for version in range(3, 20) if (found := releases.reader(version))]
    assert runtimes == sorted(runtimes, key=number) and readers == sorted(readers, key=number)
    assert releases.release(6).runtime is None
    assert releases.reader(99) is None


@pytest.mark.parametrize("to", ["17", "x", 17.0, True])
def test_an_opset_is_a_whole_number(to: object) -> None:
    model = text.parse("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    with pytest.raises(surgery.UsageError) as caught:
        surgery.opset(model, to)  # type: ignore[arg-type]
    assert str(caught.value).startswith(f"an opset is a whole number such as 17, not {to!r}; to convert, run")
