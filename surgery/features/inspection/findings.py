"""Findings to check before shipping a model: leftovers, pitfalls, and operators that other runtimes lack."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from surgery.base.errors import first_few
from surgery.base.json_record import Record
from surgery.features.inspection.constant_tensors import WeightSummary
from surgery.features.inspection.kernel_gaps import Gap
from surgery.features.inspection.releases import reader, release
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Node, Value
from surgery.model.storage.ir_scopes import scopes, values

if TYPE_CHECKING:
    import onnx

_MOST_NAMED = 3
_STANDARD = ("", "ai.onnx.ml")


@dataclass(frozen=True)
class Finding(Record):
    """One finding: a stable code, a one-sentence description, a count, and a remedy if there is one."""

    code: str
    what: str
    count: int
    todo: str = ""


def findings(proto: onnx.ModelProto, graph: Graph, weights: WeightSummary, gaps: list[Gap] | None) -> list[Finding]:
    """List the findings for a model, given its graph, its constants and the operators without a kernel."""
    return [
        *_ports(graph),
        *_types(graph),
        *_training(proto, graph),
        *_versions(proto, graph),
        *_portability(graph, gaps),
        *_leftovers(proto, graph, weights),
    ]


def _finding(code: str, names: list[str], what: str, todo: str = "") -> Iterator[Finding]:
    """Yield a finding about the named items, if there are any; `what` has a placeholder for the names."""
    if names:
        yield Finding(code, what.format(first_few(names, _MOST_NAMED)), len(names), todo)


def _ports(graph: Graph) -> Iterator[Finding]:
    unused = [value.name for value in graph.inputs() if not value.is_used]
    yield from _finding("unused-input", unused, "no node reads the input: {}", "drop-unused-inputs")
    given = [Value(graph, value).name for value in graph.ir.graph.inputs if Value(graph, value).is_overridable]
    what = "the initializer is overridable, so it is not folded: {}"
    yield from _finding("overridable-initializer", given, what, "initializers-from-inputs")
    constant = [value.name for value in graph.outputs() if _is_constant(value)]
    yield from _finding("constant-output", constant, "the output depends on no input: {}")
    same = [value.name for value in graph.outputs() if value.is_input]
    yield from _finding("input-as-output", same, "the output is an unchanged input: {}")


def _is_constant(value: Value) -> bool:
    """Return whether an output depends on no input, no random operator and no node with subgraphs."""
    seen: set[ir.Value] = set()
    pending = [value.ir]
    while pending:
        item = pending.pop()
        if item in seen:
            continue
        seen.add(item)
        producer = item.producer()
        if producer is None:
            if not item.is_initializer() or item.is_graph_input():
                return False
            continue
        if Node(value.graph, producer).is_random or Node(value.graph, producer).has_subgraphs:
            return False
        pending += [source for source in producer.inputs if source is not None]
    return True


def _types(graph: Graph) -> Iterator[Finding]:
    wide = [
        node.label
        for node in graph.nodes()
        if any(value.dtype == ir.DataType.DOUBLE for value in node.outputs if value.name)
    ]
    what = "computes in float64, for which accelerators have no kernels: {}"
    yield from _finding("float64", wide, what)


def _training(proto: onnx.ModelProto, graph: Graph) -> Iterator[Finding]:
    training = [node.label for node in graph.nodes("Dropout", "BatchNormalization") if _trains(node)]
    yield from _finding("training-mode", training, "runs in training mode: {}", "export the model in evaluation mode")
    dropout = [node.label for node in graph.nodes("Dropout") if node.label not in training]
    yield from _finding("dropout", dropout, "Dropout, which has no effect in inference: {}", "drop-dropout")
    if proto.training_info:
        yield Finding("training-info", "the model contains training graphs", len(proto.training_info))
    preview = [node.label for node in graph.nodes() if "training" in node.ir.domain]
    yield from _finding("training-operator", preview, "operator for training: {}")


def _trains(node: Node) -> bool:
    if node.op == "BatchNormalization":
        return len([value for value in node.outputs if value.name]) > 1
    mode = node.input(2)
    return mode is not None and mode.scalar is not False


def _versions(proto: onnx.ModelProto, graph: Graph) -> Iterator[Finding]:
    used: dict[str, int] = defaultdict(int)
    for node in graph.nodes():
        used[node.ir.domain] += 1
    unused = [domain or "ai.onnx" for domain in graph.ir.opset_imports if domain not in used and domain]
    yield from _finding("unused-opset", unused, "a domain is imported but not used: {}", "drop-unused-opsets")
    missing = [domain or "ai.onnx" for domain in used if domain not in graph.ir.opset_imports]
    yield from _finding("missing-opset", missing, "a domain is used but not imported: {}")
    mixed = [
        f"{function.domain}::{function.name} ({function.opset_imports['']})"
        for function in graph.ir.functions.values()
        if function.opset_imports.get("", graph.opset) != graph.opset
    ]
    what = f"functions have another opset than the model ({graph.opset}): {{}}"
    yield from _finding("mixed-opsets", mixed, what, "upgrade-opset")
    if release(graph.opset).runtime is None:
        yield Finding(
            "new-opset", f"no release of ONNX Runtime is known to run opset {graph.opset}", 1, "downgrade-opset"
        )
    if reader(proto.ir_version) is None:
        yield Finding("new-ir-version", f"no release of ONNX Runtime is known to read IR version {proto.ir_version}", 1)


def _portability(graph: Graph, gaps: list[Gap] | None) -> Iterator[Finding]:
    foreign: dict[str, list[str]] = defaultdict(list)
    local = {(function.domain, function.name) for function in graph.ir.functions.values()}
    for node in graph.nodes():
        if node.ir.domain not in _STANDARD and (node.ir.domain, node.ir.op_type) not in local:
            foreign[node.ir.domain].append(node.label)
    for domain, nodes in foreign.items():
        contrib = domain.startswith(("com.microsoft", "com.ms."))
        what = "operators of ONNX Runtime alone" if contrib else "operators that need a custom library"
        yield from _finding("contrib-operator" if contrib else "custom-operator", nodes, f"{domain}: {what}: {{}}")
    for gap in gaps or ():
        yield Finding("no-kernel", f"ONNX Runtime does not run {gap.op} on the CPU: {gap.why} ({gap.first})", gap.count)
    random = [node.label for node in graph.nodes() if not node.has_subgraphs and node.is_random]
    yield from _finding("random", random, "draws random numbers, so two runs differ: {}")


def _leftovers(proto: onnx.ModelProto, graph: Graph, weights: WeightSummary) -> Iterator[Finding]:
    if weights.wasted:
        what = f"{sum(len(names) - 1 for names in weights.duplicates)} constants are copies of others"
        yield Finding(
            "duplicate-weights", f"{what} ({weights.wasted:,} bytes)", len(weights.duplicates), "dedupe-initializers"
        )
    uncalled = [f"{function.domain}::{function.name}" for function in graph.uncalled()]
    yield from _finding("uncalled-function", uncalled, "nothing calls the function: {}", "drop-dead")
    unread = [value.name for value in graph.constants() if not value.is_used]
    yield from _finding("unused-initializer", unread, "nothing reads the initializer: {}", "drop-dead")
    dead = [node.label for node in graph.nodes() if not any(value.is_used for value in node.outputs)]
    yield from _finding("dead-node", dead, "nothing reads what is computed by: {}", "drop-dead")
    nameless = [node.label for node in graph.nodes() if not node.name]
    what = "without a name, so recipes cannot select it: {}"
    yield from _finding("nameless-node", nameless, what)
    made = (Value(graph, value) for value in values(scopes(graph.ir)) if value.name)
    vague = [value.name for value in made if value.shape is None and isinstance(value.type, ir.TensorType | None)]
    yield from _finding("unknown-shape", vague, "no shape can be inferred: {}")
