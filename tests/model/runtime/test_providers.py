"""Execution providers: which a session is made with, what is said of those it lacks, and how strictly they are held."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from surgery.base.errors import RecipeError
from surgery.base.promises import Parity
from surgery.engine import recipe
from surgery.interface.commands import main
from surgery.model.runtime import sessions
from surgery.model.runtime.setup import ProviderError, SessionSetup, provider_arguments, require_started
from surgery.verification.comparing.compare import ComparisonRules
from surgery.verification.inputs.spec import VerifySpec

MODEL = str(Path(__file__).parents[3] / "models" / "resnet-tiny.onnx")
MISSING = next(
    name
    for name in ("CUDAExecutionProvider", "ROCMExecutionProvider")
    if name not in onnxruntime.get_available_providers()
)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main([*arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize(
    "arguments", [("run", "fuse-conv-bn", MODEL), ("apply", "tidy", MODEL), ("bench", MODEL, MODEL)]
)
def test_a_provider_that_is_not_installed_is_named(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, said = run(capsys, *arguments, "--provider", MISSING)
    assert code == 2
    assert f"no {MISSING}: the installed ONNX Runtime has" in said


def test_the_report_names_the_providers(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, _ = run(
        capsys, "run", "fuse-conv-bn", MODEL, "--provider", "CPUExecutionProvider", "--format", "json"
    )
    assert code == 0
    report = json.loads(printed)
    assert report["providers"] == ["CPUExecutionProvider"]
    assert "providers: [CPUExecutionProvider]" in report["yaml"]


def test_the_cpu_provider_is_last_and_cuda_disables_tf32() -> None:
    assert provider_arguments([]) == ["CPUExecutionProvider"]
    found = provider_arguments(["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert found == [("CUDAExecutionProvider", {"use_tf32": "0"}), "CPUExecutionProvider"]


def test_a_provider_that_does_not_start_is_an_error() -> None:
    class WithoutDevice:
        def get_providers(self) -> list[str]:
            return ["CPUExecutionProvider"]

    with pytest.raises(ProviderError, match="does not start"):
        require_started(["CUDAExecutionProvider"], WithoutDevice())


def test_a_session_is_created_with_the_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    real = onnxruntime.InferenceSession

    def watched(*arguments: Any, **more: Any) -> Any:
        seen.append(more["providers"])
        return real(*arguments, **{**more, "providers": ["CPUExecutionProvider"]})

    monkeypatch.setattr(onnxruntime, "InferenceSession", watched)
    monkeypatch.setattr(
        onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    with pytest.raises(ProviderError, match="CUDAExecutionProvider"):
        sessions.make_session(MODEL, onnxruntime.SessionOptions(), ["CUDAExecutionProvider"])
    assert seen == [[("CUDAExecutionProvider", {"use_tf32": "0"}), "CPUExecutionProvider"]]


@pytest.mark.parametrize(
    ("providers", "coarse"),
    [
        ((), False),
        (("CPUExecutionProvider",), False),
        (("CUDAExecutionProvider",), False),
        (("QNNExecutionProvider",), True),
    ],
)
def test_providers_that_may_compute_in_16_bits_get_a_16_bit_tolerance(providers: tuple[str, ...], coarse: bool) -> None:
    rules = ComparisonRules.of(VerifySpec(providers=providers), Parity.CLOSE)
    half, single = (ComparisonRules(Parity.CLOSE).tolerance(np.dtype(kind)) for kind in ("f2", "f4"))
    assert SessionSetup(providers=providers).is_coarse is coarse
    assert rules.tolerance(np.dtype("f4")) == (half if coarse else single)
    assert rules.tolerance(np.dtype("f2")) == half


def test_a_recipe_names_providers() -> None:
    loaded = recipe.parse("verify: {providers: CUDAExecutionProvider}\nsteps: [drop-identity]")
    assert loaded.verify.providers == ("CUDAExecutionProvider",)
    with pytest.raises(RecipeError, match="'cuda' is not an execution provider such as 'CUDAExecutionProvider'"):
        recipe.parse("verify: {providers: [cuda]}\nsteps: [drop-identity]")
