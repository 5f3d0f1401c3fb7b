"""Models that ONNX Runtime rejects and the reference evaluator of onnx runs: said, and searched for a short time."""

from pathlib import Path
from typing import Any

import onnx
import pytest
from support import lacking

from surgery.base.promises import Parity
from surgery.engine.pipeline import runner, transaction
from surgery.engine.recipe import parse
from surgery.interface import commands as cli
from surgery.model.graph import text
from surgery.model.runtime.engine import Engine, EngineName
from surgery.verification.comparing.details import Status
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.verdict.verifier import Verifier

SINGLE = "g (bfloat16[n] x) => (bfloat16[n] y) { i = Identity(x) y = Erf(i) }"


@lacking.computes_types
def test_the_first_and_the_last_line_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(text.parse(SINGLE), tmp_path / "m.onnx")
    (tmp_path / "r.yaml").write_text("steps: [drop-identity]\nverify: {compare: whole}\n")
    assert cli.main(["apply", str(tmp_path / "r.yaml"), str(tmp_path / "m.onnx"), "-o", str(tmp_path / "o.onnx")]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = "the input model: ONNX Runtime rejects it, so the slow reference evaluator of onnx runs it: "
    assert lines[0].startswith(first) and "Erf" in " ".join(lines[:2])
    assert "run by the reference evaluator of onnx" in " ".join(lines)


@lacking.computes_types
def test_the_last_bit_of_a_sum_depends_on_the_memory_layout_there() -> None:
    """NumPy adds up a transposed matrix in another order, and no kernel of the result is run like that."""
    head = "g (float[1000, n] x, bfloat16[m] b) => (float[n] y, bfloat16[m] z)"
    turned = "t = Transpose(x)  f = Reshape(t, flat)  v = Reshape(f, rows)"
    given = "<int64[1] axes = {1}, int64[1] flat = {-1}, int64[2] rows = {-1, 1000}>"
    twice = f"{head} {given} {{ {turned}  y = ReduceSum<keepdims = 0>(v, axes)  z = Erf(b) }}"
    plain = f"{head} <int64[1] axes = {{0}}> {{ y = ReduceSum<keepdims = 0>(x, axes)  z = Erf(b) }}"
    verifier = Verifier(text.parse(twice).SerializeToString(), InputsSpec(), VerifySpec())
    try:
        found = verifier.verify(text.parse(plain).SerializeToString(), Parity.EXACT)
        assert verifier.original.engine == "reference" and found.status is Status.CLOSE
        wrong = plain.replace("ReduceSum", "ReduceMean")
        assert verifier.verify(text.parse(wrong).SerializeToString(), Parity.EXACT).status is Status.DIFFERENT
    finally:
        verifier.close()


def test_a_search_there_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "_RUNS_EVALUATED", 2)
    body = " ".join(f"r{i} = Neg({f'r{i - 1}' if i else 'x'})" for i in range(11))
    model = text.parse(f"g (bfloat16[n] x) => (bfloat16[n] y) {{ {body} y = Erf(r10) }}")
    rules = "rules: {wrong: {match: 'y = Neg(x)', emit: 'y = Identity(x)'}}"
    recipe = parse(f"on_failure: bisect\nverify: {{compare: whole}}\n{rules}\nsteps: [wrong]")
    result = runner.apply(model, recipe)
    (step, *_) = [step for step in result.steps if step.name == "wrong"]
    assert "2 runs" in step.message or "not bisected" in step.message, step.message


@lacking.computes_types
def test_a_changed_model_runs_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime, which would run this one, rounds otherwise."""
    wide = "w = Cast<to = 1>(x) e = Erf(w) y = Cast<to = 16>(e)"
    verifier = Verifier(text.parse("g (bfloat16[n] x) => (bfloat16[n] y) { y = Erf(x) }").SerializeToString())
    verifier.original.prepare()
    made, asked = verifier.original.engine_for, []

    def noted(name: EngineName, **given: Any) -> Engine:
        asked.append(name)
        return made(name, **given)

    monkeypatch.setattr(verifier.original, "engine_for", noted)
    changed = text.parse(f"g (bfloat16[n] x) => (bfloat16[n] y) {{ {wide} }}").SerializeToString()
    outcome = verifier.changes.whole.run(changed, verifier.original.engine)
    assert outcome.failure is None and asked == ["reference"]
