"""Models with other opsets, whose kernels the regions of a change do not show."""

import onnx
import onnxruntime as ort
import pytest

from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.verification.verdict.verifier import Verifier

# In ONNX Runtime 1.32, Swish has no kernel and is decomposed, for opset 24 only. It is the same operator in opset 25.
LOST = [("Swish", 24, 25)]


def model(operator: str, opset: int, first: str) -> onnx.ModelProto:
    return text.parse(
        f"""<ir_version: 8, opset_import: ["" : {opset}]> g (float[n,4,5] x) => (float[n,4,m] y) {{
            {first} a = Relu(i) y = {operator}(a) }}"""
    )


def loads(one: onnx.ModelProto) -> bool:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        ort.InferenceSession(one.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:
        return False
    return True


@pytest.mark.parametrize(("operator", "known", "unknown"), LOST)
def test_a_model_that_the_runtime_rejects_as_a_whole_is_refused(operator: str, known: int, unknown: int) -> None:
    before = model(operator, known, "i = Neg(x)")
    after = model(operator, unknown, "j = Identity(x) i = Neg(j)")
    same = model(operator, known, "j = Identity(x) i = Neg(j)")
    if not loads(before) or loads(after):
        pytest.skip(f"ONNX Runtime {ort.__version__} makes no difference between these opsets")
    skeletons = [one.SerializeToString(deterministic=True) for one in (before, after, same)]
    verifier = Verifier(skeletons[0])
    try:
        verifier.original.prepare()
        assert verifier.changes.compare_regions(skeletons[0], skeletons[1], Parity.EXACT).verdict.passed, (
            "shows nothing"
        )
        found = verifier.verify(skeletons[1], Parity.EXACT, before=skeletons[0])
        assert not found.passed and operator in found.message
        assert verifier.verify(skeletons[2], Parity.EXACT, before=skeletons[0]).passed
    finally:
        verifier.close()
