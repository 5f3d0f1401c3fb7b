"""Runs of models with large tree ensembles: the same ensemble runs once on the same input, for all models compared.

ONNX Runtime takes seconds to create a session for an ensemble with lists of 200 MB, and ten times its bytes of memory.
Most changes are made elsewhere in the model. A model is run in pieces: the nodes upstream of an ensemble, the ensemble,
and the nodes downstream. If the ensemble has the same lists in another model, and its input is the same there bit by
bit, its outputs are known. Control runs, which show whether a model is deterministic, and runs as deployed are made in
whole.

An ensemble here is any node with such lists: a support vector machine has them as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from surgery.base.operators.dtypes import type_of
from surgery.model.proto.extract import cut, describe
from surgery.model.proto.randomness import origins
from surgery.model.runtime.engine import Engine, EngineName, Outputs, RunOutcome
from surgery.model.wire.stored_lists import digest, has_lists, is_stored, length
from surgery.verification.running.pieces import PieceEngine, Values, Whole, fed

if TYPE_CHECKING:
    from surgery.model.runtime.setup import SessionSetup

LARGE = 4 << 20
"""Bytes of the lists of a node from which it runs apart; the session of a smaller one takes less than 0.1 s."""

_MOST = 64 << 20
"""Bytes of the outputs that are kept."""


@dataclass
class KnownOutputs:
    """The outputs of large ensembles by node and input, with the processor time of each run in seconds."""

    _runs: dict[Hashable, tuple[list[Any], float]] = field(default_factory=dict)
    _left: int = _MOST

    @classmethod
    def of(cls, original: onnx.ModelProto) -> KnownOutputs | None:
        """Return a place for the outputs of the ensembles of a model; None if it has no large ones."""
        return cls() if any(map(_is_large, original.graph.node)) else None

    def __contains__(self, key: Hashable) -> bool:
        """Return whether something is known under a key."""
        return key in self._runs

    def under(self, key: Hashable, names: Sequence[str]) -> tuple[Outputs, float]:
        """Return the outputs under a key with these names, and the seconds of the run."""
        outputs, seconds = self._runs[key]
        return dict(zip(names, outputs)), seconds

    def add(self, key: Hashable, outputs: list[Any], seconds: float) -> None:
        """Keep outputs, unless too many are kept already."""
        size = sum(getattr(output, "nbytes", _MOST) for output in outputs)
        if size <= self._left and key not in self._runs:
            self._left -= size
            self._runs[key] = outputs, seconds


class EnsembleEngine(Engine):
    """ONNX Runtime for models with large ensembles, whose outputs are looked up in `known`, and added to it.

    What cannot run in pieces, or fails there, runs as a whole.
    """

    def __init__(
        self,
        name: EngineName,
        timeout: float,
        memory: int | None,
        weights: int,
        setup: SessionSetup | None = None,
        *,
        deployed: bool = False,
        known: KnownOutputs,
    ) -> None:
        super().__init__(name, timeout, memory, weights, setup, deployed=deployed)
        self._known = known
        # Its session is kept while other pieces run.
        self._apart = Engine(name, timeout, memory, 0, setup)

    def run(
        self, skeleton: bytes, feeds: Sequence[Mapping[str, Any]], *, keep: bool = False, bare: bool = False
    ) -> RunOutcome:
        """Run a model as `Engine.run` does, in pieces if it has a large ensemble."""
        divides = self.name == "onnxruntime" and bool(feeds) and has_lists(skeleton)
        found = self._in_pieces(skeleton, feeds, keep) if divides else None
        return found or super().run(skeleton, feeds, keep=keep, bare=bare)

    def run_each(
        self, skeletons: Sequence[bytes], feeds: Sequence[Mapping[str, Any]], *, room: int | None = None
    ) -> list[RunOutcome]:
        """Run models on the same inputs; `room` is not used where an ensemble runs apart."""
        if not any(map(has_lists, skeletons)):
            return super().run_each(skeletons, feeds, room=room)
        return [self.run(skeleton, feeds) for skeleton in skeletons]

    def kill(self) -> None:
        """Kill both workers."""
        super().kill()
        self._apart.kill()

    def rest(self) -> None:
        """End both workers until the next call, and return free memory."""
        self._apart.close()
        super().rest()

    def close(self) -> None:
        """End both workers."""
        self._apart.close()
        super().close()

    def _in_pieces(self, skeleton: bytes, feeds: Sequence[Mapping[str, Any]], keep: bool) -> RunOutcome | None:
        """Run a model in pieces; None if it has no large ensemble, cannot be divided, or a piece has no session."""
        model = onnx.load_model_from_string(skeleton)
        whole = Whole(model)
        large = {number for number, node in enumerate(whole.flow.nodes) if _is_large(node)}
        if not large or not whole.can_be_cut() or origins(model).operators:
            return None
        values: dict[int, Values] = {number: dict(feed) for number, feed in enumerate(feeds)}
        runs: list[Outputs | str] = [{} for _ in feeds]
        seconds = [0.0] * len(feeds)
        begin = 0
        for end in sorted({*large, *(number + 1 for number in large), len(whole.flow.nodes)} - {0}):
            known = list(values.values())
            ran = (
                self._apart_from(whole, begin, known, keep) if begin in large else self._piece(whole, begin, end, known)
            )
            if ran is None:
                return None
            for number, made, time in zip(list(values), ran.runs, ran.seconds):
                seconds[number] += time
                if isinstance(made, str):
                    runs[number] = made
                    del values[number]
                else:
                    values[number] = whole.needed({**values[number], **made}, end)
            if not values:
                break
            begin = end
        for number, known_at_end in values.items():
            runs[number] = {name: known_at_end[name] for name in whole.flow.outputs}
        return RunOutcome(runs=runs, seconds=seconds)

    def _piece(self, whole: Whole, begin: int, end: int, values: Sequence[Values]) -> RunOutcome | None:
        """Run nodes between ensembles on all inputs; None if that is not possible."""
        piece = whole.piece(begin, end, values)
        if not piece.graph.output:
            return RunOutcome(runs=[{}] * len(values), seconds=[0.0] * len(values))
        return _sound(super().run(piece.SerializeToString(), [fed(piece, known) for known in values]))

    def _apart_from(self, whole: Whole, number: int, values: Sequence[Values], keep: bool) -> RunOutcome | None:
        """Return the outputs of an ensemble on all inputs, of which it runs on those that are new."""
        node, read = whole.flow.nodes[number], whole.flow.reads[number]
        if len(read) != 1 or not all(_fits(whole.model, read[0], known.get(read[0])) for known in values):
            return None
        # Without a declared shape, one session serves inputs of all sizes.
        given = describe(read[0], values[0][read[0]], shape=False)
        piece = cut(whole.model, {read[0]: given}, [name for name in node.output if name])
        alike = key_of_node(whole.model, node)
        keys = [(alike, *_content(known[read[0]])) for known in values]
        new = [place for place, key in enumerate(keys) if key not in self._known]
        ran = RunOutcome()
        if new:
            feeds = [fed(piece, values[place]) for place in new]
            found = _sound(self._apart.run(piece.SerializeToString(), feeds, keep=keep))
            if found is None:
                return None
            ran = found
        made = dict(zip(new, zip(ran.runs, ran.seconds)))
        names = [value.name for value in piece.graph.output]
        runs, seconds = list[Outputs | str](), list[float]()
        for place, key in enumerate(keys):
            outputs, time = made[place] if place in made else self._known.under(key, names)
            if place in made and not isinstance(outputs, str):
                self._known.add(key, [outputs[name] for name in names], time)
            runs.append(outputs)
            seconds.append(time)
        return RunOutcome(runs=runs, seconds=seconds)


def engine_knowing(known: KnownOutputs | None, *, whole: bool) -> Callable[..., Engine]:
    """Return what makes the engine of a model that has large ensembles, if `known` is given.

    `whole` says whether the model fits into memory; if not, it runs in pieces.
    """
    if not whole:
        return PieceEngine
    return Engine if known is None else partial(EnsembleEngine, known=known)


def _sound(outcome: RunOutcome) -> RunOutcome | None:
    """Return an outcome that has runs without empty optional values, which cannot be passed on, else None."""
    made = (value for run in outcome.runs if not isinstance(run, str) for value in run.values())
    return None if outcome.failure is not None or any(value is None for value in made) else outcome


def _is_large(node: onnx.NodeProto) -> bool:
    return listed(node) >= LARGE


def _fits(model: onnx.ModelProto, name: str, value: object) -> bool:
    """Return whether a value is a tensor that the runtime accepts for an input of this name, if there is one."""
    if not isinstance(value, np.ndarray):
        return False
    for declared in (one.type.tensor_type for one in model.graph.input if one.name == name):
        dims = declared.shape.dim
        if declared.elem_type != type_of(value.dtype) or (declared.HasField("shape") and len(dims) != value.ndim):
            return False
        if any(dim.HasField("dim_value") and dim.dim_value != extent for dim, extent in zip(dims, value.shape)):
            return False
    return True


def _content(value: np.ndarray[Any, Any]) -> tuple[str, tuple[int, ...], bytes]:
    """Return the type, shape and digest of a tensor."""
    data = repr(value.tolist()).encode() if value.dtype.kind in "OUS" else np.ascontiguousarray(value).tobytes()
    return value.dtype.str, value.shape, hashlib.sha256(data).digest()


def listed(node: onnx.NodeProto) -> int:
    """Return the size of the lists of a node that are outside the skeleton, in bytes."""
    return sum(length(attribute) for attribute in node.attribute if is_stored(attribute))


def key_of_node(model: onnx.ModelProto, node: onnx.NodeProto) -> Hashable:
    """Return a key that is the same for nodes that compute the same, in models with the same opsets.

    Names do not matter, nor where the lists are stored. Raises ModelFileError.
    """
    bare = type(node)(op_type=node.op_type, domain=node.domain, overload=node.overload)
    bare.output.extend("there" if name else "" for name in node.output)
    lists: list[tuple[str, bytes]] = []
    for attribute in sorted(node.attribute, key=lambda one: one.name):
        if is_stored(attribute):
            lists.append((attribute.name, digest(attribute)))
        else:
            bare.attribute.append(attribute)
    opsets = frozenset((one.domain, one.version) for one in model.opset_import)
    return bare.SerializeToString(deterministic=True), tuple(lists), opsets, model.ir_version
