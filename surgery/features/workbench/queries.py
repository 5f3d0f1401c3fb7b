"""What can be done with the model of a snapshot, while another thread may change the session."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from surgery.engine.recipe import checked, jsonschema, recipe_lookup
from surgery.engine.registry.catalog import catalog
from surgery.features.workbench.offers import Offer, Offers
from surgery.features.workbench.properties import Property, properties_of, step_of
from surgery.features.workbench.snapshot import Snapshot
from surgery.model import storage

if TYPE_CHECKING:
    from surgery.engine.why.explain import Why


class Queries:
    """Answers what can be done with the model of a snapshot, and why not.

    Everything that it works on is its own, or part of the snapshot: its graph is built from the message of the state,
    and what passes write while they are tried goes to its own scratch file. It answers one query at a time.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._index: tuple[bytes, Offers] | None = None
        self._recipes: Mapping[str, str] | None = None

    def offers(self, snapshot: Snapshot, selection: Sequence[str]) -> list[Offer]:
        """List what can be done with nodes and tensors, see `Session.offers`."""
        with self._lock:
            return self._of(snapshot).of(selection)

    def properties(self, snapshot: Snapshot, selection: Sequence[str]) -> list[Property]:
        """List what of nodes and tensors can be changed, see `Session.set_property`."""
        with self._lock:
            return list(properties_of(*self._of(snapshot).selected(selection)))

    def step(self, snapshot: Snapshot, selection: Sequence[str], key: str, value: str) -> Mapping[str, Any]:
        """Return the step that changes a property of nodes and tensors."""
        with self._lock:
            return step_of(key, value, *self._of(snapshot).selected(selection))

    def why(self, snapshot: Snapshot, name: str, node: str, options: Mapping[str, Any]) -> Why:
        """Explain what a pass does, or why it does nothing, at a node."""
        with self._lock:
            return self._of(snapshot).why(name, node, options)

    def load(self) -> None:
        """Import all passes, which a worker that is forked while another thread imports them would lack."""
        catalog.passes()

    def recipes(self) -> Mapping[str, str]:
        """Return the recipes whose steps can be added by `use`, and what each is for."""
        if self._recipes is None:
            self._recipes = {name: checked.about(name) for name in recipe_lookup.names()}
        return self._recipes

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of recipes with the passes of this session."""
        return jsonschema.schema()

    def draft(self, snapshot: Snapshot, selection: Sequence[str], place: str) -> dict[str, Any]:
        """Return options of `insert-nodes` for a selection, to edit further."""
        with self._lock:
            return self._of(snapshot).draft(selection, place)

    def prepare(self, snapshot: Snapshot) -> None:
        """Index a model, which the first query about it needs."""
        with self._lock:
            self._of(snapshot)

    def _of(self, snapshot: Snapshot) -> Offers:
        """Return the index of a model; it is made once for each."""
        state = snapshot.state
        if self._index is None or (self._index[0] is not state.data and self._index[0] != state.data):
            weights = storage.Weights()
            weights.adopt(snapshot.stored.weights)
            self._index = state.data, Offers(state.proto, weights, snapshot.recipe.profile)
        return self._index[1]
