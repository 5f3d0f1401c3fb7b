"""Target profiles: the shipped ones, what a file can say, and each mistake in one with its place."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as native
from support import lacking

from surgery.base.errors import RecipeError, UsageError
from surgery.model.targets import STANDARD, shipped
from surgery.model.targets.profile import read

FLOAT, FLOAT16, BFLOAT16 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16


def made(tmp_path: Path, text: str) -> Path:
    (tmp_path / "mine.yaml").write_text(text)
    return tmp_path / "mine.yaml"


def mistakes(tmp_path: Path, text: str) -> list[str]:
    path = made(tmp_path, text)
    with pytest.raises(RecipeError) as failed:
        read(path)
    return [str(problem).removeprefix(f"{path}:") for problem in failed.value.problems]


def test_all_required_targets_are_shipped() -> None:
    wanted = {"standard", "ort-cpu", "ort-cuda", "ort-web", "tensorrt", "openvino", "coreml", "qnn", "rknn-like"}
    assert set(shipped.names()) == wanted


@pytest.mark.parametrize("name", [name for name in shipped.names() if name != "standard"])
def test_a_shipped_profile_has_a_description_and_a_source(name: str) -> None:
    target = shipped.find(name)
    assert target.name == name
    assert target.about
    assert target.source
    assert target.has("Add", FLOAT, 13)
    assert target.has("MatMul", FLOAT, 13)
    assert target.has("com.microsoft::FusedMatMul", FLOAT) == (name in {"ort-cpu", "ort-cuda", "ort-web", "qnn"})


def test_the_names_in_shipped_profiles_are_those_of_the_newest_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older onnx does not know all of them, which is no mistake of its user."""
    paths = sorted(shipped.folder().glob("*.yaml"))
    if not lacking.are_old():
        assert [read(path).name for path in paths] == [path.stem for path in paths]
    monkeypatch.setattr("surgery.model.targets.profile.operator", lambda domain, op, newest: "no such operator")
    assert [read(path, shipped=True).name for path in paths] == [path.stem for path in paths]


def test_cpu_operators_match_the_kernels_of_the_runtime() -> None:
    target = shipped.find("ort-cpu")
    kernels = [one for one in native.get_all_opkernel_def() if one.provider == "CPUExecutionProvider"]
    names = {("" if one.domain == "ai.onnx" else one.domain, one.op_name) for one in kernels}
    assert set(target.operators) == names
    assert not target.has("com.microsoft::NhwcConv")


def test_a_provider_that_is_not_installed_is_known_from_the_file() -> None:
    assert not [one for one in native.get_all_opkernel_def() if one.provider == "CUDAExecutionProvider"]
    target = shipped.find("ort-cuda")
    # Read off the table of ONNX Runtime 1.23.
    assert target.has("Add", BFLOAT16, 14) is False  # no pass produces bfloat16, whatever the kernel takes
    assert ("", "Add") in target.operators
    assert "bfloat16" in target.operators["", "Add"][-1].types["T"]
    assert target.has("com.microsoft::GroupQueryAttention", FLOAT16)
    assert not target.has("com.microsoft::GroupQueryAttention", FLOAT)


def test_the_npu_runs_eighty_odd_operators_all_of_opset_13() -> None:
    target = shipped.find("rknn-like")
    assert 80 <= len(target.operators) <= 85
    assert all(onnx.defs.get_schema(op, 13, domain) for domain, op in target.operators)
    assert not target.has("Gelu", FLOAT)
    assert not target.has("LayerNormalization", FLOAT, 17)
    assert target.has("Erf", FLOAT, 13)


def test_without_a_target_everything_of_the_standard_is_run() -> None:
    assert shipped.find("standard") is STANDARD
    assert STANDARD.has("Gelu", FLOAT, 20)
    assert not STANDARD.has("Gelu", ir.DataType.DOUBLE, 20)
    assert not STANDARD.has("com.microsoft::Gelu", FLOAT)
    assert not STANDARD.computes("Gelu", None)


def test_a_target_runs_the_operators_of_its_profile(tmp_path: Path) -> None:
    target = read(
        made(
            tmp_path,
            "target: mine\ndomains: [ai.onnx, com.acme]\nopset: [7, 17]\noperators:\n"
            "  Add:\n  Relu: {versions: [14]}\n  Gemm: {types: [float16]}\n  com.acme::Own:\n"
            "  Mul: [{versions: [7, 12], types: [float]}, {versions: 13, types: [float16]}]\n"
            "excluded: {Sub: it is broken}\n",
        )
    )
    assert target.has("Add", FLOAT, 7)
    assert not target.has("Relu", FLOAT, 13)
    assert target.has("Relu", FLOAT, 14)
    assert not target.has("Gemm", FLOAT)
    assert target.has("Gemm", FLOAT16)
    assert target.has("com.acme::Own")
    assert not target.has("com.acme::Other")
    assert (target.has("Mul", FLOAT, 12), target.has("Mul", FLOAT, 13)) == (True, False)
    assert (target.has("Mul", FLOAT16, 12), target.has("Mul", FLOAT16, 13)) == (False, True)
    assert not target.has("Sub", FLOAT)


def test_single_operators_of_a_domain_can_be_made(tmp_path: Path) -> None:
    text = (
        "target: mine\ndomains: [ai.onnx, com.acme::Own]\noperators:\n  Relu:\n  com.acme::Own:\n  com.acme::Other:\n"
    )
    target = read(made(tmp_path, text))
    assert target.has("com.acme::Own") and target.has("Relu") and target.has("ai.onnx::Relu")
    assert not target.has("com.acme::Other") and not target.has("com.acme::Relu")


def test_openvino_takes_weights_of_few_bits_but_no_fused_operators() -> None:
    target = shipped.find("openvino")
    assert target.has("com.microsoft::MatMulNBits", FLOAT) and target.has("com.microsoft::GatherBlockQuantized", FLOAT)
    assert not target.has("com.microsoft::BiasGelu", FLOAT)


def test_attributes_that_no_part_of_an_operator_takes(tmp_path: Path) -> None:
    text = """target: mine
operators:
  Add:
  Resize: {attributes: {mode: [linear, nearest], antialias: 0}}
  Gelu: [{attributes: {approximate: none}}, {versions: 20, attributes: {approximate: tanh}}]
  Conv: {attributes: {dilations: 1}}
  HardSigmoid: {attributes: {alpha: 0.1}}
"""
    target = read(made(tmp_path, text))

    def rejected(op: str, **attributes: object) -> str | None:
        return target.rejected(op, 1, attributes)

    assert rejected("Resize", mode="cubic", antialias=0) == "mode cubic"
    assert rejected("Resize", mode="linear", antialias=1) == "antialias 1"
    assert rejected("Resize", mode="linear", antialias=0, other=3) is None
    assert rejected("Resize", mode=None) is None
    assert rejected("ai.onnx::Resize", mode="cubic") == "mode cubic"
    assert rejected("Gelu", approximate="tanh") is rejected("Gelu", approximate="none") is None
    assert rejected("Gelu", approximate="erf") == "approximate erf"
    assert rejected("Conv", dilations=(1, 1)) is rejected("Conv", dilations=[1]) is None
    assert rejected("Conv", dilations=(1, 2)) == "dilations (1, 2)"
    assert rejected("HardSigmoid", alpha=float(np.float32(0.1))) is None
    assert rejected("Add", mode="cubic") is rejected("Mul", mode="cubic") is None


def test_every_mistake_is_one_line_with_its_place(tmp_path: Path) -> None:
    text = """target: mine
abuot: x
types: [float, flaot]
operators:
  Resize: {rnk: 4}
  Pad: {versions: [13, 7]}
limits: {rank: four, dynamic_dim: false}
"""
    assert mistakes(tmp_path, text) == [
        "2:1: no key 'abuot' here; did you mean 'about'?",
        "3:8: 'types': no element type 'flaot'; did you mean 'float'?",
        "5:12: no key 'rnk' here; did you mean 'rank'?",
        "6:19: 'versions': 13 to 7 is not a range",
        "7:16: 'rank': takes a whole number",
        "7:22: no key 'dynamic_dim' here; did you mean 'dynamic_dims'?",
    ]


def test_names_are_looked_up_in_the_schemas(tmp_path: Path) -> None:
    text = """target: mine
opset: [7, 13]
operators:
  Convv:
  Gelu:
  Reshape: {constant: [shap]}
  Resize: {attributes: {mdoe: [nearest]}}
  DequantizeLinear: {zeros: [zero_point]}
excluded: {Looop: no}
"""
    assert mistakes(tmp_path, text) == [
        "4:3: ONNX has no operator 'Convv'; did you mean 'Conv'?",
        "5:3: Gelu exists since opset 20, after `opset`",
        "6:23: Reshape has no input 'shap'; did you mean 'shape'?",
        "7:25: Resize has no attribute 'mdoe'; did you mean 'mode'?",
        "8:29: DequantizeLinear has no input 'zero_point'; did you mean 'x_zero_point'?",
        "9:12: ONNX has no operator 'Looop'; did you mean 'Loop'?",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1:1: a profile is a mapping with 'target'"),
        ("about: none\n", "1:1: 'target': is required"),
        ("target: a\ntarget: b\n", '2:1: found duplicate key "target" with value "b" (original value: "a")'),
        ("target: a\noperators: {Add: {types: [float}\n", "2:32: expected ',' or ']', but got '}'"),
        ("target: a\ntypes: float\n", "2:8: 'types': takes a list"),
        (
            "target: a\nprefers: {skip_normalization: apart}\n",
            "2:31: 'skip_normalization': input should be 'fused', 'separate' or ''",
        ),
        (
            "target: a\nprefers: {skip_normalisation: fused}\n",
            "2:11: no key 'skip_normalisation' here; did you mean 'skip_normalization'?",
        ),
    ],
)
def test_a_text_that_is_not_a_profile(tmp_path: Path, text: str, expected: str) -> None:
    assert mistakes(tmp_path, text) == [expected]


def test_an_unknown_target_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no target 'ort-gpu'; there are coreml, "):
        shipped.find("ort-gpu")
    with pytest.raises(UsageError, match="cannot be read"):
        shipped.find(str(tmp_path / "none.yaml"))
