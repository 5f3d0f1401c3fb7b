"""Cuts of two versions of a model around the nodes in which they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.model.proto.dataflow import Flow
from surgery.model.proto.extract import cut, describe
from surgery.model.storage.summary import operators
from surgery.verification.comparing.fingerprint import trace

if TYPE_CHECKING:
    import onnx

MOST_NODES = 10
"""Maximum number of nodes to which a cut is grown."""

_PLAIN_IR = 10
"""The maximum IR version of a cut, which every recent runtime reads."""

_KINDS = "fiubU"


@dataclass(frozen=True)
class Cut:
    """The same part of two models: from the values in `feed` to `output`, the only output of both."""

    original: onnx.ModelProto
    changed: onnx.ModelProto
    feed: Mapping[str, Any]
    output: str

    @property
    def size(self) -> int:
        """The number of nodes of the larger side."""
        return max(count_nodes(self.original), count_nodes(self.changed))


def count_nodes(model: onnx.ModelProto) -> int:
    """Count the nodes of a model, including those of subgraphs and functions."""
    return sum(operators(model).values())


class Cutter:
    """Makes cuts; `record` returns values of the original by name, for the inputs in `feed`."""

    def __init__(
        self,
        original: onnx.ModelProto,
        changed: onnx.ModelProto,
        feed: Mapping[str, Any],
        record: Callable[[onnx.ModelProto, Sequence[str]], Mapping[str, Any]],
    ) -> None:
        self._models = _with_initializers(original), _with_initializers(changed)
        self._lineage = trace(*self._models)
        self._trusted = self._lineage.same | self._lineage.common
        self._values = {name: _as_array(value) for name, value in feed.items()}
        self._record = record

    def outputs(self) -> list[str]:
        """List the outputs of changed nodes that exist in both models, those next to the change first."""
        after = self._lineage.after
        found = [name for number in sorted(self._lineage.changed) for name in after.makes(number)]
        return [name for name in found if name in self._lineage.common]

    def prepare(self, outputs: Sequence[str]) -> None:
        """Record in one run the inputs of the smallest cuts to these values."""
        self._fetch({name for output in outputs for name in self._entering(output, frozenset())})

    def smallest(self, output: str) -> Cut | None:
        """Cut from the nearest values that both models have; None if some of them cannot be fed as inputs."""
        return self._cut(output, frozenset())

    def larger(self, output: str) -> Iterator[Cut]:
        """Yield ever larger cuts, extended downstream first and then upstream, as long as they are small."""
        for more in (self._further_down, self._further_up):
            for end, inside in more(output):
                found = self._cut(end, inside)
                if found is None or found.size > MOST_NODES:
                    break
                yield found

    def _further_down(self, output: str) -> Iterator[tuple[str, frozenset[str]]]:
        before, after = self._lineage.before, self._lineage.after
        end, inside = output, frozenset[str]()
        while True:
            inside |= {end}
            made = [name for number in before.readers.get(end, ()) for name in before.makes(number)]
            onward = [name for name in made if name in self._trusted and name in after.producers]
            if not onward or onward[0] in inside:
                return
            end = onward[0]
            yield end, inside

    def _further_up(self, output: str) -> Iterator[tuple[str, frozenset[str]]]:
        producers = self._lineage.before.producers
        inside = frozenset[str]()
        while True:
            entering = [name for name in self._entering(output, inside) if name in producers]
            if not entering:
                return
            inside |= {max(entering, key=lambda name: (producers[name], name))}
            yield output, inside

    def _entering(self, output: str, inside: frozenset[str]) -> set[str]:
        """Return the names of the values that enter the cut to an output from outside, without constants."""
        before, after = self._lineage.before, self._lineage.after
        stop = self._trusted - inside - {output}
        return {
            name
            for flow in (before, after)
            for number in flow.above([output], stop)
            for name in flow.reads[number]
            if name in stop and not _is_constant(flow, name)
        }

    def _cut(self, output: str, inside: frozenset[str]) -> Cut | None:
        while True:
            names = self._entering(output, inside)
            self._fetch(names)
            awkward = {name for name in names if not _is_plain(self._values[name])}
            if not awkward:
                break
            if not awkward <= set(self._lineage.before.producers):
                return None
            inside |= awkward
        feed = {name: self._values[name] for name in sorted(names)}
        original, changed = (_stripped(cut(model, feed, [output])) for model in self._models)
        return Cut(original, changed, feed, output)

    def _fetch(self, names: set[str]) -> None:
        missing = sorted(names - self._values.keys())
        if missing:
            recorded = self._record(self._models[0], missing)
            self._values.update((name, _as_array(value)) for name, value in recorded.items())


def _as_array(value: Any) -> Any:
    """Return a numpy scalar as an array without dims."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def _is_constant(flow: Flow, name: str) -> bool:
    return name in flow.constants


def _is_plain(value: Any) -> bool:
    """Return whether a value is a tensor that numpy can save to a file and load."""
    if not isinstance(value, np.ndarray):
        return False
    return value.dtype.isbuiltin == 1 and (value.dtype.kind in _KINDS or value.dtype.kind == "O")


def _with_initializers(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copy a model, with the Constant nodes of its main graph replaced by initializers."""
    import onnx

    result = deepcopy(model)
    kept = []
    for node in result.graph.node:
        if node.op_type == "Constant" and not node.domain and node.attribute[0].name == "value":
            tensor = deepcopy(node.attribute[0].t)
            tensor.name = node.output[0]
            result.graph.initializer.append(tensor)
        else:
            kept.append(node)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
    del result.graph.node[:]
    result.graph.node.extend(copies)
    # From IR version 4 on, an initializer need not be listed among the inputs.
    result.ir_version = max(4, min(result.ir_version, _PLAIN_IR))
    return result


def _stripped(model: onnx.ModelProto) -> onnx.ModelProto:
    """Remove the declared types in place, because they refer to dims that the cut does not have."""
    del model.graph.value_info[:]
    for index, output in enumerate(model.graph.output):
        model.graph.output[index].CopyFrom(describe(output.name, None))
    return model
