"""What rules emit: nodes, constants, attributes, functions, and where they refuse."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from support.lacking import skip_opset

from surgery.base.errors import PassError
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.patterns.rewrite import rewrite_any
from surgery.model.patterns.rule import Rule
from surgery.model.patterns.rule_checks import mistakes


def fire(rule: Rule, source: str, *, opset: int = 21) -> Graph:
    skip_opset(opset)
    assert mistakes(rule) == []
    graph = Graph(ir.from_proto(text.parse(source, opset=opset)), pass_name="test")
    rewrite_any(graph, rule.match, rule, {})
    graph.finish()
    return graph


def reasons(graph: Graph) -> list[str]:
    return [refused.reason for refused in graph.refusals]


def only_constant(graph: Graph) -> np.ndarray:
    (value,) = (value for value in graph.constants() if "constant" in value.name)
    assert value.constant is not None
    return value.constant


RELU = "g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }"


def test_several_nodes_become_one() -> None:
    rule = Rule(("s = Sigmoid(x)\ny = Mul(x, s)",), "y = Swish<alpha=1.0>(x)")
    graph = fire(rule, "g (float[n] x) => (float[n] y) { s = Sigmoid(x) y = Mul(s, x) }", opset=24)
    assert [node.op for node in graph.nodes()] == ["Swish"]


def test_no_node_at_all() -> None:
    graph = fire(
        Rule(("y, mask? = Dropout(x, r?)",), "y = x"),
        "g (float[n] x) => (float[n] z) <float r = {0.5}> { a = Abs(x) y = Dropout(a, r) z = Relu(y) }",
    )
    assert [node.op for node in graph.nodes()] == ["Abs", "Relu"]


def test_an_output_without_a_replacement_must_not_be_read() -> None:
    source = "g (float[n] x) => (float[n] z, bool[n] m) { a = Abs(x) y, m = Dropout(a) z = Relu(y) }"
    graph = fire(Rule(("y, mask? = Dropout(x)",), "y = x"), source)
    assert reasons(graph) == ["m is used, but has no replacement"]


@pytest.mark.parametrize(
    ("operand", "dtype", "shape", "elements"),
    [
        ("2", np.float32, (), [2]),
        ("2.5", np.float32, (), [2.5]),
        ("{1, -2}", np.float32, (2,), [1, -2]),
        ("dims(x)[1] / 2", np.float32, (), [1.5]),
        ("rank(x) * 3", np.float32, (), [6]),
        ("like(x, 7)", np.float32, (), [7]),
        ("float({3})", np.float32, (1,), [3]),
        ("inf", np.float32, (), [np.inf]),
    ],
)
def test_constants_take_the_type_of_the_other_operand(
    operand: str, dtype: type, shape: tuple[int, ...], elements: list[float]
) -> None:
    graph = fire(Rule(("y = Relu(x)",), f"y = Max(x, {operand})"), RELU)
    made = only_constant(graph)
    assert (made.dtype, made.shape, made.reshape(-1).tolist()) == (dtype, shape, elements)


def test_the_type_of_a_new_value_is_known_to_the_next_line() -> None:
    rule = Rule(("y = Relu(x)",), "c = Cast<to=float16>(x)\nd = Max(c, 0)\ny = Cast<to=dtype(x)>(d)")
    source = RELU.replace("float[2,3]", "double[2,3]")
    graph = fire(Rule(rule.match, rule.emit.replace("Max(c, 0)", "Max(c, float16(0))")), source)
    assert only_constant(graph).dtype == np.float16
    rule = Rule(("y = Relu(x)",), "c = Abs(x)\nd = Add(c, 1)\ny = Mul(d, 2)")
    assert {value.dtype for value in fire(rule, source).constants()} == {ir.DataType.DOUBLE}


def test_a_constant_takes_the_only_type_an_operator_accepts() -> None:
    graph = fire(Rule(("y = Flatten(x)",), "y = Reshape(x, {dims(x)[0], -1})"), RELU.replace("Relu", "Flatten"))
    assert only_constant(graph).dtype == np.int64


@pytest.mark.parametrize(
    ("operand", "reason"),
    [
        ("int64(dims(x)[0] / 2.5)", "0.8 does not fit into int64"),
        ("int8(200)", "200 does not fit into int8"),
        ("int64(1e300)", "1e+300 does not fit into int64"),
        ("int64(inf)", "inf does not fit into int64"),
        ("int64(99999999999999999999)", "99999999999999999999 does not fit into int64"),
        ("int64(dims(z)[0])", "n cannot become a constant"),
    ],
)
def test_impossible_constants_are_refused(operand: str, reason: str) -> None:
    rule = Rule(("y = Sub(x, z)",), f"c = Cast<to=float>({operand})\ny = Mul(z, c)")
    graph = fire(rule, "g (float[2,3] x, float[n,3] z) => (float[2,3] y) { y = Sub(x, z) }")
    assert reasons(graph) == [reason]


def test_attributes_copied_computed_and_spread() -> None:
    source = """
        g (float[1,4,9,9] x, float[4,2,3,3] w) => (float[1,4,5,5] y) {
            t = Neg(x)
            y = Conv<group = 2, pads = [1, 1, 1, 1], strides = [2, 2]>(t, w)
        }
    """
    match = "t = Neg(x)\ny = Conv<pads=p>(t, w, b?)"
    graph = fire(Rule((match,), "u = Neg(w)\ny = Conv<y...>(x, u, b?)"), source)
    assert graph.nodes("Conv")[0].attr("strides") == [2, 2]
    graph = fire(Rule((match,), "u = Neg(w)\ny = Conv<y..., pads=p * 1, dilations=[1, 1]>(x, u, b?)"), source)
    conv = graph.nodes("Conv")[0]
    assert (conv.attr("pads"), conv.attr("group"), conv.attr("dilations")) == ([1, 1, 1, 1], 2, [1, 1])
    graph = fire(
        Rule((match,), "u = Neg(w)\ny = Conv<pads=p, group=dims(x)[1] / 2, strides=p[0] + {1, 1}>(x, u)"), source
    )
    conv = graph.nodes("Conv")[0]
    assert (conv.attr("pads"), conv.attr("group"), conv.attr("strides")) == ([1, 1, 1, 1], 2, [2, 2])


def test_an_attribute_that_is_absent_stays_absent() -> None:
    rule = Rule(("t = Neg(x)\ny = Transpose<perm=p>(t)",), "t = Transpose<perm=p>(x)\ny = Neg(t)")
    source = "g (float[2,3] x) => (float[3,2] y) { t = Neg(x) y = Transpose(t) }"
    assert not fire(rule, source).nodes("Transpose")[0].has_attr("perm")


def test_two_permutations_are_composed() -> None:
    rule = Rule(("t = Transpose<perm=p>(x)\ny = Transpose<perm=q>(t)",), "y = Transpose<perm=p[q]>(x)")
    source = """g (float[2,3,4] x) => (float[4,2,3] y) {
        t = Transpose<perm = [1, 2, 0]>(x) y = Transpose<perm = [1, 2, 0]>(t) }"""
    (transpose,) = fire(rule, source).nodes("Transpose")
    assert transpose.attr("perm") == [2, 0, 1]


def test_numbers_are_checked_against_the_attribute_type() -> None:
    graph = fire(Rule(("y = Relu(x)",), "y = LeakyRelu<alpha=0>(x)"), RELU)
    assert graph.nodes("LeakyRelu")[0].ir.attributes["alpha"].type == ir.AttributeType.FLOAT
    graph = fire(Rule(("y = Flatten(x)",), "y = Flatten<axis=rank(x) / 3>(x)"), RELU.replace("Relu", "Flatten"))
    assert reasons(graph) == ["attribute axis would be 0.6666666666666666, no whole number"]
    for value in ("inf", "99999999999999999999"):
        graph = fire(Rule(("y = Flatten(x)",), f"y = Flatten<axis={value}>(x)"), RELU.replace("Relu", "Flatten"))
        assert reasons(graph) == [f"attribute axis would be {value}, no whole number"]
    graph = fire(Rule(("y = Relu(x)",), "y = LeakyRelu<alpha=1e300>(x)"), RELU)
    assert reasons(graph) == ["attribute alpha would be 1e+300, no float"]


def test_a_tensor_as_an_attribute() -> None:
    rule = Rule(("y = Relu(x)",), "s = Shape(x)\nz = ConstantOfShape<value=like(x, {0})>(s)\ny = Max(x, z)")
    (node,) = fire(rule, RELU).nodes("ConstantOfShape")
    assert node.attr("value").numpy().tolist() == [0.0]


def test_the_matched_operator_is_emitted() -> None:
    rule = Rule(("t = Neg(x)\ny = ReduceMax|ReduceMean|Softmax(t)",), "t = op(y)<y...>(x)\ny = Neg(t)")
    graph = fire(rule, "g (float[2,3] x) => (float[2,3] y) { t = Neg(x) y = Softmax<axis = 0>(t) }")
    assert [node.op for node in graph.nodes()] == ["Softmax", "Neg"]
    assert graph.nodes("Softmax")[0].attr("axis") == 0


def test_absent_optional_operands_are_omitted() -> None:
    rule = Rule(("t = Neg(x)\ny = Clip(t, lo?, hi?)",), "t = Clip(x, lo?, hi?)\ny = Neg(t)")
    source = "g (float[n] x, float hi) => (float[n] y) { t = Neg(x) y = Clip(t, , hi) }"
    (clip,) = fire(rule, source).nodes("Clip")
    assert [value and value.name for value in clip.inputs] == ["x", None, "hi"]
    (clip,) = fire(rule, source.replace(", , hi", "")).nodes("Clip")
    assert [value and value.name for value in clip.inputs] == ["x"]
    rule = Rule(("y = Relu(x)",), "y = Clip(x, , 6)")
    assert fire(rule, RELU).nodes("Clip")[0].input(1) is None


def test_all_values_of_a_variadic_name() -> None:
    rule = Rule(
        ("t = Concat<axis=a>(xs...)\ny = Neg(t)",), "y = Concat<axis=a - 2>(xs...)", where=(("count(xs) > 2", ""),)
    )
    source = "g (float[2,3] x) => (float[2,9] y) { t = Concat<axis = 1>(x, x, x) y = Neg(t) }"
    (concat,) = fire(rule, source).nodes("Concat")
    assert (len(concat.inputs), concat.attr("axis")) == (3, -1)
    graph = fire(rule, source.replace("(x, x, x)", "(x, x)").replace("2,9", "2,6"))
    assert reasons(graph) == ["count(xs) > 2 does not hold: count(xs) is 2"]


def test_several_outputs_and_several_ways_to_match() -> None:
    rule = Rule(
        ("v, i = TopK(x, k)\na = Neg(v)\nb = Neg(i)", "v, i = TopK(x, k)\nb = Abs(i)\na = Abs(v)"),
        "a, i = TopK(x, k)\nb = Neg(i)",
    )
    for first in ("a = Neg(v) b = Neg(i)", "b = Neg(i) a = Neg(v)", "a = Abs(v) b = Abs(i)"):
        source = f"g (float[n] x, int64[1] k) => (float[m] a, int64[m] b) {{ v, i = TopK(x, k) {first} }}"
        assert sorted(node.op for node in fire(rule, source).nodes()) == ["Neg", "TopK"], first


def test_an_inner_value_of_the_match_can_be_read_and_is_kept() -> None:
    rule = Rule(("s = Sigmoid(x)\ny = Mul(x, s)",), "y = Max(x, s)")
    graph = fire(rule, "g (float[n] x) => (float[n] y) { s = Sigmoid(x) y = Mul(s, x) }")
    assert [node.op for node in graph.nodes()] == ["Sigmoid", "Max"]


def test_a_condition_guarantees_an_optional_value() -> None:
    rule = Rule(("y = Clip(x, lo?)",), "y = Max(x, lo)", where=(("rank(x) == 1 and present(lo)", ""),))
    graph = fire(rule, "g (float[n] x, float k) => (float[n] y) { t = Clip(x, k) y = Clip(t) }")
    assert [node.op for node in graph.nodes()] == ["Max", "Clip"]
    assert reasons(graph) == ["rank(x) == 1 and present(lo) does not hold: present(lo) is false"]


def test_names_that_are_special_in_python() -> None:
    rule = Rule(("nodes = Neg(graph)\nroot = Relu(nodes)",), "node = Relu(graph)\nroot = Neg(node)")
    graph = fire(rule, "g (float[n] x) => (float[n] y) { t = Neg(x) y = Relu(t) }")
    assert [node.op for node in graph.nodes()] == ["Relu", "Neg"]


def test_an_operator_newer_than_the_model_is_refused() -> None:
    rule = Rule(("t = Erf(x)\ny = Mul(x, t)",), "y = Gelu(x)")
    graph = fire(rule, "g (float[n] x) => (float[n] y) { t = Erf(x) y = Mul(x, t) }", opset=17)
    assert reasons(graph) == ["Gelu exists since opset 20, and not at opset 17"]


def test_a_form_missing_from_the_opset_is_refused() -> None:
    rule = Rule(("y = Relu(x)",), "y = Unsqueeze(x, {0})")
    graph = fire(rule, "g (float[n] x) => (float[1,n] y) { y = Relu(x) }", opset=11)
    assert reasons(graph) == ["at opset 11 Unsqueeze takes 1 input, not 2"]
    rule = Rule(("y = Relu(x)",), "y = Unsqueeze<axes=[0]>(x)")
    graph = fire(rule, "g (float[n] x) => (float[1,n] y) { y = Relu(x) }")
    assert reasons(graph) == ["at opset 21 Unsqueeze takes 2 inputs, not 1"]


def test_a_rule_applies_only_to_its_opsets() -> None:
    rule = Rule(("y = Relu(x)",), "y = Abs(x)", opset=">= 18")
    assert reasons(fire(rule, RELU, opset=17)) == ["the rule is for opset >= 18: opset() is 17"]
    assert fire(rule, RELU, opset=18).nodes("Abs")


def test_domains_are_imported_with_their_versions() -> None:
    rule = Rule(("y = Relu(x)",), "y = com.acme::Ramp(x)", domains=(("com.acme", 3),))
    assert fire(rule, RELU).ir.opset_imports["com.acme"] == 3
    assert fire(Rule(rule.match, rule.emit), RELU).ir.opset_imports["com.acme"] == 1
    other = f'<ir_version: 10, opset_import: ["": 21, "com.acme": 2]> {RELU}'
    assert reasons(fire(rule, other)) == ["the model imports com.acme at version 2, but the rule needs 3"]
    assert fire(Rule(rule.match, rule.emit), other).ir.opset_imports["com.acme"] == 2


FUNCTION = """
    <domain: "com.acme", opset_import: ["": 21]>
    Ramp (x) => (y) { y = Relu(x) }
"""
WITH_FUNCTION = Rule(("y = Relu(x)",), "y = com.acme::Ramp(x)", functions=FUNCTION)


def test_a_function_is_added_once_and_not_rewritten() -> None:
    source = "g (float[n] x) => (float[n] y) { t = Relu(x) y = Relu(t) }"
    graph = fire(WITH_FUNCTION, f'<ir_version: 7, opset_import: ["": 21]> {source}')
    assert [node.op for node in graph.nodes()] == ["com.acme::Ramp", "com.acme::Ramp", "Relu"]
    assert (len(graph.ir.functions), graph.ir.ir_version) == (1, 8)
    again = len(graph.sites)
    rewrite_any(graph, WITH_FUNCTION.match, WITH_FUNCTION, {})
    assert len(graph.sites) == again
    assert reasons(graph)[-1] == "the match is in the function that the rule adds"
    onnx.checker.check_model(ir.serde.serialize_model(graph.ir), full_check=True)


def test_another_function_of_that_name_is_refused() -> None:
    model = f"""<ir_version: 10, opset_import: ["": 21, "com.acme": 1]>
        g (float[n] x) => (float[n] y) {{ t = com.acme.Ramp(x) y = Relu(t) }}
        {FUNCTION.replace("Relu", "Abs")}"""
    graph = fire(WITH_FUNCTION, model)
    assert reasons(graph) == ["the model has another function com.acme::Ramp"]
    assert fire(WITH_FUNCTION, model.replace("Abs", "Relu")).sites


def test_a_function_without_opsets_uses_those_of_the_model() -> None:
    rule = Rule(WITH_FUNCTION.match, WITH_FUNCTION.emit, functions=FUNCTION.replace(', opset_import: ["": 21]', ""))
    (function,) = fire(rule, RELU, opset=19).ir.functions.values()
    assert function.opset_imports == {"": 19}


def test_a_rule_in_the_body_of_a_function() -> None:
    model = """<ir_version: 10, opset_import: ["": 21, "f": 1]>
        g (float[n] x) => (float[n] y) { y = f.twice(x) }
        <domain: "f", opset_import: ["": 21]> twice (x) => (y) { t = Relu(x) y = Max(t, x) }"""
    rule = Rule(("y = Relu(x)",), "z = com.acme::Ramp(x)\ny = Mul(z, float(2))", domains=(("com.acme", 2),))
    graph = fire(rule, model)
    (function,) = graph.ir.functions.values()
    assert function.opset_imports["com.acme"] == graph.ir.opset_imports["com.acme"] == 2
    assert sorted(node.op_type for node in function) == ["Constant", "Max", "Mul", "Ramp"]


def test_a_rule_that_matches_its_own_output_is_stopped() -> None:
    with pytest.raises(PassError, match="does not terminate"):
        fire(Rule(("y = Relu(x)",), "t = Relu(x)\ny = Neg(t)"), RELU)


def test_subgraphs_are_not_copied() -> None:
    source = """g (float[n] x, bool c) => (float[n] y) {
        t = Neg(x)
        y = If(c) <then_branch = a () => (float[n] u) { u = Relu(t) },
                   else_branch = b () => (float[n] v) { v = Abs(t) }>
    }"""
    graph = fire(Rule(("y = If(c)",), "y = If<y...>(c)"), source)
    assert [reason.partition(" holds")[2] for reason in reasons(graph)] == [" a subgraph, which is not copied"]
