"""What leads down: rules and parts are complete as far as the way up knows, and land on what exists."""

from pathlib import Path

import onnx
import pytest
from support import lacking
from surgery.passes.opset import _forms, _lowering, _schemas, _shared, _types
from surgery.passes.opset.decompose import HOMES
from surgery.passes.opset.downgrade_opset import OLDEST, PARTS, RULES
from surgery.passes.opset.upgrade_opset import ADAPTERS

import surgery
from surgery.engine.recipe.loader import single_step
from surgery.engine.registry.catalog import catalog
from surgery.interface import commands as cli
from surgery.model.graph import text

# Operators that a newer opset no longer has, so that no model is taken down from there.
GONE = {("Scatter", 11), ("Upsample", 10)}
ADAPTED = sorted(item for item in _shared._ADAPTERS if item[1] > OLDEST and item not in GONE)


@pytest.mark.parametrize(("op", "version"), ADAPTED, ids=str)
def test_each_upgrade_adapter_has_a_downgrade_rule(op: str, version: int) -> None:
    assert ADAPTERS
    assert RULES
    assert (op, version) in _lowering.rules()


def test_rules_convert_from_existing_versions() -> None:
    missing = [(op, version) for op, version in _lowering.rules() if version not in _schemas.schemas_of(op)]
    # An older onnx knows no later versions.
    assert all(version > onnx.defs.onnx_opset_version() for _, version in missing)


def test_decompositions_are_of_existing_operators() -> None:
    assert PARTS
    assert HOMES
    standard = [op for op in _lowering.parts() if "::" not in op and op != "SimplifiedLayerNormalization"]
    lacking.skip_opset(_lowering.WRITTEN)
    assert all(_schemas.version_at(op, _lowering.WRITTEN) for op in standard)


def test_the_operators_that_are_decomposed_are_reported() -> None:
    declared = catalog.find("decompose")
    (told,) = [option.about for option in declared.options if option.name == "ops"]
    assert all(op.removeprefix("com.microsoft::") in told for op in _lowering.parts())


@pytest.mark.parametrize(
    ("op", "kind", "allowed", "wide"),
    [
        ("Transpose", "tensor(bool)", {"tensor(float)", "tensor(int32)"}, "tensor(int32)"),
        ("Add", "tensor(int8)", {"tensor(float)", "tensor(int64)"}, "tensor(int64)"),
        ("Add", "tensor(int8)", {"tensor(float)"}, None),
        ("Div", "tensor(uint64)", {"tensor(int64)"}, None),
        ("Tanh", "tensor(bfloat16)", {"tensor(float)"}, "tensor(float)"),
        ("QuantizeLinear", "tensor(float16)", {"tensor(float)"}, None),
        ("Pow", "tensor(int32)", {"tensor(double)"}, None),
    ],
)
def test_a_type_is_widened_only_if_results_are_unchanged(
    op: str, kind: str, allowed: set[str], wide: str | None
) -> None:
    assert _types._wide(op, kind, frozenset(allowed)) == wide


def test_type_numbers_match_onnx() -> None:
    assert _forms.type_number("tensor(float16)") == onnx.TensorProto.FLOAT16
    assert _forms.type_name(onnx.TensorProto.INT64) == "tensor(int64)"


def _model(tmp_path: Path, body: str, opset: int = 18, ir_version: int = 8) -> Path:
    model = text.parse(f'<ir_version: {ir_version}, opset_import: ["" : {opset}]> {body}')
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    return path


BLOCKED = """g (float[1,1,4,4] x, float[1,2,2,2] grid, int32[4] a) => (float[1,1,2,2] y, int32[4] c) {
    y = GridSample(x, grid)
    b = BitwiseAnd(a, a)
    c = BitwiseAnd(a, b)
}"""


def test_a_step_that_is_blocked_fails_with_a_line_for_each_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, target = _model(tmp_path, BLOCKED), tmp_path / "out.onnx"
    code = cli.main(["run", "downgrade-opset", str(path), "--set", "to=13", "-o", str(target)])
    said = capsys.readouterr()
    assert (code, target.exists()) == (1, False)
    lines = (said.out + said.err).splitlines()
    assert sum("GridSample came with opset 16" in line for line in lines) == 1
    assert sum("BitwiseAnd came with opset 18" in line and "BitwiseAnd -> b" in line for line in lines) == 1


def test_why_lists_each_blocker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _model(tmp_path, BLOCKED)
    assert cli.main(["why", "downgrade-opset", str(path), "--set", "to=13"]) == 0
    said = capsys.readouterr().out
    assert "3 refusals" in said
    assert "BitwiseAnd came with opset 18" in said


@pytest.mark.parametrize(("to", "said"), [(20, "use upgrade-opset"), (3, "opset 9 is the oldest")])
def test_an_opset_that_is_out_of_reach(tmp_path: Path, capsys: pytest.CaptureFixture[str], to: int, said: str) -> None:
    path = _model(tmp_path, "g (float[N] x) => (float[N] y) { y = Relu(x) }")
    code = cli.main(["run", "downgrade-opset", str(path), "--set", f"to={to}", "-o", str(tmp_path / "out.onnx")])
    shown = capsys.readouterr()
    assert code == 2
    assert said in shown.out + shown.err


REAL = {"bert-tiny.dy": (17, 13, 11), "resnet-tiny": (13, 11), "gpt2-tiny": (17, 13, 11)}
DOWN = [(name, target) for name, targets in REAL.items() for target in targets]


@pytest.mark.parametrize(("name", "target"), DOWN)
def test_a_real_model_is_downgraded(name: str, target: int, short_models: Path) -> None:
    path = short_models / f"{name}.onnx"
    assert surgery.apply(path, single_step("downgrade-opset", {"to": target})).ok
