"""Static checks of a model: the findings of onnx's checker, and its signature."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from copy import deepcopy
from typing import TYPE_CHECKING

from surgery.base.errors import WorkerError, require_machine
from surgery.base.operators.forms import plain_domain
from surgery.base.operators.subgraphs import graphs, nodes
from surgery.base.workers import Worker, stage
from surgery.model.wire.stored_lists import without_lists

if TYPE_CHECKING:
    import onnx


CHECK_TIMEOUT = 120.0
"""Seconds for the checker and the strict shape inference together; they read a skeleton, never weights."""

INFERENCE = "shape inference: "
"""The prefix of a finding that may concern what a model declares, rather than what it computes."""

_UNDEFINED = "No Op registered for "
"""The beginning of what the checker says of an operator that onnx does not define."""

_NAMES = re.compile(r"'[^']*'|\"[^\"]*\"|\([^()]*\)|\bName: ?\S*(?= OpType)|\d+|\S+(?= in initializer but not)")


_UNSUPPORTED = re.compile(r"\S+ typestr: \S+, has unsupported type: .*?(\w+)\)*$")
"""The finding of an input or output whose element type an operator does not take."""


class Checker:
    """onnx's checker and its strict shape inference, in one worker for many models.

    Operators of the standard domain that onnx does not define are a finding, except for those of the `original`.
    """

    def __init__(self, *, timeout: float = CHECK_TIMEOUT, memory: int | None = None, original: bytes = b"") -> None:
        self._worker = Worker(timeout=timeout, memory=memory)
        self._original = original
        self._own = [_OWN]
        self._ended = False

    def check(self, skeleton: bytes) -> list[str]:
        """Return the findings of both in a model, one line each.

        Each of them stops at its first finding, so there are at most two. A crash is a finding too, and so is exceeding
        the limits of time or memory.
        """
        found = self._found(skeleton)
        if self._original and any(_UNDEFINED in finding for finding in found):
            self._own += _undefined(self._original)
            self._original = b""
            return self._found(skeleton)
        return found

    def _found(self, skeleton: bytes) -> list[str]:
        findings = []
        for function, more in (("run_checker", {"own": self._own}), ("run_inference", {})):
            if self._ended:
                return ["checker: called off"]
            try:
                name = f"surgery.verification.verdict.checks:{function}"
                findings += self._worker.call(name, skeleton=skeleton, **more)
            except WorkerError as error:
                require_machine(error)
                findings.append(error.what)
        return findings

    def new(
        self,
        original: bytes,
        known: list[str],
        changed: bytes,
        found: list[str],
        misdeclared: Callable[[], frozenset[str]],
    ) -> list[str]:
        """Return the findings in a changed model that are neither `known` in the original nor due to its declarations.

        `misdeclared` returns the outputs of the original whose declared shapes differ from those that it computes.
        """
        import onnx

        new = new_findings(known, found)
        if not any(item.startswith(INFERENCE) for item in new):
            return new
        contradicts_itself = any(item.startswith(INFERENCE) for item in known)
        wrong = None if contradicts_itself else misdeclared()
        if wrong is not None and not wrong:
            return new
        first, second = (onnx.load_model_from_string(skeleton) for skeleton in (original, changed))
        return new_findings(*(self.check(without_declared(model, first, wrong)) for model in (first, second)))

    def kill(self) -> None:
        """Stop the check of another thread, which then fails, and make no further checks."""
        self._ended = True
        self._worker.kill()

    def close(self) -> None:
        """Stop the worker."""
        self._worker.close()


def check(skeleton: bytes, *, timeout: float = CHECK_TIMEOUT, memory: int | None = None) -> list[str]:
    """Check a single model, see `Checker`; `timeout` in seconds, `memory` in bytes."""
    with closing(Checker(timeout=timeout, memory=memory)) as checker:
        return checker.check(skeleton)


def new_findings(original: list[str], changed: list[str]) -> list[str]:
    """Return the findings of the changed model that the original does not have.

    Names, indices and numbers are ignored: a pass may rename a node that was wrong before. So is the operator that does
    not take an element type: inference stops at the first, and the next may remain where a change mends that one.
    """
    known = {_form(finding) for finding in original}
    return [finding for finding in changed if _form(finding) not in known]


def _form(finding: str) -> str:
    """Return what identifies a finding in models with other names."""
    unsupported = _UNSUPPORTED.search(finding)
    return f"unsupported: {unsupported[1]}" if unsupported else _NAMES.sub("", finding)


def without_declared(model: onnx.ModelProto, original: onnx.ModelProto, names: frozenset[str] | None = None) -> bytes:
    """Copy a model without the shapes of inner values and outputs that it declares exactly as the original does.

    If the original's declarations contradict each other, the contradiction found first says nothing about a change.
    `names` limits the removal to these values.
    """
    values = (value for graph in graphs(original.graph) for value in _typed(graph))
    known = {value.SerializeToString(deterministic=True) for value in values if names is None or value.name in names}
    copy = deepcopy(model)
    for graph in graphs(copy.graph):
        kept = [one for one in graph.value_info if one.SerializeToString(deterministic=True) not in known]
        del graph.value_info[:]
        graph.value_info.extend(kept)
        for value in graph.output:
            if value.type.HasField("tensor_type") and value.SerializeToString(deterministic=True) in known:
                value.type.tensor_type.ClearField("shape")
    data: bytes = copy.SerializeToString(deterministic=True)
    return data


def _typed(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from graph.value_info
    yield from graph.output


def run_checker(skeleton: bytes, own: Sequence[str] = ()) -> list[str]:
    """Run onnx's checker, in a worker whose working directory is the root: external data is found from there.

    Of the operators of the standard domain, it does not check those in `own`.
    """
    import onnx.checker

    stage("checker")
    try:
        onnx.checker.check_model(_with_own_domain(without_lists(skeleton), own), full_check=False)
    except Exception as error:
        return [f"checker: {_one_line(str(error))}"]
    return []


def run_inference(skeleton: bytes) -> list[str]:
    """Run onnx's strict shape inference, which is what the checker's full check adds."""
    import onnx.shape_inference

    stage("shape inference")
    try:
        onnx.shape_inference.infer_shapes(_with_dense(without_lists(skeleton)), check_type=True, strict_mode=True)
    except Exception as error:
        return [f"{INFERENCE}{_one_line(str(error))}"]
    return []


_OWN = "SimplifiedLayerNormalization"
"""An operator that ONNX Runtime defines in the standard domain, in which its optimizer and its exporters write it."""


def _undefined(skeleton: bytes) -> list[str]:
    """List the operators of a model that have the standard domain, although onnx does not define them."""
    import onnx

    model = onnx.load_model_from_string(skeleton)
    standard = dict.fromkeys(node.op_type for node in nodes(model) if not plain_domain(node.domain))
    functions = {function.name for function in model.functions if not plain_domain(function.domain)}
    return [name for name in standard if name not in functions and not onnx.defs.has(name)]


def _with_own_domain(skeleton: bytes, own_operators: Sequence[str]) -> bytes:
    """Move nodes of these operators from the standard domain to that of ONNX Runtime, where the checker skips them."""
    import onnx

    if not any(name.encode() in skeleton for name in own_operators):
        return skeleton
    model = onnx.load_model_from_string(skeleton)
    for imports, found in (
        (model.opset_import, (node for graph in graphs(model.graph) for node in graph.node)),
        *((function.opset_import, function.node) for function in model.functions),
    ):
        own = [node for node in found if node.op_type in own_operators and node.domain in ("", "ai.onnx")]
        for node in own:
            node.domain = "com.microsoft"
        if own and all(one.domain != "com.microsoft" for one in imports):
            imports.add(domain="com.microsoft", version=1)
    data: bytes = model.SerializeToString()
    return data


def _with_dense(skeleton: bytes) -> bytes:
    """Declare the sparse initializers of a model as dense ones without data, where it has some.

    The inference of onnx takes a sparse initializer for a value without dims, and so rejects each operator that reads
    one, though runtimes compute with the dense tensor.
    """
    import onnx

    model = onnx.load_model_from_string(skeleton)
    sparse = [graph for graph in graphs(model.graph) if graph.sparse_initializer]
    for graph in sparse:
        for tensor in graph.sparse_initializer:
            dense = graph.initializer.add(name=tensor.values.name, data_type=tensor.values.data_type, dims=tensor.dims)
            dense.data_location = onnx.TensorProto.EXTERNAL
            dense.external_data.add(key="location", value="sparse")
        del graph.sparse_initializer[:]
    declared: bytes = model.SerializeToString() if sparse else skeleton
    return declared


def _one_line(message: str) -> str:
    return " ".join(message.split())[:500]
