"""Values of tensors at one moment of a session, which another thread may change meanwhile."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from surgery.features.workbench.moment import Moment
from surgery.verification.inputs.given import with_found_sets
from surgery.verification.signature import tensor_looks

if TYPE_CHECKING:
    from surgery.verification.inputs.spec import InputsSpec


TensorLook = tensor_looks.TensorLook
"""The values of a tensor in the original and after a step."""


class Looks:
    """Runs the models of moments to look at their tensors, one look at a time. The runs are its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values = tensor_looks.InnerValues()

    def forget(self) -> None:
        """Read inputs anew at the next look: their files may have changed."""
        with self._lock:
            self._values = tensor_looks.InnerValues()

    def tensor(
        self, moment: Moment, name: str, step: int | None = None, inputs: InputsSpec | None = None
    ) -> TensorLook:
        """Return the values of a tensor in the original, and after a step, which is the last one by default.

        `inputs` are those to run on; by default those that steps are verified on. Raises UsageError if neither model
        has the tensor, or if one of them does not run.
        """
        state = moment.state if step is None else moment.states(step)[-1]
        recipe, stored = moment.recipe, moment.stored
        spec = with_found_sets(recipe.inputs, stored.path) if inputs is None else inputs
        with self._lock:
            pair = tensor_looks.ModelPair(moment.first.data, state.data, stored.weights, spec, recipe.verify)
            return self._values.look(name, pair)
