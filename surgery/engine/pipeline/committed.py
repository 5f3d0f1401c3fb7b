"""The committed model, and the graph that passes work on."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from surgery.base.errors import ModelFileError
from surgery.engine.bridges.run_pass import PassResult
from surgery.engine.pipeline.candidate import Candidate, State
from surgery.engine.recipe.schema import PassStep
from surgery.model import storage
from surgery.model.graph.graph import Graph
from surgery.model.shapes.facts import NO_DOUBTS, Doubts
from surgery.model.targets import STANDARD, Target

if TYPE_CHECKING:
    import onnx

    from surgery.engine.registry.passes import Pass

_Key = tuple["Pass", str, frozenset[int]]


class CommittedModel:
    """The state that passes start from. A pass works on the live graph, which is rebuilt if a refused pass changed it.

    Raises `ModelFileError` if the graph has a cycle.
    """

    def __init__(self, stored: storage.StoredModel, target: Target = STANDARD, *, keeps_empty: bool = False) -> None:
        self.stored = stored
        self.keeps_empty = keeps_empty
        self.target = target
        self.doubts: Doubts = NO_DOUBTS
        self._names: frozenset[str] = frozenset()
        # Standard passes that changed nothing; they change nothing when they run again on the same model.
        self._unchanged: dict[_Key, Candidate] = {}
        # Steps that were refused as a whole, with the model on which they were refused.
        self._refused: dict[_Key, tuple[bytes, Candidate]] = {}
        # Results that passes computed for the state, see `Graph.remember`.
        self._memory: tuple[bytes, dict[Hashable, Any]] = b"", {}
        self.state = self._loaded = self._read()

    def _read(self) -> State:
        loaded = storage.without_alias(self.stored.proto)
        ring = self._load(loaded)
        self._names = self.graph.reserved = self.graph.names()
        if ring is not None:
            where = str(self.stored.path) if self.stored.path is not None else "the model in memory"
            raise ModelFileError(f"the graph has a cycle: {ring}", where=where, todo="no runtime can run it")
        if storage.residue_of(self.graph.ir.graph) is not None:  # the IR alone does not restore the model that was read
            loaded = storage.proto_from_ir(self.graph.ir, self.stored.weights)
        return State.of(loaded, loaded.SerializeToString(deterministic=True))

    def _load(self, proto: onnx.ModelProto) -> str | None:
        """Build the live graph, and list nodes that form a ring. `_touched` is set once a pass has worked on it."""
        model = storage.ir_from_proto(proto, self.stored.weights)
        self.graph = Graph(
            model, weights=self.stored.weights, reserved=self._names, target=self.target, doubts=self.doubts
        )
        ring = self.graph.sort()
        self.graph.settle_order()
        self._touched = False
        return ring

    @property
    def proto(self) -> onnx.ModelProto:
        """The model without weights; the original message if nothing was committed."""
        return self.stored.proto if self.state.data == self._loaded.data else self.state.proto

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return self.state.nodes

    def enter(self, state: State, *, live: bool) -> None:
        """Make a model the committed one; with `live`, the graph already holds it, else it is built when needed."""
        self.state = state
        self._touched = not live
        if live:
            self.graph.settle_order()

    def read_anew(self) -> None:
        """Have the graph rebuilt from the committed model: its shapes are inferred anew, and passes may find more.

        The facts in the table of a graph hold after each rewrite, but a rewrite far upstream may let more be known.
        """
        self._touched = True
        self._unchanged.clear()

    def doubt(self, doubts: Doubts) -> None:
        """Have the graph rebuilt without the inferred shapes that a run contradicts."""
        self.doubts = {**self.doubts, **doubts}
        self.read_anew()
        self._refused.clear()
        self._memory = b"", {}

    def known(self, step: PassStep, declared: Pass, skip: frozenset[int]) -> Candidate | None:
        """Return the known candidate of a step on this exact model, unchanged or refused, or None."""
        key = _key(step, declared, skip)
        unchanged = self._unchanged.get(key)
        if unchanged is not None and unchanged.data is self.state.data:
            return unchanged
        data, refused = self._refused.get(key, (None, None))
        return refused if data is self.state.data else None

    def refuse(self, candidate: Candidate) -> None:
        """Remember a step that was refused as a whole, so that it is not judged again on the same model."""
        key = _key(candidate.step, candidate.step.find(), frozenset())
        self._refused[key] = self.state.data, replace(candidate, live=False, final=True, shapes={})

    def editable(self) -> Graph:
        """Return the live graph for a pass to work on."""
        if self._touched:
            self._load(self.state.proto)
        self._touched = True
        if self._memory[0] is not self.state.data:
            self._memory = self.state.data, {}
        self.graph.memory = self._memory[1]
        return self.graph

    def candidate(self, step: PassStep, declared: Pass, skip: frozenset[int], made: PassResult) -> Candidate:
        """Return the candidate for the result of a pass that ran without the sites to `skip`."""
        state = self.state
        data = state.data if made.proto is None else made.proto.SerializeToString(deterministic=True)
        changed = data != state.data
        self._touched = changed and made.live
        if changed:
            found = Candidate(step, made.proto, data, True, made.live, made.sites, made.refusals)
            return replace(
                found,
                renamed=made.renamed,
                accounts=made.accounts,
                defects=made.defects,
                remarks=made.remarks,
                doubts=self.doubts,
                shapes=self.graph.facts.shapes(),
            )
        found = Candidate(step, state.proto, state.data, False, made.live, made.sites, made.refusals)
        found = replace(found, defects=made.defects, remarks=made.remarks)
        if declared.is_standard:
            self._unchanged[_key(step, declared, skip)] = found
        return found


def _key(step: PassStep, declared: Pass, skip: frozenset[int]) -> _Key:
    """Return a key that identifies a run of a pass on one model."""
    return declared, step.settings, skip
