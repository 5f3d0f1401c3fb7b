"""The power of the generated inputs on a sample; `measure` is the whole."""

from __future__ import annotations

import onnx
import pytest
from support import corpus, lacking

from power.measure import LEAST, MISSED, judged, scores
from power.mutants import ACTIVATIONS, KINDS, mutants

TEXT = """<ir_version: 10, opset_import: ["": 21]>
g (float[3,3] x, float[3,3] b, float[3] c) => (float[3,3] y) <float[3] d = {1, 2, 3}> {
    p = Gemm<alpha = 2.0>(x, b, c)
    q = Relu(p)
    r = Div(q, d)
    y = Softmax(r)
}"""


def _sample(step: int) -> list[tuple[str, bytes]]:
    """Return every n-th node test of onnx, which are files in older releases."""
    nodes = [(name, model) for name, model in corpus.models() if name.startswith("node/")]
    return [(name, model if isinstance(model, bytes) else model.read_bytes()) for name, model in nodes[::step]]


def _activates(data: bytes) -> bool:
    return any(node.op_type in ACTIVATIONS for node in onnx.load_model_from_string(data).graph.node)


@pytest.mark.slow
def test_enough_mutants_are_caught():
    # In functions that are written out much is computed that cannot matter: too many equivalent mutants for a sample.
    models = [(name, data) for name, data in _sample(1) if "_expanded" not in name][::37]
    score = scores(models)["all"]
    assert score.ran > 1.6 * len(models)
    assert score.share >= LEAST["all"], [str(mutant) for mutant in score.by_fate[MISSED]]


def test_enough_dropped_activations_are_caught():
    models = [(name, data) for name, data in _sample(17) if _activates(data)]
    score = scores(models, ("activation",))["all"]
    if lacking.are_old() and score.ran <= 12:
        pytest.skip(f"onnx {onnx.__version__} brings too few models of its own")
    assert score.ran > 12
    assert score.share >= LEAST["activation"], [str(mutant) for mutant in score.by_fate[MISSED]]


@pytest.mark.parametrize("kind", KINDS)
def test_mutants_are_valid_different_and_the_same_each_time(kind):
    data = onnx.parser.parse_model(TEXT).SerializeToString()
    made = list(mutants("g", data, (kind,)))
    assert made
    assert made == list(mutants("g", data, (kind,)))
    for mutant in made:
        onnx.checker.check_model(onnx.load_model_from_string(mutant.model), full_check=True)
        assert mutant.model != data


def test_swapped_commutative_operands_are_not_a_mutant():
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[3] x, float[3] b) => (float[3] y) { y = Add(x, b) }'
    assert list(mutants("g", onnx.parser.parse_model(text).SerializeToString(), ("swap",))) == []


def test_an_equivalent_mutant_counts_as_missed():
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[3] x) => (float[3] y) { a = Abs(x) y = Relu(a) }'
    data = onnx.parser.parse_model(text).SerializeToString()
    assert [fate for _, fate in judged("g", data, ("activation",))] == [MISSED]
