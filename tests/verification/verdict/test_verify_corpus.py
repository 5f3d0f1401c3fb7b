"""Models of the onnx package against themselves: legal inputs, and a verdict of `equal`.

The default run takes a sample. All of them, with counts and the exceptions:

    python tests/verification/verdict/test_verify_corpus.py
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
from support import corpus

from surgery.base.promises import Parity
from surgery.model import storage
from surgery.verification.comparing.details import Verdict
from surgery.verification.verdict.verifier import Verifier

STEP = 40

# What can have no verdict, by its reason. The first two fail in ONNX Runtime with the inputs that onnx ships, too.
EXCEPTIONS = {
    "test_attention_4d_diff_heads_mask4d_padded_kv": "ONNX Runtime refuses even the inputs of the test",
    "test_convinteger_with_padding": "ONNX Runtime refuses even the inputs of the test",
    "test_gradient": "an operator of the training preview",
    "test_image_decoder": "no kernel, and the reference evaluator needs another package",
}


def verdict_on_itself(model: bytes | Path) -> tuple[Verdict, Verifier]:
    """Verify a model against a copy of it that differs in a doc string only."""
    proto = storage.load(model).proto if isinstance(model, Path) else onnx.load_model_from_string(model)
    verifier = Verifier(proto.SerializeToString())
    proto.doc_string += " "
    return verifier.verify(proto.SerializeToString(), Parity.EXACT), verifier


def test_models_are_equal_to_themselves():
    bad = []
    for name, model in list(corpus.models())[::STEP]:
        verdict, verifier = verdict_on_itself(model)
        if verdict.status != "equal" and not any(known in name for known in EXCEPTIONS):
            bad.append(f"{name}: {verdict} {verifier.original.bindings}")
    assert not bad


def main() -> None:
    """Verify all models against themselves and print what came of it."""
    counts: Counter[str] = Counter()
    engines: Counter[str] = Counter()
    legal = 0
    for name, model in corpus.models():
        verdict, verifier = verdict_on_itself(model)
        counts[f"{verdict.status} {verdict.reason or ''}".strip()] += 1
        engines[verifier.original.engine] += 1
        legal += verifier.original.problem is None
        if verdict.status != "equal":
            print(f"{name}: {verdict.status} {verdict.reason}: {verdict.message}")  # noqa: T201
    total = counts.total()
    print(f"{total} models: {dict(counts)}; legal inputs for {legal}; engines {dict(engines)}")  # noqa: T201
    print(f"equal to themselves: {100 * counts['equal'] / total:.1f} %")  # noqa: T201


if __name__ == "__main__":
    main()
