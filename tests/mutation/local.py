"""Is a wrong rewrite of a large model seen anywhere? An answer that uses nothing of `surgery.verification`.

Both models run on the same inputs. Then the nodes that differ are cut out of both and run alone: on the values that
the original has at the border of that piece, and on others of the same types and shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mutation.draft import bodies
from mutation.witness import Child, _distance, run, widen

CLEAR = 1e-3
"""Relative difference that is no rounding."""
WIDE = 1e-10
"""Relative difference that is rounding in float64."""
_DRAWS = 12

Feed = dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """Where a rewrite shows, from strongest to weakest.

    `where` is "output": an output of the model clearly differs; "inside": the piece clearly differs on values that the
    model has there; "rounding": only by what could be rounding; "drawn": the piece differs, but only on values that
    the model was not seen to have; "nowhere"; "invalid": it does not run.
    """

    where: str
    detail: str = ""

    @property
    def wrong(self) -> bool:
        return self.where in ("output", "inside")


def _wide(data: bytes, feeds: Sequence[Feed]) -> Any:
    """Run a model in float64 in ONNX Runtime; a text where that has no kernel. The reference evaluator takes hours."""
    wide = [{k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in feed.items()} for feed in feeds]
    return run(widen(onnx.load_model_from_string(data)).SerializeToString(), wide)


class Local:
    """Looks for the differences between one original and its mutants."""

    def __init__(self, original: onnx.ModelProto, feeds: Sequence[Feed], child: Child) -> None:
        self._original, self._child = original, child
        answer = child(run, original.SerializeToString(), list(feeds))
        self.problem = answer if isinstance(answer, str) else ""
        kept = [] if self.problem else [(f, r) for f, r in zip(feeds, answer) if not isinstance(r, str)]
        self.feeds, self.results = [feed for feed, _ in kept], [result for _, result in kept]

    def look(self, mutant: onnx.ModelProto) -> Seen:
        """Say where a mutant shows."""
        answer = self._child(run, mutant.SerializeToString(), self.feeds)
        if isinstance(answer, str) or all(isinstance(item, str) for item in answer):
            return Seen("invalid", answer if isinstance(answer, str) else str(answer[0]))
        apart = _distance(self.results, answer)
        if apart > CLEAR:
            return Seen("output", f"{apart:.1e}")
        inside = self._piece(mutant)
        if inside is None:
            return Seen("rounding" if apart else "nowhere", f"{apart:.1e}, the piece does not run alone")
        recorded, drawn = inside
        if recorded > CLEAR:
            if self._cancels(mutant):
                return Seen("cancels", f"{recorded:.1e} there, {apart:.1e} at the outputs")
            return Seen("inside", f"{recorded:.1e} there, {apart:.1e} at the outputs")
        if apart or recorded:
            return Seen("rounding", f"{recorded:.1e} there, {apart:.1e} at the outputs")
        return Seen("drawn", f"{drawn:.1e}") if drawn else Seen("nowhere")

    def _cancels(self, mutant: onnx.ModelProto) -> bool:
        """Return whether the float outputs of both, in float64, are the same on all inputs."""
        if any(np.asarray(value).dtype.kind != "f" for value in self.results[0].values()):
            return False
        answers = [self._child(_wide, model.SerializeToString(), self.feeds) for model in (self._original, mutant)]
        if any(isinstance(answer, str) or any(isinstance(item, str) for item in answer) for answer in answers):
            return False
        return _distance(*answers) <= WIDE

    def _piece(self, mutant: onnx.ModelProto) -> tuple[float, float] | None:
        """Return the largest difference of the piece on recorded values, and on drawn ones."""
        names, mine, theirs = _changed(self._original, mutant)
        shown = onnx.ModelProto()
        shown.CopyFrom(self._original)
        known = {output.name for output in shown.graph.output} | {port.name for port in shown.graph.input}
        shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
        answer = self._child(run, shown.SerializeToString(), self.feeds)
        if isinstance(answer, str):
            return None
        recorded = [
            {name: (result | feed)[name] for name in names}
            for feed, result in zip(self.feeds, answer)
            if not isinstance(result, str) and all(name in result or name in feed for name in names)
        ]
        if not recorded or not all(isinstance(v, np.ndarray) for values in recorded for v in values.values()):
            return None
        drawn = list(_drawn(recorded))
        found = []
        pieces = [_cut(model, nodes, recorded[0], mine, theirs) for model, nodes in
                  ((self._original, mine), (mutant, theirs))]  # fmt: skip
        for given in (recorded, drawn):
            one, other = (self._child(run, piece, given) for piece in pieces)
            if isinstance(one, str) or isinstance(other, str):
                return None
            both = [(a, b) for a, b in zip(one, other) if not isinstance(a, str)]
            found.append(_distance([a for a, _ in both], [b for _, b in both]))
        return found[0], found[1]


def _changed(a: onnx.ModelProto, b: onnx.ModelProto) -> tuple[list[str], list[Any], list[Any]]:
    """Return what the differing nodes of both read from outside, and these nodes of each."""
    tables = [_constants(model) for model in (a, b)]
    prints = [[_print(node, table) for node in model.graph.node] for model, table in zip((a, b), tables)]
    sides = []
    for model, own, other in ((a, *prints), (b, *reversed(prints))):
        seen = set(other)
        sides.append([n for n, text in zip(model.graph.node, own) if text not in seen and n.op_type != "Constant"])
    names: dict[str, None] = {}
    for nodes, table in zip(sides, tables):
        made = {name for node in nodes for name in node.output}
        names |= dict.fromkeys(n for node in nodes for n in _reads(node) if n not in made and n not in table)
    return list(names), *sides


def _constants(model: onnx.ModelProto) -> dict[str, bytes]:
    """Return the constants of the main graph by name, as bytes."""
    given = {port.name for port in model.graph.input}
    made = {n.output[0]: n.SerializeToString() for n in model.graph.node if n.op_type == "Constant"}
    return made | {t.name: t.SerializeToString() for t in model.graph.initializer if t.name not in given}


def _print(node: onnx.NodeProto, constants: dict[str, bytes]) -> tuple[bytes, ...]:
    return (node.SerializeToString(deterministic=True), *(constants.get(name, b"") for name in _reads(node)))


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node reads, those that its bodies capture too."""
    yield from (name for name in node.input if name)
    for body in bodies([node]):
        made = {t.name for t in body.initializer} | {p.name for p in body.input}
        made |= {name for inner in body.node for name in inner.output}
        yield from (name for inner in body.node for name in _reads(inner) if name not in made)


def _cut(model: onnx.ModelProto, nodes: list[Any], given: Feed, mine: list[Any], theirs: list[Any]) -> bytes:
    """Make a model of some nodes; what both sides make goes out."""
    made = [{name for node in side for name in node.output if name} for side in (mine, theirs)]
    # What the mutant renamed inside does not count; at least the last value is there on both sides.
    outputs = [name for name in dict.fromkeys(n for node in nodes for n in node.output) if name in made[0] & made[1]]
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim)
        for name, value in given.items()
    ]
    piece = onnx.ModelProto()
    piece.CopyFrom(model)
    constants = [node for node in model.graph.node if node.op_type == "Constant"]
    read = {name for node in nodes for name in _reads(node)}
    tensors = [tensor for tensor in model.graph.initializer if tensor.name in read and tensor.name not in given]
    piece.graph.Clear()
    piece.graph.name = "piece"
    piece.graph.node.extend([*(n for n in constants if n.output[0] in read), *nodes])
    piece.graph.initializer.extend(tensors)
    piece.graph.input.extend(inputs)
    piece.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    return piece.SerializeToString()


def _drawn(recorded: Sequence[Feed]) -> Iterator[Feed]:
    """Draw values of the types and shapes that were recorded: floats anew, others in another order."""
    rng = np.random.default_rng(3)
    for trial in range(_DRAWS):
        feed = {}
        for name, value in recorded[trial % len(recorded)].items():
            if value.dtype.kind == "f":
                made = rng.standard_normal(value.shape) * (1, 10, 0.1, 100)[trial % 4]
                feed[name] = np.asarray(made).astype(value.dtype)
            else:
                feed[name] = rng.permutation(value.reshape(-1)).reshape(value.shape)
        yield feed


def names_of(items: Iterable[Any]) -> str:
    """Return the operators of some nodes, for a report."""
    return ", ".join(dict.fromkeys(node.op_type for node in items))


def describe(original: onnx.ModelProto, mutant: onnx.ModelProto) -> str:
    """Say which nodes a mutant changed, for a report."""
    _, mine, theirs = _changed(original, mutant)
    first = next((node for node in (*mine, *theirs)), None)
    place = "" if first is None else f" at '{first.name or first.output[0]}'"
    return f"{names_of(mine[:4]) or 'nothing'} -> {names_of(theirs[:4]) or 'nothing'}{place}"
