"""Compute values that are the same in every run, with the kernels that the model itself would use.

Only the nodes upstream of the wanted values are extracted, with their weights left in place, and run in a worker
process: a division by zero crashes only that process, and a Range of 10^12 elements hits a memory limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from surgery.base.errors import SurgeryError, WorkerError, require_machine
from surgery.base.workers import Worker, WorkerRaised
from surgery.model.graph.traversal import post_order
from surgery.model.storage import Weights, proto_from_ir
from surgery.model.storage.node_constants import constant_of

if TYPE_CHECKING:
    from surgery.model.graph.state import GraphState
    from surgery.model.graph.values import Value

# Verification runs models the same way, so a folded value has exactly the bits that the model would compute.
RUNTIME = "surgery.model.runtime.sessions:run"
REFERENCE = "surgery.model.runtime.reference_runs:run"

TIMEOUT = 60.0
MEMORY = 2 << 30
TOGETHER = 64 << 20
"""Maximum bytes of results, where sizes are known, that are computed in one run and kept in memory at a time."""

TOO_LARGE = "the result is too large"
TOO_MUCH_MEMORY = "computing it takes too much memory"
TOO_LONG = "computing it takes too long"
CRASHES = "computing it crashes the runtime"
FAILS = "it cannot be computed"
UNSUPPORTED = "no runtime computes it"
NO_TENSOR = "the result is not a tensor"

_BLAMED = re.compile(r"\bn(\d+)_")


@dataclass(frozen=True)
class Computed:
    """The tensor of a value, equal in every run, or the reason why it is unknown."""

    tensor: ir.TensorProtocol | None
    reason: str = ""


def compute(
    values: Sequence[Value],
    *,
    given: Mapping[Value, np.ndarray[Any, Any] | ir.TensorProtocol] | None = None,
    max_bytes: int | None = None,
    timeout: float = TIMEOUT,
    memory: int = MEMORY,
) -> list[Computed]:
    """Compute values that depend only on constants, in ONNX Runtime, or else in the reference evaluator of onnx.

    `given` has values that are already known. A value larger than `max_bytes`, if its size is known, or one that needs
    an intermediate result larger than half of `memory` (in bytes), is not computed. `timeout`, in seconds, limits each
    run. The values must not depend on inputs, random operators, control flow or model-local functions.
    """
    known = {
        value.ir: ir.Tensor(content) if isinstance(content, np.ndarray) else content
        for value, content in (given or {}).items()
    }
    results: dict[ir.Value, Computed] = {}
    groups: dict[tuple[tuple[str, int], ...], dict[ir.Value, int]] = {}
    for value in values:
        if _is_leaf(value.ir, known):
            results[value.ir] = Computed(known.get(value.ir, value.tensor))
            continue
        size = _bytes(value)
        if max_bytes is not None and size is not None and size > max_bytes:
            results[value.ir] = Computed(None, TOO_LARGE)
            continue
        cone = _cone([value.ir], known)
        made = (type(value)(value.graph, output) for node in cone for output in node.outputs)
        if any((_bytes(output) or 0) > memory // 2 for output in made):
            results[value.ir] = Computed(None, TOO_MUCH_MEMORY)
            continue
        imports = value.graph.imports_of(cone[-1]) if cone else {}
        groups.setdefault(tuple(sorted(imports.items())), {})[value.ir] = size or 0
    for pairs, sizes in groups.items():
        with Worker(timeout=timeout, memory=memory, preload=["onnxruntime"]) as worker:
            group = _OpsetGroup(worker, dict(pairs), values[0].graph, known)
            for batch in _batches(sizes):
                results.update(group.run(batch))
    return [results[value.ir] for value in values]


def _batches(sizes: Mapping[ir.Value, int]) -> Iterator[list[ir.Value]]:
    """Split values into a few runs with results of moderate size."""
    batch: list[ir.Value] = []
    held = 0
    for value, size in sizes.items():
        if batch and held + size > TOGETHER:
            yield batch
            batch, held = [], 0
        batch.append(value)
        held += size
    if batch:
        yield batch


def _bytes(value: Value) -> int | None:
    """Return the size of a tensor in bytes; None if shape inference does not determine it."""
    if value.dtype is None or value.size is None or value.dtype == ir.DataType.STRING:
        return None
    return int(value.size * value.dtype.itemsize)


def _is_leaf(value: ir.Value, known: Mapping[ir.Value, ir.TensorProtocol]) -> bool:
    return value in known or value.producer() is None or constant_of(value) is not None


def _cone(values: Sequence[ir.Value], known: Mapping[ir.Value, ir.TensorProtocol]) -> list[ir.Node]:
    """List the nodes that the values depend on, each after the producers of its inputs."""

    def needed(inputs: Iterable[ir.Value | None]) -> list[ir.Node | None]:
        return [None if value is None or _is_leaf(value, known) else value.producer() for value in inputs]

    return post_order(reversed(needed(values)), lambda node: needed(node.inputs))


class _OpsetGroup:
    """Values whose operators come from the same opsets, so that they can share a session."""

    def __init__(
        self,
        worker: Worker,
        imports: dict[str, int],
        graph: GraphState,
        known: Mapping[ir.Value, ir.TensorProtocol],
    ) -> None:
        self.worker = worker
        self.imports = imports
        self.graph = graph
        self.known = known

    def run(self, values: list[ir.Value]) -> dict[ir.Value, Computed]:
        """Compute all values in one run; if it fails, retry without those that caused the failure, or in halves."""
        results: dict[ir.Value, Computed] = {}
        pending = [values]
        while pending:
            batch = pending.pop()
            cone = _cone(batch, self.known)
            found, reason, blamed = self._try(RUNTIME, batch, cone)
            if found is not None:
                results.update(found)
            elif len(batch) == 1:
                results[batch[0]] = self._alone(batch, cone, reason)
            else:
                guilty = self._dependents(batch, cone[blamed]) if blamed is not None else []
                if guilty and len(guilty) < len(batch):
                    innocent = set(batch) - set(guilty)
                    pending += [[value] for value in guilty]
                    pending.append([value for value in batch if value in innocent])
                else:
                    pending += [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
        return results

    def _alone(self, batch: list[ir.Value], cone: list[ir.Node], reason: str) -> Computed:
        if reason != UNSUPPORTED:
            return Computed(None, reason)
        found, _, _ = self._try(REFERENCE, batch, cone)
        return Computed(None, UNSUPPORTED) if found is None else found[batch[0]]

    def _dependents(self, batch: list[ir.Value], node: ir.Node) -> list[ir.Value]:
        """List the values that depend on a node."""
        return [value for value in batch if node in _cone([value], self.known)]

    def _try(
        self, function: str, batch: list[ir.Value], cone: list[ir.Node]
    ) -> tuple[dict[ir.Value, Computed] | None, str, int | None]:
        """Run once; return the results, or a reason and the position of the failing node, if the message names one."""
        with ExitStack() as stack:
            weights = stack.enter_context(Weights())
            try:
                skeleton = proto_from_ir(self._model(batch, cone), weights).SerializeToString()
                limits = {"limit": MEMORY // 2} if function == RUNTIME else {}
                answer = self.worker.call(function, skeleton=skeleton, feeds=[{}], **limits)
            except WorkerError as error:
                return None, _ended(error, function), None
            except SurgeryError as error:
                require_machine(error)
                return None, FAILS, None
        if "unsupported" in answer or "invalid" in answer:
            message = answer.get("unsupported") or answer["invalid"]
            return None, UNSUPPORTED if "unsupported" in answer else FAILS, _position(message, len(cone))
        outputs = answer["runs"][0]
        if isinstance(outputs, str):
            reason = TOO_MUCH_MEMORY if "allocate memory" in outputs or "bad_alloc" in outputs else FAILS
            return None, reason, _position(outputs, len(cone))
        # Results are popped one by one, so that a large result is in memory only once.
        made = [self._computed(outputs.pop(name)) for name in list(outputs)]
        return dict(zip(batch, made)), "", None

    def _computed(self, result: Any) -> Computed:
        if not isinstance(result, np.ndarray):
            return Computed(None, NO_TENSOR)
        if result.dtype == object:
            texts = [item.encode() if isinstance(item, str) else bytes(item) for item in result.reshape(-1)]
            return Computed(ir.StringTensor(texts, shape=ir.Shape(result.shape)))
        return Computed(self.graph.store(ir.Tensor(np.ascontiguousarray(result).reshape(result.shape))))

    def _model(self, batch: list[ir.Value], cone: list[ir.Node]) -> ir.Model:
        """Copy the nodes into a separate model, with names by position; tensors are shared."""
        copies: dict[ir.Value, ir.Value] = {}
        leaves: list[ir.Value] = []

        def copy(value: ir.Value) -> ir.Value:
            if value not in copies:
                tensor = self.known.get(value, constant_of(value))
                if tensor is None:
                    raise SurgeryError(f"{value.name} is not a constant")
                copies[value] = ir.Value(
                    name=f"c{len(copies)}",
                    type=ir.TensorType(tensor.dtype),
                    shape=ir.Shape(tensor.shape.numpy()),
                    const_value=tensor,
                )
                leaves.append(copies[value])
            return copies[value]

        nodes = []
        for position, node in enumerate(cone):
            inputs = [None if value is None else copy(value) for value in node.inputs]
            outputs = [
                ir.Value(name=f"v{position}_{index}" if value.name else "") for index, value in enumerate(node.outputs)
            ]
            copies.update(zip(node.outputs, outputs))
            nodes.append(
                ir.Node(
                    node.domain,
                    node.op_type,
                    inputs,
                    list(node.attributes.values()),
                    overload=node.overload,
                    outputs=outputs,
                    name=f"n{position}_",
                )
            )
        wanted = [copies[value] for value in batch]
        graph = ir.Graph([], wanted, nodes=nodes, initializers=leaves, opset_imports=self.imports, name="constants")
        return ir.Model(graph, ir_version=max(self.graph.ir.ir_version, 4))


def _position(message: str, count: int) -> int | None:
    """Return the position of the node named in a native error message, if any."""
    found = _BLAMED.search(message)
    position = int(found.group(1)) if found else count
    return position if position < count else None


def _ended(error: WorkerError, function: str) -> str:
    """Return the reason why a run failed; re-raise errors that are our own bugs."""
    from surgery.base.workers import OUT_OF_MEMORY, TIMEOUT

    if error.stage == WorkerError.START:
        require_machine(error)
    if error.signal == OUT_OF_MEMORY:
        return TOO_MUCH_MEMORY
    if error.signal == TIMEOUT:
        return TOO_LONG
    if not isinstance(error, WorkerRaised):
        return CRASHES
    # Both runners return the errors of the runtime, and raise only their own bugs.
    if function == RUNTIME:
        raise error
    return UNSUPPORTED
