"""The drawing document: groups, ports, details, geometry, of models of all kinds."""

from __future__ import annotations

import base64
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper, parser

from surgery import diff
from surgery.engine import recipe
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.run_options import RunOptions
from surgery.interface.drawing import History, document

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


class Drawing:
    """A document, with texts in place of their numbers."""

    def __init__(self, history: History) -> None:
        self.document = document(history)
        assert json.loads(json.dumps(self.document, allow_nan=False)) == self.document
        self.strings = self.document["strings"]
        self.check()

    def texts(self, table: str, column: str) -> list[str]:
        return [self.strings[number] for number in self.document[table][column]]

    @property
    def ops(self) -> list[str]:
        return self.texts("nodes", "op")

    def row(self, name: str) -> int:
        return self.texts("nodes", "name").index(name)

    def group_path(self, row: int) -> list[str]:
        names, found = self.texts("groups", "name"), []
        group = self.document["nodes"]["group"][row]
        while group != -1:
            found.append(names[group])
            group = self.document["groups"]["parent"][group]
        return found[::-1]

    def detail(self, name: str) -> dict[str, Any]:
        found = self.document["details"][self.row(name)] or {}
        keys = ("doc", "source", "rule", "was", "fate")
        return {key: self.strings[value] if key in keys else value for key, value in found.items()}

    def check(self) -> None:
        """Check what holds of every document."""
        whole = self.document
        assert self.strings[0] == ""
        assert len(set(self.strings)) == len(self.strings)
        for table in ("nodes", "edges", "groups", "ports", "altered", "links", "changes", "routes"):
            assert len({len(column) for column in whole[table].values()}) == 1, table
        rows, groups, states = len(whole["nodes"]["op"]), len(whole["groups"]["name"]), len(whole["states"])
        assert len(whole["details"]) == rows
        assert all(-1 <= parent < groups for parent in whole["groups"]["parent"])
        assert all(-1 <= group < groups for group in whole["nodes"]["group"])
        for table in ("nodes", "edges", "ports"):
            for born, died in zip(whole[table]["born"], whole[table]["died"], strict=True):
                assert 0 <= born < states and (died == -1 or born < died < states)
        for a, b in zip(whole["edges"]["from"], whole["edges"]["to"], strict=True):
            assert 0 <= a < rows and 0 <= b < rows
        self._check_names()
        self._check_places()

    def _check_names(self) -> None:
        names = Counter(zip(self.document["groups"]["parent"], self.texts("groups", "name"), strict=True))
        assert set(names.values()) <= {1}
        assert all(self.texts("groups", "name"))
        assert all(self.texts("nodes", "name"))

    def _check_places(self) -> None:
        """No two boxes of a room have one place, but for the instances of a repeat."""
        nodes, groups = self.document["nodes"], self.document["groups"]
        places = Counter(zip(nodes["group"], nodes["layer"], nodes["order"], strict=True))
        places.update(zip(groups["parent"], groups["layer"], groups["order"], strict=True))
        assert set(places.values()) <= {1}
        for table in (nodes, groups):
            assert min([*table["x"], *table["layer"], *table["order"]], default=0) >= 0


def drawn(text: str) -> Drawing:
    """Return the drawing of a model; in names of nodes, a double underscore stands for a slash."""
    model = parser.parse_model(text)
    for node in model.graph.node:
        node.name = node.name.replace("__", "/")
    return Drawing(History.of(model))


def test_an_empty_graph_has_a_drawing() -> None:
    graph = helper.make_graph([], "empty", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [])], [])
    drawing = Drawing(History.of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)))
    assert drawing.ops == ["Input"]
    assert drawing.texts("ports", "type") == ["float"]
    assert drawing.document["states"] == [
        {"label": "original", "pass": None, "nodes": 0, "ir_version": 8, "opsets": {"": 17}}
    ]


def test_an_input_that_is_an_output_is_an_edge_between_ports() -> None:
    drawing = drawn('<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] x) {}')
    assert drawing.ops == ["Input", "Output"]
    assert (drawing.document["edges"]["from"], drawing.document["edges"]["to"]) == ([0], [1])
    assert drawing.texts("ports", "type") == ["float[2]", "float[2]"]
    assert drawing.document["states"][0]["nodes"] == 0


def test_types_attributes_constants_and_costs_are_reported() -> None:
    drawing = drawn(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[batch, 4] x) => (float[batch, 3] y) <float[3] b = {1, 2, 3}> {
            w = Constant <value = float[4, 3] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> ()
            [linear] h = Gemm <alpha = 0.5> (x, w, b)
            [softmax] y = Softmax <axis = -1> (h)
        }"""
    )
    detail = drawing.detail("linear")
    assert detail["attributes"] == {"alpha": "0.5"}
    assert [drawing.strings[kind] for _, kind, _ in detail["inputs"]] == ["float[batch,4]", "float[4,3]", "float[3]"]
    bias = detail["inputs"][2][2]
    packed = TensorProto.FromString(base64.b64decode(bias.pop("packed")))
    assert bias == {"dims": [3], "type": "float", "bytes": 12, "values": [1.0, 2.0, 3.0]}
    assert numpy_helper.to_array(packed).tolist() == bias["values"] and not packed.name
    attributes = NodeProto.FromString(base64.b64decode(drawing.strings[detail["packed"]])).attribute
    assert [helper.get_node_attr_value(NodeProto(attribute=attributes), "alpha")] == [0.5]
    assert "partial" not in detail
    assert detail["inputs"][1][2]["values"] == [*range(1, 13)]
    assert detail["macs"] == "12*batch"
    assert drawing.texts("edges", "type") == ["float[batch,4]", "float[4,3]", "float[batch,3]", "float[batch,3]"]


def test_the_needed_tolerance_of_a_step_is_shown_at_its_new_nodes() -> None:
    history = History()
    runner.apply(ROOT / "models" / "resnet-tiny.onnx", recipe.load("default"), options=RunOptions(history=history))
    drawing = Drawing(history)
    (state,) = [one for one in drawing.document["states"] if one["label"] == "fuse-conv-bn"]
    details, born = drawing.document["details"], drawing.document["nodes"]["born"]
    told = {op: details[row].get("error") for row, op in enumerate(drawing.ops) if op in ("Conv", "Relu") and born[row]}
    assert told == {"Conv": {"needed": state["needed"], "where": drawing.strings.index("fuse-conv-bn")}}
    assert all("error" not in (details[row] or {}) for row, state in enumerate(born) if state == 0)


def test_at_most_sixteen_elements_of_a_constant_are_written() -> None:
    drawing = drawn(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[17] x) => (float[17] z) <float[17] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17}> {
            z = Add (x, w)
        }"""
    )
    assert drawing.detail("Add -> z")["inputs"][1][2] == {"dims": [17], "type": "float", "bytes": 68}


def test_numbers_that_json_lacks_are_texts() -> None:
    values = helper.make_tensor("w", TensorProto.FLOAT, [3], [float("-inf"), float("nan"), 1.0])
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Max", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [values])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    drawing = Drawing(History.of(model))
    assert drawing.detail("Max -> y")["inputs"][1][2]["values"] == ["-inf", "nan", 1.0]


def test_subgraphs_are_groups_with_ports_and_captured_values_are_edges() -> None:
    drawing = drawn(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (bool c, float[2] x) => (float[2] z) {
            [root] y = Relu (x)
            [choice] z = If (c) <
                then_branch = t () => (float[2] a) { [inner] a = Neg (y) },
                else_branch = e () => (float[2] b) { b = Abs (y) }
            >
        }"""
    )
    kinds = list(zip(drawing.texts("groups", "kind"), drawing.texts("groups", "name"), strict=True))
    assert sorted(kinds) == [("subgraph", "choice.else_branch"), ("subgraph", "choice.then_branch")]
    assert drawing.document["groups"]["owner"] == [drawing.row("choice")] * 2
    assert drawing.group_path(drawing.row("inner")) == ["choice.then_branch"]
    edges = set(zip(drawing.document["edges"]["from"], drawing.document["edges"]["to"], strict=True))
    assert (drawing.row("root"), drawing.row("inner")) in edges
    assert Counter(drawing.ops)["Output"] == 3
    assert drawing.document["states"][0]["nodes"] == 4
    # What a branch computes is above the node that it belongs to.
    layers = drawing.document["groups"]["layer"]
    assert max(layers) < drawing.document["nodes"]["layer"][drawing.row("choice")]


def test_functions_are_groups_of_their_own() -> None:
    drawing = drawn(
        """<ir_version: 9, opset_import: ["" : 17, "local" : 1]>
        g (float[2] x) => (float[2] z) { [call] z = local.twice (x) }
        <opset_import: ["" : 17], domain: "local"> twice (a) => (b) { [sum] b = Add (a, a) }"""
    )
    assert drawing.group_path(drawing.row("sum")) == ["local::twice"]
    assert drawing.texts("groups", "kind") == ["function"]
    assert drawing.document["groups"]["owner"] == [-1]
    assert drawing.group_path(drawing.row("a")) == ["local::twice"]
    assert drawing.group_path(drawing.row("call")) == []


def test_groups_follow_the_scopes_in_names_and_chains_of_them_are_joined() -> None:
    body = "".join(
        f"[__m__enc__layer_{n}__att__MatMul] a{n} = Relu (v{n}) [__m__enc__layer_{n}__att__Add] b{n} = Neg (a{n})"
        f"[__m__enc__layer_{n}__Gelu] v{n + 1} = Tanh (b{n})"
        for n in range(12)
    )
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[2] v0) => (float[2] v12) {{ {body} }}'
    drawing = drawn(text)
    assert drawing.group_path(drawing.row("/m/enc/layer_3/att/Add")) == ["m/enc", "layer_0-11", "layer_3", "att"]
    groups = drawing.document["groups"]
    repeat = drawing.texts("groups", "kind").index("repeat")
    assert groups["count"][repeat] == 12
    instances = [groups["instance"][n] for n, parent in enumerate(groups["parent"]) if parent == repeat]
    assert sorted(instances) == [*range(12)]


def test_groups_that_differ_in_name_are_not_a_repeat() -> None:
    body = "".join(
        f"[__{name}__A] a_{name} = Relu (x) [__{name}__B] b_{name} = Neg (a_{name})"
        for name in ("query", "key", "value")
    )
    drawing = drawn(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) {{ {body}
        y = Sum (b_query, b_key, b_value) }}"""
    )
    assert drawing.texts("groups", "kind") == ["scope"] * 3


def test_a_repeat_can_share_a_name_with_another_group() -> None:
    nodes, ports = [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    for number, scope in enumerate(("l0", "l1", "l2", "l0-2")):
        last = "Tanh" if number == 3 else "Abs"
        for part, (op, read) in enumerate((("Relu", "x"), ("Neg", f"v{number}0"), (last, f"v{number}1"))):
            nodes.append(helper.make_node(op, [read], [f"v{number}{part}"], name=f"/{scope}/{op}"))
    nodes.append(helper.make_node("Sum", ["v02", "v12", "v22", "v32"], ["y"], name="/Sum"))
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    drawing = Drawing(History.of(model))
    found = dict(zip(drawing.texts("groups", "name"), drawing.texts("groups", "kind"), strict=True))
    assert {found["l0-2"], found["l0-2 (2)"]} == {"scope", "repeat"}


def test_an_unknown_node_is_placed_at_its_readers() -> None:
    drawing = drawn(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] z) {
            one = Constant <value_float = 1.0> ()
            [__a__b__Add] y = Add (x, one)
            [__a__b__Mul] w = Mul (y, one)
            [__a__c__Neg] v = Neg (w)
            [__a__c__Abs] z = Abs (v)
        }"""
    )
    assert drawing.group_path(drawing.row("Constant -> one")) == ["a", "b"]


HOSTILE = [
    "<script>alert(1)</script>",
    "\x1b[31mred",
    "\u202eabc",
    "a" * 10_000,
    "/" * 5_000,
    "/x" * 3_000,
    "../../etc/passwd",
    "__proto__",
    " ",
    "'; DROP TABLE nodes; --",
]


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name[:12]))
def test_any_node_name_is_kept_unchanged(name: str) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], [f"{name}1"], name=name),
        helper.make_node("Neg", [f"{name}1"], [f"{name}2"], name=f"{name}/b", doc_string=name),
        helper.make_node("Odd", [f"{name}2"], ["y"], domain=name, value=name),
    ]
    ports = [helper.make_tensor_value_info(port, TensorProto.FLOAT, [name]) for port in "xy"]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(name, 1)]
    drawing = Drawing(History.of(helper.make_model(graph, opset_imports=imports, ir_version=8)))
    names = drawing.texts("nodes", "name")
    assert {name, f"{name}/b"} <= set(names)
    assert drawing.detail(f"{name}/b")["doc"] == name
    depth = max(len(drawing.group_path(row)) for row in range(len(names)))
    assert depth <= 20


def test_nodes_with_missing_or_equal_names_are_all_drawn() -> None:
    drawing = drawn(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] z) { a = Relu (x) [n] b = Relu (a) [n] c = Relu (b) z = Neg (c) }"""
    )
    assert drawing.texts("nodes", "name") == ["x", "z", "Relu -> a", "n", "n", "Neg -> z"]


def test_modules_recorded_by_pytorch_are_groups() -> None:
    drawing = Drawing(History.of(ROOT / "models" / "bert-tiny.onnx"))
    row = next(row for row, op in enumerate(drawing.ops) if op == "Gelu" or op == "Erf")
    path = [part for part in drawing.group_path(row) if "-" not in part]
    assert path[:2] == ["model", "encoder"]
    assert path[-2:] == ["intermediate", "intermediate_act_fn"]
    source = drawing.strings[drawing.document["details"][row]["source"]]
    assert "activations.py" in source and "model.encoder.layer" in source


@pytest.mark.parametrize("path", sorted((ROOT / "models").glob("*.onnx")), ids=lambda path: path.stem)
def test_every_bundled_model_has_a_drawing(path: Path) -> None:
    drawing = Drawing(History.of(path))
    count = drawing.document["states"][0]["nodes"]
    assert count == sum(op not in ("Input", "Output") for op in drawing.ops) > 0


def test_weights_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from surgery.model.storage import Weights

    def refuse(*_: object) -> None:
        raise AssertionError("a weight was read")

    history = History.of(ROOT / "models" / "resnet-tiny.onnx")
    monkeypatch.setattr(Weights, "read", refuse)
    monkeypatch.setattr(Weights, "view", refuse)
    Drawing(history)


# Two models


def test_two_models_share_one_drawing_that_marks_differences() -> None:
    before = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] z) {
            [one] a = Relu (x) [gone] b = Identity (a) [two] c = LeakyRelu <alpha = 0.1> (b) [three] z = Neg (c)
        }"""
    )
    after = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] z) {
            [one] a = Relu (x) [two] c = LeakyRelu <alpha = 0.2> (a) [new] d = Abs (c) [three] z = Neg (d)
        }"""
    )
    drawing = Drawing(History.between(diff(before, after), before, after))
    nodes = drawing.document["nodes"]
    life = {name: (nodes["born"][row], nodes["died"][row]) for row, name in enumerate(drawing.texts("nodes", "name"))}
    assert life == {"x": (0, -1), "z": (0, -1), "one": (0, -1), "gone": (0, 1), "two": (0, -1), "three": (0, -1)} | {
        "new": (1, -1)
    }
    assert [drawing.row("two")] == drawing.document["altered"]["node"]
    assert "alpha" in drawing.texts("altered", "what")[0]
    assert drawing.detail("gone")["fate"].startswith("bypassed")
    told = {row for rows in drawing.document["changes"]["nodes"] for row in rows}
    assert {drawing.row(name) for name in ("gone", "two", "new")} <= told
    assert [state["label"] for state in drawing.document["states"]] == ["before", "after"]


def test_each_node_that_differs_between_two_exports_is_in_a_change() -> None:
    before, after = (ROOT / "models" / f"bert-tiny.{exporter}.onnx" for exporter in ("dy", "ts"))
    found = diff(before, after)
    drawing = Drawing(History.between(found, before, after))
    nodes = drawing.document["nodes"]
    differing = {
        row
        for row, (born, died) in enumerate(zip(nodes["born"], nodes["died"], strict=True))
        if (born, died) != (0, -1) and drawing.ops[row] not in ("Input", "Output")
    }
    differing.update(drawing.document["altered"]["node"])
    assert differing
    assert differing <= {row for rows in drawing.document["changes"]["nodes"] for row in rows}
    assert [state["nodes"] for state in drawing.document["states"]] == [981, 1143]


# Large models


def layers(count: int) -> onnx.ModelProto:
    """A network of alike layers of ten nodes, named by scopes, with skip connections."""
    nodes, value = [], "x"
    for number in range(count):
        scope, skip = f"/net/layer.{number}", value
        for part in range(9):
            made = f"v{number}_{part}"
            op = ("Relu", "Sigmoid", "Tanh")[part % 3]
            nodes.append(helper.make_node(op, [value], [made], name=f"{scope}/part.{part // 3}/{op}_{part}"))
            value = made
        nodes.append(helper.make_node("Add", [skip, value], [f"v{number}"], name=f"{scope}/Add"))
        value = f"v{number}"
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", value)]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def calls(work: Any) -> int:
    """Count the calls of functions, also of those in C, that some work makes."""
    counts = {"call": 0, "c_call": 0}

    def count(_: object, event: str, __: object) -> None:
        if event in counts:
            counts[event] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return sum(counts.values())


def test_work_grows_linearly_with_the_model() -> None:
    small, large = layers(50), layers(200)
    document(History.of(small))  # what is computed once only
    few, many = (calls(lambda model=model: document(History.of(model))) for model in (small, large))
    assert many < 4.6 * few


def test_a_large_model_is_traversed_once() -> None:
    history = History.of(layers(5_000))
    assert history.looked_at == 50_000 + 55_000 + 1
    assert len(history.rows.rows) == 50_002


def test_many_equal_layers_form_one_repeat() -> None:
    drawing = Drawing(History.of(layers(300)))
    repeat = drawing.texts("groups", "kind").index("repeat")
    assert drawing.document["groups"]["count"][repeat] == 300
