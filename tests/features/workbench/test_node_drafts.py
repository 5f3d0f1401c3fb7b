"""Drafts of nodes as text: each is a step that keeps the results as long as nobody edits it."""

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

import surgery
from surgery.base.errors import UsageError
from surgery.model.graph import text

MODEL = """g (float[1, 2, 4, 4] x, bool c) => (float[1, 2, 4, 4] y)
<float[2, 2, 1, 1] w = {1, 2, 3, 4}, float low = {0}> {
    [conv] a = Conv<kernel_shape = [1, 1], auto_pad = "SAME_UPPER">(x, w)
    [leaky] b = LeakyRelu<alpha = 0.1>(a)
    [clip] d = Clip(b, , low)
    [sum] s = Add(b, d)
    [if] y = If (c) <
        then_branch = p () => (float[1, 2, 4, 4] u) { u = Neg(s) },
        else_branch = q () => (float[1, 2, 4, 4] v) { v = Exp(s) }
    >
}"""


@pytest.fixture
def session() -> Any:
    with surgery.Session.open(text.parse(MODEL)) as session:
        yield session


def drafted(session: surgery.Session, place: str, *names: str) -> dict[str, Any]:
    return session.queries.draft(session.snapshot, names, place)


def test_a_draft_after_a_tensor_reads_and_replaces_it(session: Any) -> None:
    assert drafted(session, "after", "b") == {"text": "b = Identity(b)"}
    assert drafted(session, "after", "conv", "sum") == {"text": "a = Identity(a)\ns = Identity(s)"}
    offer = {one.name: one for one in session.offers(["b"])}["insert-nodes"]
    assert offer.step == {"insert-nodes": {"text": "b = Identity(b)"}}


def test_a_draft_before_nodes_is_for_these_only(session: Any) -> None:
    assert drafted(session, "before", "sum") == {"text": "b = Identity(b)", "nodes": "sum"}
    assert drafted(session, "before", "clip", "sum") == {"text": "b = Identity(b)", "nodes": ["clip", "sum"]}


def test_a_draft_in_place_of_nodes_has_their_attributes_and_inputs(session: Any) -> None:
    assert drafted(session, "instead", "conv", "leaky", "clip")["text"].split("\n") == [
        'a = Conv<kernel_shape = [1, 1], auto_pad = "SAME_UPPER">(x, w)',
        "b = LeakyRelu<alpha = 0.1>(a)",
        "d = Clip(b, , low)",
    ]


@pytest.mark.parametrize(
    "place, names", [("after", ["b"]), ("before", ["sum"]), ("instead", ["conv", "leaky", "clip"])]
)
def test_a_draft_as_it_is_changes_no_result(session: Any, place: str, names: list[str]) -> None:
    options = drafted(session, place, *names)
    change = session.add({"insert-nodes": {**options, "keeps": "exact"}})
    assert change.ok and change.steps[-1].verdict.status == "equal"


def test_awkward_names_get_short_ones() -> None:
    nodes = [
        helper.make_node("Relu", ["in:0"], ["/layer.1/Out put/0"], name="one"),
        helper.make_node("Neg", ["/layer.1/Out put/0"], ["/layer.2/0"], name="two"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("in:0", "/layer.2/0")]
    model = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:]), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    onnx.checker.check_model(model)
    with surgery.Session.open(model) as session:
        options = drafted(session, "instead", "one", "two")
        assert options["text"] == "t_0 = Relu(t_0_2)\nt_0_3 = Neg(t_0)"
        assert options["names"] == {"t_0": "/layer.1/Out put/0", "t_0_2": "in:0", "t_0_3": "/layer.2/0"}
        assert session.add({"insert-nodes": {**options, "keeps": "exact"}}).ok


def test_what_has_no_draft_is_said(session: Any) -> None:
    with pytest.raises(UsageError, match="'if' has a subgraph, which cannot be written here"):
        drafted(session, "instead", "if")
    with pytest.raises(UsageError, match="there is no place 'below'"):
        drafted(session, "below", "if")
    with pytest.raises(UsageError, match="no node and no tensor 'nowhere'"):
        drafted(session, "after", "nowhere")


def test_a_draft_is_for_a_few_nodes() -> None:
    nodes = "\n".join(f"[n{k}] v{k + 1} = Neg(v{k})" for k in range(13))
    with surgery.Session.open(text.parse(f"g (float[2] v0) => (float[2] v13) {{ {nodes} }}")) as session:
        assert drafted(session, "instead", *(f"n{k}" for k in range(12)))
        with pytest.raises(UsageError, match="more than 12 are selected"):
            drafted(session, "instead", *(f"n{k}" for k in range(13)))
