"""The canonical order does not depend on the order that was given, down to the bytes."""

import random
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from support.breadth import sampled
from support.short_models import without_residuals

from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.engine.registry.catalog import catalog
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import Graph

NESTED = """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
g (bool c, int64 n, float[2] x) => (float[2] y, float[2] z)
<float[2] u = {1, 2}, float[2] v = {3, 4}, float[2] w = {5, 6}, float[2] a_dead_one = {7, 8}>
{
    k = Mul(x, w)
    h = Add(x, v)
    y = If (c) <
        then_branch = t () => (float[2] p) { q = Abs(h) r = Mul(k, u) s = local.f(r) p = Sub(q, s) },
        else_branch = e () => (float[2] o) {
            i = Exp(h)
            o = Loop (n, , k) <
                body = b (int64 j, bool m, float[2] l) => (bool m2, float[2] l2) {
                    l1 = Neg(l) m2 = Identity(m) l3 = Add(l1, i) l2 = Mul(l3, u)
                }
            >
        }
    >
    d = Exp(h)
    z = local.f(h)
    dead = Exp(k)
}
<domain: "local", opset_import: ["" : 21]>
f (a) => (e) { c = Exp(a) b = Neg(a) d = Abs(c) e = Sub(b, d) }
"""


def reads(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    for graph in graphs(node):
        for inner in graph.node:
            yield from reads(inner)
        yield from (value.name for value in graph.output)


def graphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [g for a in node.attribute for g in ([a.g] if a.HasField("g") else []) + list(a.graphs)]


def shuffled(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """Copy a model with the nodes of each graph in a random topological order, and its lists in a random order."""
    rng = random.Random(seed)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for body in (copy.graph, *copy.functions):
        _shuffle(body, rng)
    return copy


def _shuffle(body: onnx.GraphProto | onnx.FunctionProto, rng: random.Random) -> None:
    for node in body.node:
        for inner in graphs(node):
            _shuffle(inner, rng)
    nodes = list(body.node)
    makers = {name: number for number, node in enumerate(nodes) for name in node.output if name}
    waiting = {number: {makers[n] for n in reads(node) if n in makers} for number, node in enumerate(nodes)}
    readers: dict[int, list[int]] = {number: [] for number in waiting}
    for number, needed in waiting.items():
        for other in needed:
            readers[other].append(number)
    ready, order = [number for number, needed in waiting.items() if not needed], []
    while ready:
        order.append(ready.pop(rng.randrange(len(ready))))
        for reader in readers[order[-1]]:
            waiting[reader].discard(order[-1])
            if not waiting[reader]:
                ready.append(reader)
    assert len(order) == len(nodes)
    _replace(body.node, [nodes[number] for number in order])
    for entries in [body.value_info, *([body.initializer] if isinstance(body, onnx.GraphProto) else [])]:
        _replace(entries, rng.sample(list(entries), len(entries)))


def _replace(field: object, items: list[object]) -> None:
    copies = [type(item).FromString(item.SerializeToString()) for item in items]  # type: ignore[attr-defined]
    del field[:]  # type: ignore[attr-defined]
    field.extend(copies)  # type: ignore[attr-defined]


def ordered(model: onnx.ModelProto) -> bytes:
    stored = storage.from_proto(model)
    graph = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)
    catalog.find("canonical-order").function(graph)
    result = storage.resolve(storage.proto_from_ir(graph.ir, stored.weights), stored.weights)
    data: bytes = result.SerializeToString(deterministic=True)
    return data


@pytest.fixture
def given(name: str, short_models: Path) -> onnx.ModelProto:
    return text.parse(NESTED) if name == "nested" else onnx.load(short_models / name)


NAMES = ["nested", "bert-tiny.dy.onnx", "llama-tiny.onnx", "mobilenet-tiny.onnx", "whisper-enc-tiny.onnx"]


@pytest.mark.parametrize("name", sampled(NAMES, 3))
def test_all_orders_of_a_model_become_the_same_bytes(given: onnx.ModelProto) -> None:
    first, second = shuffled(given, 1), shuffled(given, 2)
    assert first.SerializeToString() != second.SerializeToString()
    assert ordered(first) == ordered(second) == ordered(given)


@pytest.mark.parametrize("name", sampled(NAMES, 3))
def test_canonical_order_is_idempotent(given: onnx.ModelProto) -> None:
    data = ordered(shuffled(given, 3))
    assert ordered(onnx.load_model_from_string(data)) == data


def test_initializers_are_sorted_by_first_reader_and_unused_ones_by_name() -> None:
    model = onnx.load_model_from_string(ordered(shuffled(text.parse(NESTED), 4)))
    assert [tensor.name for tensor in model.graph.initializer] == ["v", "w", "u", "a_dead_one"]
    assert [value for node in model.graph.node for value in node.output] == ["h", "k", "y", "z", "d", "dead"]


def test_declared_types_follow_the_nodes() -> None:
    model = onnx.shape_inference.infer_shapes(text.parse(NESTED))
    result = onnx.load_model_from_string(ordered(shuffled(model, 5)))
    made = [name for node in result.graph.node for name in node.output]
    listed = [value.name for value in result.graph.value_info]
    assert listed == [name for name in made if name in set(listed)] and len(listed) > 2


def test_canonical_order_is_verified_like_any_step() -> None:
    recipe = recipes.parse("recipe: t\nsteps: [canonical-order, canonical-order]\nexpect: {signature: unchanged}", "t")
    result = runner.apply(shuffled(without_residuals("mobilenet-tiny"), 6), recipe)
    assert [step.status for step in result.steps] == ["committed", "unchanged"]
    assert result.steps[0].verdict is not None and result.steps[0].verdict.status == "equal"
    assert result.ok
