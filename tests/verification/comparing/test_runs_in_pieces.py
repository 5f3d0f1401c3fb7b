"""A large model runs piece by piece, with the results of the whole model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import numpy as np
import onnx
import pytest

from surgery.base.promises import Parity
from surgery.model.runtime.engine import Engine, RunOutcome
from surgery.verification.accuracy import loss_evaluation
from surgery.verification.inputs.spec import AccuracySpec, VerifySpec
from surgery.verification.running import pieces
from surgery.verification.verdict.verifier import Verifier

HEAD = '<ir_version: 10, opset_import: ["": 21]> g (float[N,4] x, bool up) => '
ONES = ", ".join(["1.5"] * 16)
CHAIN = f"""(float[N,4] early, float[N,4] late)
    <float[4,4] a = {{{ONES}}}, float[4,4] b = {{{ONES}}}, float[4,4] c = {{{ONES}}}> {{
        early = MatMul(x, a)
        middle = MatMul(early, b)
        chosen = If(up) <
            then_branch = one () => (float[N,4] t) {{ t = MatMul(middle, c) }},
            else_branch = two () => (float[N,4] e) {{ e = Add(middle, x) }}
        >
        late = MatMul(chosen, a)
    }}"""
FEEDS = [
    {"x": np.arange(rows * 4, dtype=np.float32).reshape(rows, 4), "up": np.asarray(up)}
    for rows, up in ((1, True), (3, False), (0, True))
]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MANY_WEIGHTS", 128)
    monkeypatch.setattr(pieces, "_WEIGHTS_OF_PIECE", 64)


class Counted(Engine):
    """An engine that keeps the models that it ran."""

    def __init__(self) -> None:
        super().__init__("onnxruntime", timeout=60.0, memory=None, weights=0, deployed=True)
        self.ran: list[onnx.ModelProto] = []

    def run(self, skeleton: bytes, feeds: Any, *, keep: bool = False) -> RunOutcome:
        """Run and remember a model."""
        self.ran.append(onnx.load_model_from_string(skeleton))
        return super().run(skeleton, feeds, keep=keep)


@pytest.fixture(name="engine")
def _engine() -> Iterator[Counted]:
    with closing(Counted()) as engine:
        yield engine


def _skeleton(body: str) -> bytes:
    skeleton: bytes = onnx.parser.parse_model(HEAD + body).SerializeToString()
    return skeleton


def _values(outcome: RunOutcome) -> list[dict[str, Any]]:
    assert outcome.failure is None
    return [{name: np.asarray(value).tolist() for name, value in run.items()} for run in map(_run, outcome.runs)]


def _run(run: Mapping[str, Any] | str) -> Mapping[str, Any]:
    assert not isinstance(run, str), run
    return run


def test_pieces_give_the_results_of_the_whole_model(engine: Counted) -> None:
    skeleton = _skeleton(CHAIN)
    outcome = pieces.run_in_pieces(engine.run, skeleton, FEEDS)
    assert outcome is not None
    assert len(outcome.seconds) == len(FEEDS)
    assert [[node.op_type for node in model.graph.node] for model in engine.ran] == [
        ["MatMul"], ["MatMul"], ["If"], ["MatMul"]
    ]  # fmt: skip
    assert all(len(model.graph.initializer) <= 1 for model in engine.ran)
    assert _values(outcome) == _values(engine.run(skeleton, FEEDS))


def test_a_failure_names_its_reason(engine: Counted) -> None:
    body = CHAIN.replace("MatMul(early, b)", "Reshape(early, shape)")
    skeleton = _skeleton(body.replace("<float[4,4] a", "<int64[2] shape = {7, 4}, float[4,4] a"))
    outcome = pieces.run_in_pieces(engine.run, skeleton, FEEDS)
    assert outcome is not None
    assert isinstance(outcome.runs[0], str) and "reshaped" in outcome.runs[0]


def test_an_input_with_a_default_is_given_or_not(engine: Counted) -> None:
    model = onnx.load_model_from_string(_skeleton(CHAIN))
    model.graph.input.append(onnx.helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, [4, 4]))
    for feed in (FEEDS[0], {**FEEDS[0], "b": np.eye(4, dtype=np.float32)}):
        outcome = pieces.run_in_pieces(engine.run, model.SerializeToString(), [feed])
        assert outcome is not None
        assert _values(outcome) == _values(engine.run(model.SerializeToString(), [feed]))


@pytest.mark.parametrize(
    "body",
    [
        "(float[N,4] y) { y = Identity(x) }",
        CHAIN.replace("float[N,4] late)", "float[N,4] late, float[N,4] x)"),
        CHAIN.replace("middle = MatMul(early, b)", "").replace("late = ", "middle = MatMul(early, b) late = "),
    ],
    ids=["few weights", "an input is an output", "not in topological order"],
)
def test_other_models_run_whole(body: str, engine: Counted) -> None:
    assert pieces.run_in_pieces(engine.run, _skeleton(body), FEEDS) is None
    assert not engine.ran


def test_a_model_whose_weights_are_packed_is_judged_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[RunOutcome | None] = []

    def run_in_pieces(*arguments: Any) -> RunOutcome | None:
        ran.append(pieces.run_in_pieces(*arguments))
        return ran[-1]

    monkeypatch.setattr(loss_evaluation, "run_in_pieces", run_in_pieces)
    before = _skeleton(CHAIN)
    scaled = "<float[1,4] s = {1.5, 1.5, 1.5, 1.5}, uint8[4,4] q = {" + ", ".join("1" * 16) + "}, float[4,4] a"
    after = (
        CHAIN.replace("<float[4,4] a", scaled)
        .replace("b)", "d)")
        .replace(
            "{\n        early",
            "{\n        \
        d = DequantizeLinear<axis = 0, block_size = 4>(q, s) early",
        )
    )
    with closing(Verifier(before, None, VerifySpec(accuracy=AccuracySpec()))) as verifier:
        assert verifier.verify(_skeleton(after), Parity.LOSSY).status == "lossy"
        assert len(ran) == 2 and all(ran), "on the evaluation inputs, and on those of verification"
        ran.clear()
        assert verifier.verify(before, Parity.LOSSY).status.accepted
        assert not ran, "weights that are not packed stay in the file"
