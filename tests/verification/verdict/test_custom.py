"""What ONNX Runtime cannot run by itself: custom operators, functions, operators without a kernel, and the policy."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support import installed
from support.breadth import sampled
from support.lacking import computes_types

from surgery.base.errors import UsageError
from surgery.base.promises import Parity
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.delta_debugging import SiteSearch
from surgery.engine.recipe import load, parse
from surgery.engine.recipe.schema import Recipe
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.runtime.engine import Engine
from surgery.model.runtime.setup import SessionSetup
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.verdict.checks import check, new_findings
from surgery.verification.verdict.pair import verify
from surgery.verification.verdict.verifier import Verifier

PORTS = "(string[n] s) => (string[n] y, int64[n] z)"
UPPER = "u = ai.onnx.contrib.StringUpper(s) k = Identity(u) y = Identity(k) z = ai.onnx.contrib.StringLength(s)"


def custom(body: str, ports: str = PORTS) -> onnx.ModelProto:
    """A model with operators of onnxruntime-extensions."""
    proto = text.parse(f"g {ports} {{ {body} }}")
    proto.opset_import.add(domain="ai.onnx.contrib", version=1)
    return proto


@pytest.fixture(scope="module")
def library() -> Path:
    """A real library of custom operators, found without importing the package that brings it."""
    found = importlib.util.find_spec("onnxruntime_extensions")
    assert found is not None and found.submodule_search_locations
    (path,) = Path(found.submodule_search_locations[0]).glob("_extensions_pydll*.so")
    return path


def _verdict(before: onnx.ModelProto, after: onnx.ModelProto, *libraries: Path) -> tuple[str, str | None, str]:
    verifier = Verifier(before.SerializeToString(), None, VerifySpec(custom_op_library=libraries))
    found = verifier.verify(after.SerializeToString(), Parity.EXACT)
    return found.status, found.reason, found.message


def test_a_library_lets_custom_operators_be_compared(library: Path) -> None:
    right = custom("u = ai.onnx.contrib.StringUpper(s) y = Identity(u) z = ai.onnx.contrib.StringLength(s)")
    wrong = custom("u = ai.onnx.contrib.StringLower(s) y = Identity(u) z = ai.onnx.contrib.StringLength(s)")
    assert _verdict(custom(UPPER), right, library)[0] == "equal"
    assert _verdict(custom(UPPER), wrong, library)[0] == "different"


def test_without_its_library_a_custom_operator_is_named(library: Path) -> None:
    right = custom("y = ai.onnx.contrib.StringUpper(s) z = ai.onnx.contrib.StringLength(s)")
    status, reason, message = _verdict(custom(UPPER), right)
    assert (status, reason) == ("unverified", "not-run")
    assert (
        message == "ai.onnx.contrib:StringUpper is a custom operator "
        "that is in no --custom-op-library or verify.custom_op_library"
    )
    # One that the library does not have, in the changed model only.
    missing = custom("y = ai.onnx.contrib.NoSuchThing(s) z = ai.onnx.contrib.StringLength(s)")
    status, reason, message = _verdict(custom(UPPER), missing, library)
    assert (status, reason) == ("unverified", "not-run") and "ai.onnx.contrib:NoSuchThing" in message


def test_the_checker_lets_the_domain_pass() -> None:
    assert check(custom(UPPER).SerializeToString()) == []
    changed = custom("y = ai.onnx.contrib.StringUpper(s) z = ai.onnx.contrib.StringLength(s)")
    assert new_findings([], check(changed.SerializeToString())) == []


@pytest.mark.parametrize("content", [b"", b"no library", None])
def test_an_unloadable_library_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("wrong.so")
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        _verdict(custom(UPPER), custom("y = Identity(s) z = ai.onnx.contrib.StringLength(s)"), path)
    message = str(caught.value)
    assert message.startswith("wrong.so: not a library of custom operators that ONNX Runtime can load: ")
    assert "\n" not in message and str(tmp_path) not in message


def test_a_library_without_custom_ops_is_refused() -> None:
    # A module of the standard library may be part of the interpreter.
    ours = Path(importlib.util.find_spec("numpy.random.mtrand").origin or "")  # type: ignore[union-attr]
    engine = Engine("onnxruntime", 60, None, 0, SessionSetup((ours,)))
    try:
        with pytest.raises(UsageError, match="RegisterCustomOps"):
            engine.run(custom(UPPER).SerializeToString(), [])
    finally:
        engine.close()


def test_a_recipe_with_a_library_needs_trust(library: Path, tmp_path: Path) -> None:
    (tmp_path / "ops.so").symlink_to(library)
    recipe = tmp_path / "r.yaml"
    recipe.write_text("steps: [drop-identity]\nverify: {custom_op_library: ops.so}\n")
    with pytest.raises(
        UsageError, match=r"wants to load ops\.so \(sha256 [0-9a-f]{64}, file .*\); if you trust it, pass --trust"
    ):
        load(recipe)
    loaded = load(recipe, trust=True)
    assert loaded.verify.custom_op_library == (tmp_path / "ops.so",)
    result = runner.run(storage.from_proto(custom(UPPER)), loaded)
    assert result.ok and [step.verdict.status for step in result.steps if step.verdict] == ["equal"]


# Functions of the model, and the reference evaluator

FUNCTION = """<ir_version: 10, opset_import: ["": 21, "local": 1]>
g (float[n] x) => (float[n] y) {{ {} }}
<domain: "local", opset_import: ["": 21]>
Twice (a) => (b) {{ c = Add(a, a) b = Identity(c) }}
"""


def test_functions_of_the_model_need_no_library() -> None:
    before = onnx.parser.parse_model(FUNCTION.format("t = local.Twice(x) y = Relu(t)"))
    right = onnx.parser.parse_model(FUNCTION.format("t = Add(x, x) y = Relu(t)"))
    wrong = onnx.parser.parse_model(FUNCTION.format("t = Add(x, x) y = Abs(t)"))
    assert _verdict(before, right)[0] == "equal"
    assert _verdict(before, wrong)[0] == "different"


@computes_types
def test_a_model_without_a_kernel_runs_in_the_reference_evaluator() -> None:
    ports = "g (bfloat16[n] x) => (bfloat16[n] y)"
    before = text.parse(f"{ports} {{ t = Abs(x) k = Identity(t) y = Neg(k) }}")
    right, wrong = (text.parse(f"{ports} {{ t = {op}(x) y = Neg(t) }}") for op in ("Abs", "Relu"))
    status, _, message = _verdict(before, right)
    assert status == "equal"
    assert ("in the reference evaluator" in message) == (not installed.has_kernel("Abs", "bfloat16"))
    assert _verdict(before, wrong)[0] == "different"


# The policy


LOWER = """
rules:
  lower: {match: "y = ai.onnx.contrib::StringUpper(x)", emit: "y = ai.onnx.contrib::StringLower(x)"}
steps: [lower]
"""


def _recipe(policy: str, steps: str = "steps: [drop-identity]") -> Recipe:
    return parse(f"{steps}\nverify: {{unverified: {policy}}}")


def test_a_removal_in_an_unrunnable_model_is_verified_by_structure() -> None:
    (step,) = runner.run(storage.from_proto(custom(UPPER)), _recipe("refuse")).steps[:1]
    assert step.status == "committed" and step.verdict is not None and step.verdict.status == "equal"


def test_unverified_is_refused_unless_the_recipe_accepts_it() -> None:
    refused = runner.run(storage.from_proto(custom(UPPER)), _recipe("refuse", LOWER))
    assert refused.exit_code == 1
    (step,) = refused.steps
    assert step.status == "failed" and step.verdict is not None and step.verdict.reason == "not-run"
    accepted = runner.run(storage.from_proto(custom(UPPER)), _recipe("accept", LOWER))
    assert accepted.exit_code == 0
    (step,) = accepted.steps
    assert step.status == "committed" and step.verdict is not None and step.verdict.status == "unverified"
    assert step.message == step.verdict.message


def test_the_loss_of_a_model_that_cannot_run_is_not_searched_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = text.parse("""<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>
        g (float[N,4] x) => (float[N,4] y) <float[N,4] a> { a = acme.Fancy(x) b = Tanh(a) y = Sigmoid(b) }""")
    searched: list[object] = []
    monkeypatch.setattr(SiteSearch, "guilty", lambda self: searched.append(self))
    result = runner.run(storage.from_proto(proto), parse("on_failure: bisect\nsteps: [to-float16]"))
    (step,) = result.steps
    assert step.sites > 1 and step.status == "rolled_back" and not searched
    assert step.message.startswith(
        "accuracy is measured on the whole model, which cannot be run: acme:Fancy is a custom"
    )


def test_passes_calibrate_with_the_library(library: Path) -> None:
    proto = text.parse("""<ir_version: 8, opset_import: ["" : 17, "ai.onnx.contrib" : 1]>
        g (float[N,8] x) => (float[N,8] y) <float[8,8] w, float[N,8] n, float[N,8] p>
        { a = Tanh(x) n, p = ai.onnx.contrib.NegPos(a) y = MatMul(p, w) }""")
    weights = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    recipe = parse("steps: [quantize-static]")
    (step,) = runner.run(storage.from_proto(proto), recipe).steps
    assert step.status == "unchanged" and step.sites == 0
    with_library = replace(recipe, verify=replace(recipe.verify, custom_op_library=(library,)))
    (step,) = runner.run(storage.from_proto(proto), with_library).steps
    assert step.status == "committed" and step.sites == 1, step.message


@pytest.mark.parametrize("mode", sampled(["each", "end"], 2))
@pytest.mark.parametrize("reason", ["not-run", "vacuous", "nondeterministic"])
def test_the_unverified_policy_applies_to_every_reason(monkeypatch: pytest.MonkeyPatch, reason: str, mode: str) -> None:
    verdict = Verdict(Status.UNVERIFIED, reason, message="nothing is shown")
    monkeypatch.setattr(Verifier, "verify", lambda *_: verdict)
    monkeypatch.setattr(Verifier, "confirm", lambda *_: verdict)
    monkeypatch.setattr(Verifier, "look_inside", lambda *_: verdict)
    proto = text.parse("g (float[n] x) => (float[n] y) { k = Identity(x) y = Relu(k) }")
    for policy, code in (("refuse", 1), ("accept", 0)):
        recipe = _recipe(policy)
        recipe = replace(recipe, verify=replace(recipe.verify, mode=mode))  # type: ignore[arg-type]
        result = runner.run(storage.from_proto(proto), recipe)
        assert result.exit_code == code
        assert result.steps[-1].message == "nothing is shown"
        pair = verify(proto, text.parse("g (float[n] x) => (float[n] y) { y = Relu(x) }"), spec=recipe.verify)
        assert pair.ok is (code == 0)


@computes_types
def test_a_change_that_only_the_runtime_can_run_runs_there() -> None:
    """Where the original runs in the reference evaluator only: each side runs where it can."""
    # The parser reads the bits of a bfloat16: 1, -2, 3, 4.
    io = "(bfloat16[N,2] x) => (bfloat16[N,2] y) <bfloat16[2,2] w = {16256, 49152, 16448, 16512}"
    header = '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>'

    def verdict(weights: str) -> Verdict:
        fused = f"""{header} g {io}, float[2,2] v = {{{weights}}}> {{
            c = Cast<to=1>(x)
            t = com.microsoft.FusedGemm<activation="Relu">(c, v)
            y = Cast<to=16>(t)
        }}"""
        before = f"{header} g {io}> {{ t = MatMul(x, w) y = Relu(t) }}"
        one, other = (onnx.parser.parse_model(body).SerializeToString() for body in (before, fused))
        return Verifier(one).verify(other, Parity.CLOSE)

    found = verdict("1, -2, 3, 4")
    assert found.passed, found.message
    assert "no kernel for MatMul" in found.message
    assert verdict("1, -2, 3, 5").status == "different"
