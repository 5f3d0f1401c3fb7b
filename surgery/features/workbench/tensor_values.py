"""Values of tensors in a snapshot, while another thread may change the session."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from surgery.features.workbench.snapshot import Snapshot
from surgery.verification.inputs.given import with_found_sets
from surgery.verification.signature import tensor_looks

if TYPE_CHECKING:
    from surgery.verification.inputs.spec import InputsSpec


TensorLook = tensor_looks.TensorLook
"""The values of a tensor in the original and after a step."""


class TensorValues:
    """Runs the models of snapshots to look at their tensors, one look at a time. The runs are its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values = tensor_looks.InnerValues()

    def forget(self) -> None:
        """Read inputs anew at the next look: their files may have changed."""
        with self._lock:
            self._values = tensor_looks.InnerValues()

    def tensor(
        self, snapshot: Snapshot, name: str, step: int | None = None, inputs: InputsSpec | None = None
    ) -> TensorLook:
        """Return the values of a tensor in the original, and after a step, which is the last one by default.

        `inputs` are those to run on; by default those that steps are verified on. Raises UsageError if neither model
        has the tensor, or if one of them does not run.
        """
        state = snapshot.state if step is None else snapshot.states(step)[-1]
        recipe, stored = snapshot.recipe, snapshot.stored
        spec = with_found_sets(recipe.inputs, stored.path) if inputs is None else inputs
        with self._lock:
            pair = tensor_looks.ModelPair(snapshot.first.data, state.data, stored.weights, spec, recipe.verify)
            return self._values.look(name, pair)
