"""Statements of runs in which a step is undone."""

import json
from pathlib import Path

import onnx

from surgery.engine.provenance import statement
from surgery.interface import commands as cli


def test_a_step_that_is_undone_again_writes_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "m.onnxtxt").write_text(
        '<ir_version: 10, opset_import: ["" : 21]> '
        "g (float[n,4] x) => (float[n,4] y) { i = Identity(x) r = Relu(i) y = Neg(r) }"
    )
    (tmp_path / "wrong.py").write_text(
        "from surgery import Graph, graph_pass\n\n"
        '@graph_pass("undone-each-time")\n'
        "def undone_each_time(graph: Graph) -> None:\n"
        '    """Turn each Relu into Abs."""\n'
        '    for node in graph.nodes("Relu"):\n'
        "        with graph.site(node) as new:\n"
        '            new.replace(node.outputs[0], new.node("Abs", node.required_input(0)))\n'
    )
    recipe = "recipe: r\non_failure: rollback\nplugins: [./wrong.py]\nsteps: [drop-identity, undone-each-time]\n"
    (tmp_path / "r.yaml").write_text(recipe)
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    apply = ["apply", "--quiet", "--trust", str(tmp_path / "r.yaml")]
    assert cli.main([*apply, str(tmp_path / "m.onnxtxt"), "-o", str(first)]) == 0
    assert [node.op_type for node in onnx.load(first).graph.node] == ["Relu", "Neg"]
    steps = json.loads(str(statement.carried(onnx.load(first))))["predicate"]["surgery_steps"]
    assert [step.get("status") for step in steps] == [None, "rolled_back"]
    assert cli.main([*apply, str(first), "-o", str(second)]) == 0
    assert second.read_bytes() == first.read_bytes()
