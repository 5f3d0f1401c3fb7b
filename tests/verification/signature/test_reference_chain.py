"""Which model is the original of the next one in a chain of changes, and which of them are no longer held."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from surgery.base.errors import PassError
from surgery.model.graph import text
from surgery.model.graph.signature_mappings import Joined, Relation
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.signature import references, terms
from surgery.verification.signature.references import References
from surgery.verification.signature.terms import SignatureView

BODY = "a = Neg(x) b = Abs(a) y = Exp(b)"


def _model(
    body: str = BODY, ports: str = "float[2] x", outputs: str = "float[2] y", opset: int = 18
) -> onnx.ModelProto:
    return text.parse(f"g ({ports}) => ({outputs}) {{ {body} }}", opset=opset)


def _data(model: onnx.ModelProto) -> bytes:
    return model.SerializeToString(deterministic=True)


class _Verifier:
    """A verifier that compares nothing, and notes what it was made for."""

    made: list[_Verifier]

    def __init__(self, skeleton: bytes, inputs: Any = None, spec: Any = None, found: Any = None) -> None:
        self.skeleton, self.spec, self.found = skeleton, spec, found
        self.original = SimpleNamespace(given=(), found=f"found by {len(self.made)}")
        self.accepted: list[bytes] = []
        self.is_open = True
        self.made.append(self)

    def accept(self, model: bytes) -> None:
        self.accepted.append(model)

    def close(self) -> None:
        assert self.is_open
        self.is_open = False


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[_Verifier]:
    """All verifiers that were made."""
    _Verifier.made = []
    for module in (references, terms):
        monkeypatch.setattr(module, "Verifier", _Verifier)
    return _Verifier.made


def _chain(model: onnx.ModelProto | None = None) -> References:
    return References(_data(model or _model()), InputsSpec(), VerifySpec())


def _open(made: list[_Verifier]) -> list[int]:
    return [number for number, one in enumerate(made) if one.is_open]


def test_a_model_with_the_same_signature_is_compared_with_the_original(made: list[_Verifier]) -> None:
    chain = _chain()
    first = chain.terms
    changed = _model("y = Exp(x)")
    assert chain.comparable(changed, {}) is first
    chain.adopt(changed, _data(changed), {}, right=True, accepted=False)
    assert chain.committed == _data(changed) and chain.is_right and chain.terms.reference == _data(_model())
    assert made[0].accepted == []
    # One that is accepted has to keep its bits from then on.
    chain.adopt(changed, _data(changed), {}, right=True, accepted=True)
    assert made[0].accepted == [_data(changed)] and chain.terms.accepted == _data(changed)
    chain.adopt(changed, _data(changed), {}, right=False, accepted=False)
    assert not chain.is_right
    chain.adopt(changed, _data(changed), {}, right=True, accepted=False)
    assert not chain.is_right and len(made) == 1
    chain.close()
    assert _open(made) == []


def test_another_signature_makes_other_terms_once(made: list[_Verifier]) -> None:
    chain = _chain()
    fewer = _model("y = Exp(x) z = Neg(x)", outputs="float[2] z")
    fewer.graph.output[0].name = "b"
    fewer.graph.node[1].output[0] = "b"
    found = chain.comparable(fewer, {})
    assert found is not chain.terms and chain.comparable(fewer, {}) is found and len(made) == 2
    assert [output.name for output in onnx.load_model_from_string(found.reference).graph.output] == ["b"]
    # Other names are other terms, and those of before are given up; the original is the same.
    renamed = chain.comparable(fewer, {"y": "b"})
    assert renamed is not found and renamed.match.outputs == (("y", "b"),) and _open(made) == [0]
    chain.adopt(fewer, _data(fewer), {"y": "b"}, right=True, accepted=False)
    assert _open(made) == [0] and chain.terms.match.outputs == (("y", "b"),) and len(made) == 2
    # Terms that are not adopted are given up as well.
    chain.comparable(_model(), {})
    chain.adopt(fewer, _data(fewer), {}, right=True, accepted=False)
    chain.close()
    assert _open(made) == []


def test_a_model_that_intends_something_else_is_the_next_original(made: list[_Verifier]) -> None:
    chain = _chain()
    other = _model("y = Log(x)")
    chain.adopt(other, _data(other), {}, right=False, accepted=False, intended=True)
    assert chain.terms.reference == _data(other) == chain.committed and chain.is_right
    assert _open(made) == [1] and made[1].found is None
    assert chain.aligned() == _data(other) and chain.accurate is None


def test_a_lossy_model_is_measured_against_the_model_before_the_first(made: list[_Verifier]) -> None:
    chain = _chain()
    first, second = _model("y = Log(x)"), _model("y = Sin(x)")
    assert chain.accurate_terms(first, {}) is chain.terms
    chain.adopt(first, _data(first), {}, right=True, accepted=False, lossy=True)
    accurate = chain.accurate
    assert accurate is not None and accurate.reference == _data(_model()) and chain.terms.reference == _data(first)
    # The inputs that the original accepts are those of the result.
    assert _open(made) == [0, 1] and made[1].found == "found by 0"
    assert chain.accurate_terms(second, {}) is accurate
    chain.adopt(second, _data(second), {}, right=True, accepted=False, lossy=True)
    assert chain.accurate is not None and chain.accurate.verifier is accurate.verifier and _open(made) == [0, 2]
    # An exact step keeps it, and one that intends something else gives it up.
    chain.adopt(second, _data(second), {}, right=True, accepted=False)
    assert chain.accurate is not None and _open(made) == [0, 2]
    fewer = _model("y = Sin(x) b = Neg(x)", outputs="float[2] b")
    assert chain.accurate_terms(fewer, {}) is not chain.accurate
    third = _model("y = Cos(x)")
    chain.adopt(third, _data(third), {}, right=True, accepted=False, intended=True)
    assert chain.accurate is None and not made[0].is_open and chain.terms.reference == _data(third)


def test_values_that_the_original_does_not_compute_are_compared_with_the_model_before(made: list[_Verifier]) -> None:
    chain = _chain()
    wider = _model("n = Sin(x) y = Exp(n)")
    chain.adopt(wider, _data(wider), {}, right=True, accepted=False)
    piece = _model("y = Exp(n)", ports="float[2] n")
    assert chain.moves_baseline(piece, {})
    found = chain.comparable(piece, {})
    assert found.remarks[0].startswith(
        "compared with the model before this step, because it cannot be compared with the original: input 'n' is new"
    )
    assert onnx.load_model_from_string(found.reference) is not None and chain.comparable(piece, {}) is found
    verifier, before, after = chain.compared(wider, piece, {})
    assert verifier is found.verifier and [port.name for port in after.graph.input] == ["x"]
    assert [node.op_type for node in before.graph.node] == ["Sin", "Exp"]
    chain.adopt(piece, _data(piece), {}, right=True, accepted=False)
    assert chain.terms.remarks == () and chain.terms.verifier is found.verifier and len(_open(made)) == 1


def test_a_model_before_that_is_not_right_is_no_original(made: list[_Verifier]) -> None:
    chain = _chain()
    wider = _model("n = Sin(x) y = Exp(n)")
    chain.adopt(wider, _data(wider), {}, right=False, accepted=False)
    piece = _model("y = Exp(n)", ports="float[2] n")
    found = chain.comparable(piece, {})
    assert found.remarks == () and found.problem(piece) is not None
    # Nothing was committed yet.
    fresh = _chain()
    assert fresh.comparable(piece, {}).problem(piece) is not None and fresh.moves_baseline(piece, {})
    assert not fresh.moves_baseline(_model("y = Sin(x)"), {})


def test_what_neither_model_computes_has_the_problem_of_the_original(made: list[_Verifier]) -> None:
    chain = _chain()
    wider = _model("n = Sin(x) y = Exp(n)")
    chain.adopt(wider, _data(wider), {}, right=True, accepted=False)
    unknown = _model("y = Exp(q)", ports="float[2] q")
    found = chain.comparable(unknown, {})
    problem = found.problem(unknown)
    assert problem is not None and "input 'q' is new" in problem.message and found.remarks == ()
    chain.close()
    assert _open(made) == []


def test_accounts_that_the_original_cannot_take(made: list[_Verifier]) -> None:
    chain = _chain(_model(opset=17))
    newer = _model("y = Sin(x)")
    other = _model("o = Neg(i)", "float[2] i", "float[2] o")
    joined = (Joined(_data(other), {"i": "y"}, "p_"),)
    both = _model("y = Sin(x) p_o = Neg(y)", outputs="float[2] y, float[2] p_o")
    with pytest.raises(PassError, match=r"cannot be compared: one imports ai\.onnx 17"):
        chain.comparable(both, {}, joined)
    assert chain.moves_baseline(both, {}, joined)
    chain.adopt(newer, _data(newer), {}, right=True, accepted=False)
    found = chain.comparable(both, {}, joined)
    assert "one imports ai.onnx 17" in found.remarks[0] and ("p_o", "p_o") in found.match.outputs
    # The same account of the same model has the same terms, and an equal one other terms.
    assert chain.comparable(both, {}, joined) is found
    assert chain.comparable(both, {}, (Joined(_data(other), {"i": "y"}, "p_"),)) is not found


def test_a_relation_makes_terms_of_its_own(made: list[_Verifier]) -> None:
    chain = _chain()
    relation = (Relation("output", "y", "y = Neg(y)"),)
    found = chain.comparable(_model(), {}, relation)
    assert found is not chain.terms and len(found.settled.wraps) == 1
    assert found.hint(_model(opset=17)).startswith("the relations of this step are in ai.onnx 17, and the original")
    assert found.hint(_model()) == "" == chain.terms.hint(_model(opset=17))
    chain.adopt(_model(), _data(_model()), {}, relation, right=True, accepted=True)
    assert chain.terms.settled.wraps == [] and chain.terms.accepted is not None
    assert [node.op_type for node in onnx.load_model_from_string(chain.terms.reference).graph.node][-1] == "Neg"
    # A model that was accepted before is seen in the same way.
    again = chain.comparable(_model(), {}, (Relation("output", "y", "y = Abs(y)"),))
    assert made[-1].accepted == [again.accepted] and again.accepted is not None
    assert [node.op_type for node in onnx.load_model_from_string(again.accepted).graph.node][-1] == "Abs"


def _number(made: list[Any], terms: SignatureView) -> int:
    return made.index(terms.verifier)


NAMED = _model("b = Exp(x)", outputs="float[2] b")
NAMES = {"y": "b"}


def test_terms_that_are_not_adopted_are_given_up(made: list[_Verifier]) -> None:
    chain = _chain()
    fewer, same = _model("y = Exp(x)", "float[1] x", "float[1] y"), _model("y = Exp(x)")
    assert chain.comparable(fewer, {}) is not chain.terms and len(made) == 2
    chain.adopt(same, _data(same), {}, right=True, accepted=False)
    assert _open(made) == [0]
    # Also those in which a model is the original itself, which are made once.
    first = chain.fresh_terms(same, b"one")
    assert chain.fresh_terms(same, b"one") is first and _open(made) == [0, 2]
    assert chain.fresh_terms(same, b"two") is not first and _open(made) == [0, 3]
    chain.close()
    assert _open(made) == []


def test_a_lossy_model_with_other_names(made: list[_Verifier]) -> None:
    chain = _chain(_model("a = Neg(x) y = Abs(a) z = Exp(x)", outputs="float[2] y, float[2] z"))
    chain.adopt(NAMED, _data(NAMED), NAMES, right=True, accepted=False, lossy=True)
    accurate = chain.accurate
    # The terms that were made for the comparison are those of accuracy from now on.
    assert accurate is not None and accurate.match.outputs == (("y", "b"),) and _open(made) == [1, 2]
    assert [_number(made, terms) for terms in (accurate, chain.terms)] == [1, 2]
    relation = (Relation("output", "b", "b = Neg(b)"),)
    assert chain.accurate_terms(NAMED, {}) is accurate is not chain.accurate_terms(NAMED, {}, relation)
    # What was prepared for the next one is used.
    chain.fresh_terms(NAMED, b"next")
    count = len(made)
    chain.adopt(NAMED, b"next", {}, right=True, accepted=False, lossy=True)
    assert len(made) == count and chain.terms.reference == b"next"
    chain.close()
    assert not made[1].is_open and not made[_number(made, chain.terms)].is_open


def test_the_committed_model_under_the_names_of_the_original(made: list[_Verifier]) -> None:
    chain = _chain()
    chain.adopt(NAMED, _data(NAMED), NAMES, right=True, accepted=False)
    found = chain.aligned()
    assert chain.aligned() is found and onnx.load_model_from_string(found).graph.node[0].output[0] == "y"
    other = _model("b = Log(x)", outputs="float[2] b")
    chain.adopt(other, _data(other), {}, right=True, accepted=False)
    assert onnx.load_model_from_string(chain.aligned()).graph.node[0].op_type == "Log"
    # The same model in other terms.
    chain.adopt(other, _data(other), {}, (Relation("output", "b", "b = Neg(b)"),), right=True, accepted=False)
    (name,) = (mine for mine, _ in chain.terms.match.outputs)
    assert onnx.load_model_from_string(chain.aligned()).graph.output[0].name == name == "b"


def test_both_models_have_the_names_of_the_one_they_are_compared_with(made: list[_Verifier]) -> None:
    first = _model("a = Neg(x) y = Abs(a) c = Exp(x)", outputs="float[2] y, float[2] c")
    chain = _chain(first)
    wider = _model("n = Sin(x) b = Exp(n) c = Neg(n)", outputs="float[2] b, float[2] c")
    _, before, after = chain.compared(first, wider, NAMES)
    assert [model.graph.output[0].name for model in (before, after)] == ["y", "y"]
    chain.adopt(wider, _data(wider), NAMES, right=True, accepted=False)
    piece = _model("b = Log(n)", "float[2] n", "float[2] b")
    _, before, after = chain.compared(wider, piece, {})
    assert [model.graph.output[0].name for model in (before, after)] == ["b", "b"]
    assert [node.output[0] for node in before.graph.node] == ["n", "b"]
    # The terms that were tried before are given up.
    assert _number(made, chain.comparable(piece, {})) == len(made) - 1 and _open(made) == [0, len(made) - 1]
    # What relations put around the original is around the committed model, too.
    _, before, _ = chain.compared(wider, wider, {}, (Relation("output", "b", "b = Neg(b)"),))
    assert [node.op_type for node in before.graph.node] == ["Sin", "Exp", "Neg", "Neg"]


def test_a_model_that_is_compared_with_neither_has_the_terms_of_the_one_before(made: list[_Verifier]) -> None:
    chain = _chain(_model(opset=17))
    newer, other = _model("y = Sin(x)"), _model("o = Neg(i)", "float[2] i", "float[2] o")
    chain.adopt(newer, _data(newer), {}, right=True, accepted=False)
    both = _model("y = Sin(q) p_o = Neg(y)", "float[2] q", "float[2] y, float[2] p_o")
    found = chain.comparable(both, {}, (Joined(_data(other), {"i": "y"}, "p_"),))
    assert found.problem(both) is not None and found.remarks[0].startswith("compared with the model before this step")
