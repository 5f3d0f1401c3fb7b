"""The copy of a model that workers get has no metadata in its nodes, and is otherwise the same."""

import onnx
import onnx.parser

from surgery.model.runtime.metadata import without_metadata

MODEL = """
<ir_version: 10, opset_import: ["": 21, "local": 1]>
g (float[N] x) => (float[N] y) { t = local.double(x) y = Relu(t) }
<domain: "local", opset_import: ["": 21]>
double (a) => (b) { b = Add(a, a) }
"""


def test_only_metadata_and_doc_strings_of_nodes_are_removed() -> None:
    plain = onnx.parser.parse_model(MODEL)
    noted = onnx.parser.parse_model(MODEL)
    for node in (*noted.graph.node, *noted.functions[0].node):
        node.doc_string = "from forward()"
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value="File model.py, line 1")
    assert without_metadata(noted.SerializeToString()) == plain.SerializeToString()


def test_a_model_without_metadata_is_the_same_bytes() -> None:
    data = onnx.parser.parse_model(MODEL).SerializeToString()
    assert without_metadata(data) is data
