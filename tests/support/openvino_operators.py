"""List the operators that the installed OpenVINO converts.

Compare them with `surgery/model/targets/profiles/openvino.yaml`.

    python tests/support/openvino_operators.py

Each operator is read as a model of one node, in a process of its own, because some crash without their inputs. The
frontend says whether it has a rule for the conversion; any other message is about the node.
"""

from __future__ import annotations

import faulthandler
import os
import sys

import onnx
import openvino
from onnx import TensorProto, helper

_NEWEST = 21
"""The opset next to other domains."""


def has_rule(domain: str, op: str, version: int) -> bool:
    """Return whether OpenVINO converts a version of an operator at all."""
    process = os.fork()
    if process == 0:
        faulthandler.disable()
        os._exit(0 if _says_no_rule(domain, op, version) else 1)
    _, status = os.waitpid(process, 0)
    return status != 0


def converted() -> set[tuple[str, str]]:
    """Return the operators of ONNX, by domain and name, that OpenVINO converts in their newest version."""
    newest: dict[tuple[str, str], int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and not schema.deprecated:
            newest[schema.domain, schema.name] = max(newest.get((schema.domain, schema.name), 1), schema.since_version)
    return {key for key, version in newest.items() if has_rule(*key, version)}


def _says_no_rule(domain: str, op: str, version: int) -> bool:
    shaped = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    node = helper.make_node(op, ["x"], ["y"], domain=domain)
    graph = helper.make_graph([node], "g", [shaped], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    imports = [helper.make_opsetid("", _NEWEST if domain else version)]
    imports += [helper.make_opsetid(domain, version)] if domain else []
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    try:
        openvino.Core().read_model(model.SerializeToString())
    except Exception as error:
        return "No conversion rule found" in str(error)
    return False


if __name__ == "__main__":
    for _, name in sorted(converted()):
        sys.stdout.write(f"  {name}:\n")
