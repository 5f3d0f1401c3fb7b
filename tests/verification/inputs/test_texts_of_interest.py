"""Texts and keys that matter to one reader of an input are tried, and remain legal for its other readers."""

from __future__ import annotations

import numpy as np
import onnx

from surgery.verification.verdict.verifier import Verifier


def _fed(body: str) -> set[str]:
    """All elements that the input x was given, over all runs, as texts."""
    text = f'<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 4]>\ng {body}'
    verifier = Verifier(onnx.parser.parse_model(text).SerializeToString())
    verifier.original.prepare()
    assert verifier.original.problem is None, verifier.original.problem
    return {str(item) for run in verifier.original.runs for item in np.asarray(run.feed["x"]).reshape(-1)}


ENCODED = 'y = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "", "7"], values_int64s = [0, 1, 2]>(x)'


def test_texts_with_two_readers_are_of_interest_for_either() -> None:
    """The table of the encoder and the texts for a split have only the empty text in common."""
    split = 'z, n = StringSplit<delimiter = ",">(x)'
    fed = _fed(f"(string[60] x) => (int64[N] y, string[N,M] z, int64[N] n) {{ {ENCODED} {split} }}")
    assert fed >= {"a", "", "7", "unknown", ",x", "y,"}


def test_texts_of_numbers_are_the_only_legal_ones() -> None:
    for body in (f"{ENCODED} z = Cast<to = 7>(x)", f"z = Cast<to = 7>(x) {ENCODED}"):
        assert _fed(f"(string[60] x) => (int64[N] y, int64[N] z) {{ {body} }}") == {"0", "1", "2", "3"}


def test_keys_stay_within_the_bounds_of_another_reader() -> None:
    gathered = "z = Gather(t, x)"
    for keys in ("2, 50", "40, 50"):
        encoded = f"y = ai.onnx.ml.LabelEncoder<keys_int64s = [{keys}], values_int64s = [0, 1]>(x)"
        for body in (f"{encoded} {gathered}", f"{gathered} {encoded}"):
            fed = _fed(f"(float[9] t, int64[60] x) => (int64[60] y, float[60] z) {{ {body} }}")
            assert {int(item) for item in fed} <= set(range(9)) and ("2" in fed or keys == "40, 50")
