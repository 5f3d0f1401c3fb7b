"""What inference knows of values: right in every run, and the model stays as it is."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from surgery import Graph, Value
from surgery.model import storage
from surgery.model.graph import text


def graph_of(source: str) -> Graph:
    stored = storage.from_proto(text.parse(source))
    return Graph(storage.ir_from_proto(stored.proto, stored.weights))


def value(graph: Graph, name: str) -> Value:
    return next(v for node in graph.nodes() for v in node.outputs if v.name == name)


def shape(source: str, name: str) -> tuple[object, ...] | None:
    return value(graph_of(source), name).shape


def test_inferring_shapes_does_not_change_the_model() -> None:
    source = """
        <ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[batch,?] x, bool c) => (float[n,m] y) <float[k,j] a>
        {
            a = Neg(x)
            w = Constant<value = float[1] {1}>()
            b = local.f(a)
            d = If (c) < then_branch = t () => (float[p,q] p0) { p0 = Add(b, w) },
                         else_branch = e () => (float[p,q] q0) { q0 = Exp(b) } >
            y = Relu(d)
        }
        <domain: "local", opset_import: ["" : 21]>
        f (x) => (y) { s = Shape(x) z = ConstantOfShape(s) y = Add(x, z) }
    """
    model = ir.from_proto(text.parse(source))
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    graph = Graph(model)
    assert value(graph, "d").shape is not None
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("a = Neg(x)", ("batch", "length", 8)),
        ("i = Constant<value_ints = [0, -1]>() a = Reshape(x, i)", ("batch", "8*length")),
        ("s = Shape<start = 1>(x) a = Expand(one, s)", ("length", 8)),
        (
            "i = Constant<value_ints = [1, -1, 2]>() e = Constant<value_ints = [2]>() h = Div(i, e) a = Tile(one, e)",
            (2,),
        ),
        (
            "e = Constant<value_ints = [5]>() z = Constant<value_ints = [0]>() a = Slice(x, z, e, z)",
            ("Min(5, batch)", "length", 8),
        ),
        ("a = Add(x, v)", ("batch", "length", 8)),
        ("z = Constant<value_ints = [1]>() n = Unsqueeze(x, z) a = Squeeze(n, z)", ("batch", "length", 8)),
    ],
)
def test_symbols_are_followed(nodes: str, expected: tuple[object, ...]) -> None:
    head = "g (float[batch,length,8] x, float[1,1,8] v) => (float[n] y) <float[1] one = {1}>"
    assert shape(f"{head} {{ {nodes} y = Flatten(a) }}", "a") == expected


@pytest.mark.parametrize(
    ("what", "nodes"),
    [
        ("either of two symbols may be 1", "a = Add(x, v)"),
        ("the sizes of a split are an input", "a, b = Split(x, i)"),
        ("the axes are an input, so the rank is not known", "a = Squeeze(x, i)"),
        ("a negative element may stand for another extent", "a = Reshape(x, i)"),
        ("the axes of a slice are an input", "z = Constant<value_ints = [0, 0]>() a = Slice(x, z, i, i)"),
    ],
)
def test_guesses_are_withdrawn(what: str, nodes: str) -> None:
    graph = graph_of(f"g (float[b,l] x, float[c,d] v, int64[2] i) => (float[n] y) {{ {nodes} y = Flatten(a) }}")
    found = value(graph, "a").shape
    known = [dim for dim in found or () if isinstance(dim, int) or (dim and not graph.facts.is_made_up(dim))]
    assert found is None or len(known) < 2, what


def test_a_failed_shape_rule_does_not_stop_inference() -> None:
    source = "g (float[2,3] x) => (float[n] y) { a = MatMul(x, x) b = Neg(x) y = Flatten(b) }"
    assert shape(source, "a") is None
    assert shape(source, "b") == (2, 3)


def test_a_loop_can_change_the_shape_of_a_carried_value() -> None:
    source = """
        g (float[2] x, int64 n, bool c) => (float[k] y) {
            y = Loop (n, c, x) < body = b (int64 i, bool d, float[u] v) => (bool e, float[w] z) {
                e = Identity(d) z = Concat<axis = 0>(v, v)
            } >
        }
    """
    graph = graph_of(source)
    (dim,) = value(graph, "y").shape or ()
    assert dim == "k"
    assert value(graph, "z").shape == ("2*u",)


def test_scan_outputs_of_a_loop_that_may_end_early_have_an_unknown_length() -> None:
    source = """
        g (float[2] x, bool c) => (float[k,m] y) <int64 n = {5}> {
            s = Loop (n, c) < body = b (int64 i, bool d) => (bool e, float[2] z) { e = Not(d) z = Neg(x) } >
            y = Neg(s)
        }
    """
    graph = graph_of(source)
    (first, second) = value(graph, "s").shape or ()
    assert isinstance(first, str)
    assert graph.facts.is_made_up(first)
    assert second == 2


def test_an_unknown_branch_makes_the_result_unknown() -> None:
    source = """
        <ir_version: 10, opset_import: ["" : 21, "acme" : 1]>
        g (float[2] x, bool c) => (float[n] y) {
            a = If (c) < then_branch = t () => (float[] p) { p = Neg(x) },
                         else_branch = e () => (float[] q) { q = acme.Foo(x) } >
            y = Neg(a)
        }
    """
    assert shape(source, "a") is None


def test_declared_shapes_are_used_if_inference_fails() -> None:
    source = """
        <ir_version: 10, opset_import: ["" : 21, "acme" : 1]>
        g (float[2] x) => (float[n] y) <float[5,m] a, float[9] b> { a = acme.Foo(x) b = Neg(x) y = Flatten(a) }
    """
    assert shape(source, "a") == (5, "m")
    assert shape(source, "b") == (2,)


def test_a_declared_shape_is_used_downstream_of_a_rule_that_finds_nothing() -> None:
    source = """
        <ir_version: 8, opset_import: ["" : 18]>
        g (float[n,6] x, int64[2] sizes, int64 at) => (float[p,q] y)
        <float[n,3] part, float[n,9] wrong>
        {
            parts = SplitToSequence<axis = 1>(x, sizes)
            part = SequenceAt(parts, at)
            wrong = Neg(part)
            y = Exp(wrong)
        }
    """
    graph = graph_of(source)
    assert [value(graph, name).shape for name in ("part", "wrong", "y")] == [("n", 3)] * 3


def test_overridable_initializers_are_not_used_for_inference() -> None:
    source = """
        g (float[4] x, int64[2] s, float[n] w) => (float[p,q] y, int64[1] z)
        <int64[2] s = {2, 2}, float[3] w = {1, 2, 3}> { a = Reshape(x, s) h = Shape(w) z = Neg(h) y = Neg(a) }
    """
    graph = graph_of(source)
    assert all(isinstance(dim, str) for dim in value(graph, "a").shape or ("none",))
    assert value(graph, "h").elements == ("n",)


def test_contents_are_counted_over_several_axes() -> None:
    source = """
        g (float[2,3,4] x) => (int64[n,m] y) <int64[2] two = {1, 2}, int64[1] axis = {1}, int64[1] zero = {0}>
        { r = Unsqueeze(two, axis) c = Unsqueeze(two, zero) o = Add(r, c) t = Transpose(r) y = Neg(o) }
    """
    graph = graph_of(source)
    assert value(graph, "o").shape == (2, 2)
    assert value(graph, "o").elements == (2, 3, 3, 4)
    assert value(graph, "t").elements == (1, 2)


def test_long_chains_of_new_nodes_are_inferred() -> None:
    graph = graph_of("g (float[batch,3] x) => (float[n,m] y) { a = NonZero(x) b = Cast<to = 1>(a) y = Neg(b) }")
    old = value(graph, "b").shape
    with graph.site(graph.nodes("Neg")[0]) as new:
        last = graph.nodes("Neg")[0].required_input(0)
        for _ in range(2000):
            last = new.node("Exp", last)
        unrelated = new.node("Cast", new.node("NonZero", last), to=1)
        new.replace(graph.nodes("Neg")[0].outputs[0], new.node("MatMul", new.node("Transpose", last), unrelated))
    assert last.shape == old
    assert unrelated.shape is not None
    assert old is not None
    assert unrelated.shape[1] != old[1], "two made-up symbols are never the same"


def test_cached_queries_are_updated_when_a_node_is_added() -> None:
    graph = graph_of("g (float[batch,3] x) => (float[n,m] y) { y = Neg(x) }")
    (node,) = graph.nodes("Neg")
    with graph.site(node) as new:
        made = new.node("ReduceMax", new.node("Transpose", *node.inputs), new.constant(np.array([0])))
        assert made.type is None and made.shape is None
        new.replace(node.outputs[0], new.node("Neg", made))
    assert made.type == graph.inputs()[0].type
    assert made.shape == (1, "batch")


def test_a_changed_attribute_changes_the_shape() -> None:
    graph = graph_of("g (float[2,3,4] x) => (float[n,m,k] y) { a = Transpose<perm = [0, 2, 1]>(x) y = Neg(a) }")
    (node,) = graph.nodes("Transpose")
    assert node.outputs[0].shape == (2, 4, 3)
    with graph.site(node) as new:
        new.set_attribute(node, "perm", [2, 1, 0])
    assert node.outputs[0].shape == (4, 3, 2)


def test_large_weights_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = onnx.numpy_helper.from_array(np.zeros((64, 64), dtype=np.int64), "w")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["w", "i"], ["y"])],
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, None)],
        [weight],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    stored = storage.from_proto(model)
    held = Graph(storage.ir_from_proto(stored.proto, stored.weights))

    def read(*_: object) -> None:
        raise AssertionError("a weight was read")

    monkeypatch.setattr("surgery.model.storage.ir_tensors.StoredTensor.numpy", read)
    assert value(held, "y").shape == ("n", 64)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("a = Mul(s, s)", ("batch**2", "length**2", 64)),
        ("n = Neg(s) a = Mul(n, s)", ("0 - batch**2", "0 - length**2", -64)),
        ("t = Size(x) b = Gather(s, zero) a = Div(t, b)", ("8*length",)),
        ("b = Gather(s, zero) u = Add(b, s) a = Sub(u, b)", ("batch", "length", 8)),
        ("m = ReduceProd<keepdims = 0>(s) a = Mod(m, eight)", (0,)),
        ("a = Max(s, one)", ("batch", "length", 8)),
        ("a = Min(s, eight)", ("Min(8, batch)", "Min(8, length)", 8)),
        ("c = Equal(s, minus) a = Where(c, one, s)", ("batch", "length", 8)),
        ("c = Greater(s, zero) d = Not(c) a = Cast<to = 7>(d)", (0, 0, 0)),
        ("c = LessOrEqual(one, s) d = And(c, c) a = Cast<to = 7>(d)", (1, 1, 1)),
        ("f = Flatten<axis = 0>(s) a = Squeeze(f)", ("batch", "length", 8)),
        ("p, q, r = Split<num_outputs = 3>(s) a = Concat<axis = 0>(r, p)", (8, "batch")),
        ("i = Range(zero, three, one) a = Add(i, i)", (0, 2, 4)),
        ("o = ConstantOfShape<value = int64[1] {-1}>(rank) a = Concat<axis = 0>(o, s)", (-1, "batch", "length", 8)),
        ("o = Constant<value = float {2}>() w = CastLike(o, one) a = Mul(s, w)", ("2*batch", "2*length", 16)),
        ("b = Slice(s, back, first, axis, back) a = Identity(b)", (8, "length", "batch")),
    ],
)
def test_contents_are_followed(nodes: str, expected: tuple[object, ...]) -> None:
    source = f"""
        g (float[batch,length,8] x) => (int64[n] y)
        <int64 zero = {{0}}, int64 one = {{1}}, int64 three = {{3}}, int64 eight = {{8}},
         int64[3] minus = {{-1, -1, -1}}, int64[1] rank = {{1}},
         int64[1] back = {{-1}}, int64[1] first = {{-9}}, int64[1] axis = {{0}}>
        {{ s = Shape(x) {nodes} y = Neg(a) }}
    """
    assert value(graph_of(source), "a").elements == expected


@pytest.mark.parametrize(
    "nodes",
    ["a = Equal(s, eight)", "a = Less(s, eight)", "d = Sub(s, eight) a = Greater(d, minus)", "a = Equal(k, minus)"],
)
def test_elements_that_depend_on_inputs_are_not_decided(nodes: str) -> None:
    source = f"""
        g (float[batch,length] x, int64[2] k) => (bool[n] y) <int64[1] eight = {{8}}, int64[2] minus = {{-1, -1}}>
        {{ s = Shape(x) {nodes} y = Not(a) }}
    """
    assert not any(isinstance(item, int) for item in value(graph_of(source), "a").elements or ())


def test_rolled_tensors_keep_their_extent() -> None:
    source = """
        g (float[n,m] x) => (float[p,q] y)
        <int64[1] three = {3}, int64[1] zero = {0}, int64[1] end = {9223372036854775807}>
        { a = Slice(x, three, end, zero) b = Slice(x, zero, three, zero) r = Concat<axis = 0>(a, b) y = Neg(r) }
    """
    assert shape(source, "r") == ("n", "m")


def test_a_declared_dim_resembling_arithmetic_is_a_name() -> None:
    graph = graph_of("g (float[n] x, float[m] v) => (float[p] y) { c = Concat<axis = 0>(x, x) y = Neg(c) }")
    other = graph.ir.graph.inputs[1]
    other.shape = ir.Shape(["n * 2"])
    assert value(graph, "c").shape == ("2*n",) != Value(graph, other).shape


def test_facts_are_updated_after_removing_an_expand() -> None:
    lines = """
        <int64[3] shape = {1, 4, 1}, float low = {-1}, float none = {0}>
        { e = Expand(x, shape) n = Not(e) w = Where(n, low, none) y = Add(z, w) }
    """
    graph = graph_of("g (bool[N,1,M] x, float[N,4,M] z) => (float[N,4,M] y) " + lines)
    expand, negation, where = (graph.nodes(op)[0] for op in ("Expand", "Not", "Where"))
    assert where.outputs[0].shape == ("N", 4, "M")
    where.outputs[0].ir.shape = ir.Shape(["N", 4, "M"])
    graph.replace(expand.outputs[0], expand.required_input(0))
    assert negation.outputs[0].shape == where.outputs[0].shape == ("N", 1, "M")
    assert where.outputs[0].ir.shape is None


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("a = Slice<axes = [1], starts = [1], ends = [9223372036854775807]>(x)", ("n", "m - 1", 8)),
        ("a = Slice<axes = [2], starts = [-3], ends = [-1]>(x)", ("n", "m", 2)),
        ("s = Shape(x) t = Slice<axes = [0], starts = [1], ends = [3]>(s) a = ConstantOfShape(t)", ("m", 8)),
        (
            "s = Shape(x) i = Cast<to = 6>(s) t = Slice<axes = [0], starts = [0], ends = [1]>(i) "
            "u = Cast<to = 7>(t) a = ConstantOfShape(u)",
            ("n",),
        ),
        ("a, i = TopK<k = 3>(x)", ("n", "m", 3)),
        ("a = Max(x, x)", ("n", "m", 8)),
    ],
)
def test_older_forms_of_operators_are_known(nodes: str, expected: tuple[object, ...]) -> None:
    source = f"""
        <ir_version: 3, opset_import: ["" : {7 if "Max" in nodes else 9}]>
        g (float[n,m,8] x) => (float[p] y) {{ {nodes} y = Neg(a) }}
    """
    assert shape(source, "a") == expected


def test_unnamed_dims_are_followed_and_stay_distinct() -> None:
    graph = graph_of("""
        g (float[N,3,H,W] x) => (float[a,b,c,d] y) <float[8,3,3,3] w> {
            c = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w)
            p = GlobalAveragePool(c)
            y = Relu(p)
        }
    """)
    graph.ir.graph.inputs[0].shape = ir.Shape([-1, 3, "?", "?"])
    graph.refresh()
    rows, channels, height, width = value(graph, "c").shape or ()
    assert channels == 8 and isinstance(height, str) and isinstance(width, str) and height != width
    assert value(graph, "p").shape == (rows, 8, 1, 1) and rows != -1
    before = Value(graph, graph.ir.graph.inputs[0]).shape or ()
    assert before[2] != before[3]


def test_a_dim_name_that_is_no_expression_is_a_single_symbol() -> None:
    graph = graph_of("g (float[N,4] x, float[N,4] z) => (float[M,4] y) { a = Neg(x) b = Exp(z) y = Add(a, b) }")
    for given in graph.ir.graph.inputs:
        given.shape = ir.Shape(["batch size", 4])
    graph.refresh()
    assert value(graph, "a").shape == value(graph, "b").shape


@pytest.mark.parametrize("name", ["ceiling(", "a:b", "(", "batch size", ""])
def test_no_name_of_a_dim_breaks_inference(name: str) -> None:
    graph = graph_of("g (float[N,4] x) => (float[M,8] y) { y = Concat<axis = 1>(x, x) }")
    graph.ir.graph.inputs[0].shape = ir.Shape([name, 4])
    graph.refresh()
    assert (value(graph, "y").shape or ())[1] == 8


@pytest.mark.parametrize(
    ("inputs", "node", "expected"),
    [
        ("float[n,1] x, float[3] z", "Add(x, z)", ("n", 3)),
        ("float[n,m] x, float[n,m] z", "Mul(x, z)", ("n", "m")),
        ("float[n,m] x, float[1,k,1] z", "Sub(x, z)", (1, "_d0", "m")),
        ("float[2,3] x, float[3,2] z", "Div(x, z)", None),
        ("float x, float z", "Pow(x, z)", ()),
        ("float[n,4] x, float[5,1,1] z", "Max(x, z, x)", (5, "n", 4)),
        ("float[n,4] x, float[m,4] z", "Min(x, z)", ("_d0", 4)),
        ("float[b,m,k] x, float[k,n] z", "MatMul(x, z)", ("b", "m", "n")),
        ("float[b,1,m,2] x, float[h,2,n] z", "MatMul(x, z)", ("b", "h", "m", "n")),
        ("float[2] x, float[2,n] z", "MatMul(x, z)", ("n",)),
        ("float[2,3] x, float[2,3] z", "MatMul(x, z)", None),
        ("bool[n,1] x, float[n,4] z", "Where(x, z, z)", ("n", 4)),
        ("int64[n,4] x, int64[4] z", "Less(x, z)", ("n", 4)),
        ("bool[n,4] x, bool[1,4] z", "And(x, z)", ("n", 4)),
        ("float[n,m,5] x, float[1] z", "Flatten<axis = -1>(x)", ("m*n", 5)),
        ("float[n,m,5] x, float[1] z", "Flatten<axis = 3>(x)", ("5*m*n", 1)),
        ("float[n,m] x, float[1] z", "Flatten<axis = 0>(x)", (1, "m*n")),
    ],
)
def test_broadcast_shapes(inputs: str, node: str, expected: tuple[object, ...] | None) -> None:
    found = value(graph_of(f"g ({inputs}) => (float y) {{ a = {node} y = Identity(a) }}"), "a")
    assert found.shape == expected
    if expected is not None:
        assert str(found.dtype) == ("BOOL" if node.startswith(("Less", "And")) else "FLOAT")


@pytest.mark.parametrize(
    ("pads", "expected"),
    [("0, 0, 0, 0", ("n", 4)), ("0, 1, 0, 2", ("n", 7)), ("2, 0, 1, -1", ("n + 3", 3)), ("-1, 0, 0, 0", ("n - 1", 4))],
)
@pytest.mark.parametrize("opset", [10, 13])
def test_padded_shapes(opset: int, pads: str, expected: tuple[object, ...]) -> None:
    node = f"a = Pad<pads = [{pads}]>(x)" if opset < 11 else f"p = Constant<value_ints = [{pads}]>() a = Pad(x, p)"
    source = (
        f"""<ir_version: 8, opset_import: ["" : {opset}]> g (float[n,4] x) => (float[k,l] y) {{ {node} y = Neg(a) }}"""
    )
    assert shape(source, "a") == expected


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("Add<axis = 1, broadcast = 1>(x, z)", (2, 3, 1)),
        ("Mul<axis = 1, broadcast = 1>(x, z)", (2, 3, 1)),
        ("Greater<axis = 1, broadcast = 1>(x, z)", (2, 3, 1)),
        ("Add(x, x)", (2, 3, 1)),
    ],
)
def test_old_broadcasts_follow_their_axis(node: str, expected: tuple[object, ...]) -> None:
    source = f"""<ir_version: 3, opset_import: ["" : 6]>
        g (float[2,3,1] x, float[3] z) => (float[k,l,m] y) {{ a = {node} y = Neg(a) }}"""
    assert shape(source, "a") in (expected, None)


def test_a_pad_of_a_missing_axis_has_no_shape() -> None:
    source = """<ir_version: 8, opset_import: ["" : 18]> g (float[n,4] x) => (float[k,l] y)
        <int64[4] pads = {1, 1, 1, 1}, float c = {0}, int64[2] axes = {0, 5}> {
            a = Pad(x, pads, c, axes) y = Neg(a) }"""
    assert shape(source, "a") is None
