"""A model that was converted on purpose is run at the sizes of the original, unless it does not accept them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest

import surgery
from surgery.verification.comparing.probing import Probing
from surgery.verification.inputs.search import Found
from surgery.verification.verdict.verifier import Verifier

PLAIN = "g (float[N,M] x) => (float[N,M] y) <float two = {2}> { y = Mul(x, two) }"


def proto(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]>\n{body}')


def prepared(body: str, found: Found | None = None) -> Verifier:
    verifier = Verifier(proto(body).SerializeToString(), found=found)
    verifier.original.prepare()
    verifier.close()
    assert verifier.original.problem is None, verifier.original.problem
    return verifier


def sizes(verifier: Verifier) -> list[Mapping[str, int]]:
    return [run.binding.dims for run in verifier.original.runs]


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[Probing]:
    """The probings that searched."""
    made: list[Probing] = []
    search = Probing._search

    def noted(self: Probing, found: Found, once: bool) -> None:
        made.append(self)
        search(self, found, once)

    monkeypatch.setattr(Probing, "_search", noted)
    return made


def test_sizes_that_are_accepted_again_are_not_searched(searches: list[Probing]) -> None:
    first = prepared(PLAIN)
    again = prepared(PLAIN.replace("Mul", "Add"), first.original.found)
    assert len(searches) == 1
    assert sizes(again) == sizes(first)
    assert again.original.found.meets == first.original.found.meets


@pytest.mark.parametrize(
    "body",
    [
        "g (float[N,K] x) => (float[N,K] y) <float two = {2}> { y = Mul(x, two) }",
        "g (float[N,M] x) => (float[N,M] y) <float[7] two = {1, 2, 3, 4, 5, 6, 7}> { y = Mul(x, two) }",
    ],
    ids=["other dims", "sizes that are refused"],
)
def test_sizes_that_do_not_fit_are_searched(body: str, searches: list[Probing]) -> None:
    found = prepared(PLAIN).original.found
    again, own = prepared(body, found), prepared(body)
    assert len(searches) == 3
    assert sizes(again) == sizes(own)


def test_a_model_in_float16_runs_at_the_sizes_of_the_original(tmp_path: Path, searches: list[Probing]) -> None:
    weights = ", ".join(map(str, range(16)))
    onnx.save(proto(f"g (float[N,4] x) => (float[N,4] y) <float[4,4] w = {{{weights}}}> {{ y = MatMul(x, w) }}"),
              tmp_path / "m.onnx")  # fmt: skip
    result = surgery.apply(tmp_path / "m.onnx", ["to-float16"])
    assert result.ok
    assert len(searches) == 1
