"""Models of a few hundred bytes, clean to the eye, that kill or hang a process that runs or optimizes them."""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper

from surgery.model.graph import text

LEAST = np.iinfo(np.int32).min


def division_of_constants() -> onnx.ModelProto:
    """Divide the least integer by -1, both constants: SIGFPE."""
    return text.parse(
        f"g (float[4] x) => (float[4] y, int32[1] z) <int32[1] a = {{{LEAST}}}, int32[1] b = {{-1}}>"
        " { i = Identity(x) y = Relu(i) z = Div(a, b) }"
    )


def division_of_inputs() -> onnx.ModelProto:
    """Divide two inputs, which the recipe sets to the least integer and -1: SIGFPE."""
    return text.parse("g (int32[1] a, int32[1] b) => (int32[1] y) { i = Identity(a) y = Div(i, b) }")


def output_from_nowhere() -> onnx.ModelProto:
    """List an output that nothing produces: SIGSEGV."""
    model = text.parse("g (float[4] x) => (float[4] y) { i = Identity(x) y = Relu(i) }")
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [4]))
    return model


def chain_of_functions(depth: int = 20_000) -> onnx.ModelProto:
    """Nest calls of functions 20,000 deep: the stack of whoever follows them overflows."""
    model = text.parse("g (float[4] x) => (float[4] y) { i = Identity(x) y = Relu(i) }")
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.graph.node[1].CopyFrom(helper.make_node("f0", ["i"], ["y"], domain="local"))
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    for number in range(depth):
        inner = helper.make_node(f"f{number + 1}", ["a"], ["b"], domain="local")
        if number == depth - 1:
            inner = helper.make_node("Relu", ["a"], ["b"])
        model.functions.append(helper.make_function("local", f"f{number}", ["a"], ["b"], [inner], imports))
    return model


def nested_branches(depth: int = 30) -> onnx.ModelProto:
    """Nest If 30 deep: three messages each, and protobuf reads 100 deep."""
    return onnx.load_model_from_string(nested_branches_as_bytes(depth))


def nested_branches_as_bytes(depth: int = 50) -> bytes:
    """Nest If deeper than protobuf's own functions can write: each message is joined from its parts."""
    graph = _branch(helper.make_node("Relu", ["x"], [f"y{depth}"]), f"y{depth}").SerializeToString()
    for level in reversed(range(depth)):
        copied = _branch(helper.make_node("Identity", ["x"], [f"e{level}"]), f"e{level}")
        node = helper.make_node("If", ["c"], [f"y{level}"], else_branch=copied)
        deeper = onnx.AttributeProto(name="then_branch", type=onnx.AttributeProto.GRAPH).SerializeToString()
        deeper += _field(6, graph)
        branch = onnx.GraphProto(name=f"level{level}", output=[_four(f"y{level}")]).SerializeToString()
        graph = branch + _field(1, node.SerializeToString() + _field(5, deeper))
    graph += onnx.GraphProto(
        input=[_four("x"), helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        node=[helper.make_node("Identity", ["x"], ["unused"])],
    ).SerializeToString()
    return _model(onnx.GraphProto()).SerializeToString() + _field(7, graph)


def _branch(node: onnx.NodeProto, output: str) -> onnx.GraphProto:
    return helper.make_graph([node], "branch", [], [_four(output)])


def _four(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])


def _field(number: int, content: bytes) -> bytes:
    """Write a field of bytes as protobuf does: tag, length, content."""
    length, size = len(content), bytearray()
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([number << 3 | 2, *size, length]) + content


def exploding_functions(levels: int = 29) -> onnx.ModelProto:
    """Call a function that calls the next one twice, and so on: 2^29 nodes once it is expanded."""
    model = text.parse("g (float[4] x) => (float[4] y) { i = Identity(x) y = Relu(i) }")
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.graph.node[1].CopyFrom(helper.make_node("f0", ["i"], ["y"], domain="local"))
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    for number in range(levels):
        last = number == levels - 1
        op, domain = ("Relu", "") if last else (f"f{number + 1}", "local")
        nodes = [helper.make_node(op, ["a"], ["t"], domain=domain), helper.make_node(op, ["t"], ["b"], domain=domain)]
        model.functions.append(helper.make_function("local", f"f{number}", ["a"], ["b"], nodes, imports))
    return model


def endless_loop() -> onnx.ModelProto:
    """Loop with the condition always true and no trip count."""
    return text.parse(
        """g (float[4] x) => (float[4] y) <bool t = {1}> {
            i = Identity(x)
            y = Loop <body = b (int64 n, bool c, float[4] a) => (bool d, float[4] e) { d = Identity(c) e = Sin(a) }>
                ("", t, i)
        }"""
    )


def huge_constant() -> onnx.ModelProto:
    """Fill 8 GiB."""
    return text.parse(
        """g (float[4] x) => (float[4] y) <int64[1] n = {2147483648}> {
            i = Identity(x)
            z = ConstantOfShape <value = float[1] {1.0}> (n)
            m = ReduceMax(z)
            y = Mul(i, m)
        }"""
    )


def tile_bomb() -> onnx.ModelProto:
    """Repeat one number 2^40 times."""
    return text.parse(
        """g (float[1] x) => (float[1] y) <int64[1] n = {1099511627776}> {
            i = Identity(x)
            z = Tile(i, n)
            y = ReduceMax(z)
        }"""
    )


def expand_bomb() -> onnx.ModelProto:
    """Broadcast one constant to 2^40 elements."""
    return text.parse(
        """g (float[1] x) => (float[1] y) <int64[1] n = {1099511627776}, float[1] one = {1}> {
            i = Identity(x)
            z = Expand(one, n)
            m = ReduceMax(z)
            y = Mul(i, m)
        }"""
    )


def cycle() -> onnx.ModelProto:
    """Let two nodes read each other."""
    model = text.parse("g (float[4] x) => (float[4] y) { i = Identity(x) b = Neg(i) y = Add(x, b) }")
    model.graph.node[0].input[0] = "b"
    return model


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def array(value: int) -> np.ndarray:
    """Give one number as the input of a division."""
    return np.array([value], np.int32)


KILLERS: list[Callable[[], onnx.ModelProto]] = [
    division_of_constants,
    division_of_inputs,
    output_from_nowhere,
    chain_of_functions,
    nested_branches,
    exploding_functions,
    endless_loop,
    huge_constant,
    tile_bomb,
    expand_bomb,
    cycle,
]
