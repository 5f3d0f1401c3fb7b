"""What is made of the answers of tools, which are scripted here; and what a tool is asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from surgery.base.errors import PassError, WorkerError
from surgery.base.workers import OUT_OF_MEMORY
from surgery.engine.bridges import except_selectors, installed_tools, run_tool, tool_calls
from surgery.engine.bridges.except_selectors import Kept, NothingExceptedError, excepted_nodes, left_alone
from surgery.engine.bridges.installed_tools import _known, optimizer_passes
from surgery.engine.bridges.nodes_before import NodesBefore
from surgery.engine.bridges.run_tool import _Needs, _needs
from surgery.engine.bridges.tool_packing import FOLDING
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import EXCEPTED, Graph
from surgery.model.graph.state import Refused, Site, WorkerLimits
from surgery.model.proto import lineage

HEAD = '<ir_version: 8, opset_import: ["": 18]> g (float[N] x) => (float[N] y)'
BODY = "{ [one] a = Identity(x) [two] b = Relu(a) [three] y = Neg(b) }"
LESS = "{ [two] b = Relu(x) [three] y = Neg(b) }"


def graph_of(body: str = BODY, skip: frozenset[int] = frozenset()) -> Graph:
    stored = storage.from_proto(text.parse(HEAD + body))
    graph = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)
    graph.begin("tool", skip)
    return graph


class Tool:
    """A tool that returns a scripted model and sites."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, body: str = LESS, sites: Any = None) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answer = {"model": text.parse(HEAD + body).SerializeToString()}
        self.answer |= {} if sites is None else {"sites": sites}
        monkeypatch.setattr(run_tool, "_call", self.call)

    def call(self, limits: Any, tool: str, model: bytes, options: dict[str, Any]) -> Any:
        self.asked.append((tool, options))
        return self.answer


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes()]


def test_a_tool_is_one_site(monkeypatch: pytest.MonkeyPatch) -> None:
    tool, graph = Tool(monkeypatch), graph_of()
    run_tool.run_tool(graph, "ort", level="basic")
    assert ops(graph) == ["Relu", "Neg"] and tool.asked == [("ort", {"level": "basic"})]
    assert graph.sites == [Site(1, "ort", ("one",), ())] and graph.refusals == []
    graph = graph_of(skip=frozenset({1}))
    run_tool.run_tool(graph, "ort", level="basic")
    assert graph.sites == [Site(1, "ort", (), (), skipped=True)] and len(tool.asked) == 1
    graph = graph_of(skip=frozenset({2}))
    run_tool.run_tool(graph, "ort", level="basic")
    assert ops(graph) == ["Relu", "Neg"] and len(tool.asked) == 2


def test_the_steps_of_a_tool_are_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = [["first", False, ["one"], []], ["second", True, ["two"], ["new"]]]
    tool, graph = Tool(monkeypatch, sites=sites), graph_of(skip=frozenset({1, 2, 4095, 4096}))
    run_tool.run_tool(graph, "onnxoptimizer", passes=None)
    assert [(name, sorted(options["skip"])) for name, options in tool.asked] == [("onnxoptimizer", [1, 2, 4095])]
    first, second = Site(1, "first", ("one",), ()), Site(2, "second", ("two",), ("new",), skipped=True)
    assert graph.sites == [first, second] and ops(graph) == ["Relu", "Neg"]
    # Without an effect on the result, only those that were skipped are sites.
    Tool(monkeypatch, BODY, sites)
    graph = graph_of()
    run_tool.run_tool(graph, "onnxoptimizer", passes=None)
    assert graph.sites == [second] and ops(graph) == ["Identity", "Relu", "Neg"]
    Tool(monkeypatch, BODY)
    graph = graph_of()
    run_tool.run_tool(graph, "ort", level="basic")
    assert graph.sites == []


def test_a_result_without_an_excepted_node_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kept in (("one", False), ("two", True)):
        Tool(monkeypatch)
        graph = graph_of()
        graph.excepted = excepted_nodes([name], graph)
        run_tool.run_tool(graph, "ort", level="basic")
        assert (ops(graph) == ["Relu", "Neg"]) is kept and len(graph.sites) == kept
        assert [one.reason for one in graph.refusals] == (
            [] if kept else [f"{EXCEPTED}one'; this pass changes the model as a whole, so it cannot leave nodes alone"]
        )


@pytest.mark.parametrize(
    ("tool", "needs"),
    [
        ("ort", _Needs()),
        (
            "onnxsim",
            _Needs(False, frozenset({"Conv", "ConvTranspose", "BatchNormalization", "MatMul", "Gemm", FOLDING})),
        ),
        ("onnxoptimizer", _Needs(False, frozenset({"Conv", "ConvTranspose", "BatchNormalization", "MatMul"}), True)),
    ],
)
def test_what_tools_need(tool: str, needs: _Needs) -> None:
    assert _needs(tool) == needs


def test_whether_the_version_converter_follows_references(monkeypatch: pytest.MonkeyPatch) -> None:
    for keeps in (True, False):
        monkeypatch.setattr(run_tool, "converter_keeps_references", lambda keeps=keeps: keeps)
        assert _needs("onnx-version-converter") == _Needs(references=keeps)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (WorkerError("ort crashed with SIGSEGV", stage="ort", signal="SIGSEGV"), "ort crashed with SIGSEGV"),
        (WorkerError("it took more than 1 s", stage="onnxsim"), "ort: it took more than 1 s"),
        (WorkerError("gone", stage="ort's basic", signal=OUT_OF_MEMORY), "ort's basic ran out of memory"),
        (WorkerError("gone", stage="start", signal=OUT_OF_MEMORY), "ort: start ran out of memory"),
    ],
)
def test_a_tool_that_ends_its_worker(monkeypatch: pytest.MonkeyPatch, error: WorkerError, message: str) -> None:
    made: list[Any] = []

    class Failing:
        def __init__(self, **limits: Any) -> None:
            made.append(limits)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def call(self, *_: Any, **__: Any) -> Any:
            raise error

    monkeypatch.setattr(run_tool, "Worker", Failing)
    with pytest.raises(PassError) as caught:
        run_tool._call(WorkerLimits(3.0, 4), "ort", b"", {})
    assert caught.value.what == message and made == [{"timeout": 3.0, "memory": 4}]


# Calls


def test_the_passes_of_onnxoptimizer_run_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    removed = {"first": "a", "second": "b", "nothing": "", "third": "c"}

    def optimize(model: onnx.ModelProto, passes: list[str]) -> onnx.ModelProto:
        made = onnx.ModelProto()
        made.CopyFrom(model)
        kept = [node for node in made.graph.node if node.output[0] != removed.get(passes[0])]
        del made.graph.node[:]
        made.graph.node.extend(kept)
        return made

    fake = SimpleNamespace(
        optimize=optimize,
        get_available_passes=lambda: ["second", "first"],
        get_fuse_and_elimination_passes=lambda: ("first", "nothing", "third"),
    )
    monkeypatch.setitem(__import__("sys").modules, "onnxoptimizer", fake)
    model = text.parse(HEAD + "{ a = Neg(x) [named] b = Abs(x) c = Add(x, x) y = Exp(x) }").SerializeToString()
    assert tool_calls.optimizer_passes() == {"all": ["first", "second"], "default": ["first", "nothing", "third"]}
    options: dict[str, Any] = {"passes": ["first", "nothing", "second", "third"], "skip": [2]}
    found = tool_calls.call("onnxoptimizer", model, options)
    assert found["sites"] == [
        ["first", False, ["Neg -> a"], []],
        ["second", True, ["named"], []],
        ["third", False, ["Add -> c"], []],
    ]
    assert [node.op_type for node in onnx.load_model_from_string(found["model"]).graph.node] == ["Abs", "Exp"]
    found = tool_calls.call("onnxoptimizer", model, {"passes": None, "skip": []})
    assert [site[0] for site in found["sites"]] == ["first", "third"]


@pytest.mark.parametrize(
    ("node", "held"),
    [
        (helper.make_node("Constant", [], ["c"], value_ints=[1, 2]), np.int64([1, 2])),
        (helper.make_node("Constant", [], ["c"], value_floats=[1.5]), np.float32([1.5])),
        (helper.make_node("Constant", [], ["c"], value_int=1), None),
        (helper.make_node("Constant", [], ["c"], value_strings=["a"]), None),
        (helper.make_node("Constant", [], ["c"], value_ints=[1], extra=2), None),
        (helper.make_node("Other", [], ["c"], value_ints=[1, 2]), None),
        (helper.make_node("Constant", [], ["c"]), None),
    ],
)
def test_lists_of_constants_are_held_in_tensors(node: onnx.NodeProto, held: Any) -> None:
    made = onnx.NodeProto()
    made.CopyFrom(node)
    tool_calls._hold_in_tensor(made)
    if held is None:
        assert made == node
        return
    (attribute,) = made.attribute
    found = numpy_helper.to_array(attribute.t)
    assert attribute.name == "value" and found.dtype == held.dtype and found.tolist() == held.tolist()
    # An attribute of a function has its value from the call.
    made.CopyFrom(node)
    made.attribute[0].ref_attr_name = "given"
    tool_calls._hold_in_tensor(made)
    assert made.attribute[0].name == node.attribute[0].name


def test_the_passes_of_the_installed_onnxoptimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Listing:
        def __init__(self, timeout: float) -> None:
            assert timeout == 60

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def call(self, function: str) -> Any:
            if errors:
                raise errors[0]
            return {"all": ["one", "two"]}

    errors: list[WorkerError] = []
    monkeypatch.setattr(installed_tools, "Worker", Listing)
    for installed, failing, found in (
        (True, [], ("one", "two")),
        (False, [], ()),
        (True, [WorkerError("it cannot be imported", stage="import")], ()),
    ):
        errors[:] = failing
        monkeypatch.setattr(installed_tools.discovery, "is_installed", lambda name, installed=installed: installed)
        optimizer_passes.cache_clear()
        assert optimizer_passes() == found
        assert _known("one") == "one"
    optimizer_passes.cache_clear()
    assert _known("other") == "other"
    errors.clear()
    optimizer_passes.cache_clear()
    with pytest.raises(ValueError, match=r"has no pass 'onne'; did you mean 'one'\?"):
        _known("onne")
    optimizer_passes.cache_clear()


# Nodes before and after


def test_the_lineage_of_nodes_that_replace_others() -> None:
    graph = graph_of("{ [one] a = Exp(x) [two] b = Relu(a) c = Constant<value_float = 1.0>() [three] y = Mul(b, c) }")
    before = NodesBefore(graph)
    other = text.parse(HEAD + "{ [one] a = Exp(x) [new] y = Selu(a) [more] z = Neg(y) }")
    graph.adopt(ir.from_proto(other))
    site = before.account(graph)
    assert (site.removed, site.added) == (("two", "Constant -> c", "three"), ("new", "more"))
    found = {node.name: lineage.read(node.ir.metadata_props) for node in graph.nodes()}
    assert found["one"] is None and found["new"] is not None
    assert found["new"].origins == ("three", "two") and found["more"].origins == ()


# Excepted nodes


def test_selectors_of_excepted_nodes() -> None:
    graph, original = graph_of(LESS), storage.from_proto(text.parse(HEAD + BODY))
    found = excepted_nodes(["two", "three"], graph)
    assert {node.name: reason for node, reason in found.items()} == {"two": EXCEPTED, "three": EXCEPTED}
    # What earlier steps removed may be named, and anything where the original is not given.
    assert excepted_nodes(["one"], graph, original) == {} == excepted_nodes(["none"], graph)
    with pytest.raises(NothingExceptedError, match=r"^'except' selects nothing: "):
        excepted_nodes(["one", "none"], graph, original)


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        ([], ""),
        ([("a", "another reason")], ""),
        ([("a", f"{EXCEPTED}n'")], "1 match site touches what 'except' leaves alone: 'n'"),
        (
            [("a", f"{EXCEPTED}n'"), ("b", f"{EXCEPTED}m'"), ("c", "more")],
            "2 match sites touch what 'except' leaves alone: 'n', 'm'",
        ),
        ([("a", f"{EXCEPTED}n'"), ("a", f"{EXCEPTED}n'")], "1 match site touches what 'except' leaves alone: 'n'"),
        ([("", f"{EXCEPTED}n'; as a whole")], f"nothing was changed: {EXCEPTED}n'; as a whole"),
    ],
)
def test_what_was_left_alone(refused: list[tuple[str, str]], words: str) -> None:
    assert left_alone([Refused(anchor, reason) for anchor, reason in refused]) == words


@pytest.mark.parametrize(
    ("after", "lost"),
    [
        ("{ [n] a = Softmax<axis = 1>(x) y = Add(a, w) }", False),
        ("{ b = Neg(x) [n] a = Softmax<axis = 1>(b) y = Add(a, w) }", False),
        ("{ [n] a = Softmax<axis = 0>(x) y = Add(a, w) }", True),
        ("{ [n] a = Neg(x) y = Add(a, w) }", True),
        ("{ [other] a = Softmax<axis = 1>(x) y = Add(a, w) }", True),
        ("{ [n] a = Softmax<axis = 1>(x) y = Sub(a, w) }", True),
        ("{ [n] a = Softmax<axis = 1>(x) v = Neg(w) y = Add(a, v) }", True),
        ("{ [n] a = Softmax<axis = 1>(x) b = Add(a, w) y = Neg(b) }", True),
    ],
)
def test_excepted_nodes_that_another_model_lacks(after: str, lost: bool) -> None:
    def graph_with(body: str, weight: float = 2.0) -> Graph:
        return Graph(ir.from_proto(text.parse(f"{HEAD} <float[1] w = {{{weight}}}> {body}")))

    graph = graph_with("{ [n] a = Softmax<axis = 1>(x) y = Add(a, w) }")
    assert Kept(graph).lost(graph_with(after).ir) == ""
    graph.excepted = dict.fromkeys((node.ir for node in graph.nodes()), EXCEPTED)
    assert bool(Kept(graph).lost(graph_with(after).ir)) is lost
    # The constants that it reads belong to it.
    assert Kept(graph).lost(graph_with("{ [n] a = Softmax<axis = 1>(x) y = Add(a, w) }", 3.0).ir).startswith(EXCEPTED)
    assert except_selectors._content(None) is None
