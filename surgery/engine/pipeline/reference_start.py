"""Run the original as early as possible: while passes are still being imported.

Other processes make the runs. No graph modules are imported here, so that the runs start before the rest of the program
is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from surgery.model import storage
from surgery.model.proto import repair
from surgery.verification.inputs.given import with_found_sets
from surgery.verification.signature.tracker import SignatureTracker

if TYPE_CHECKING:
    from surgery.verification.inputs.spec import InputsSpec, VerifySpec


@dataclass(frozen=True)
class ReferenceStart:
    """A loaded model, its skeleton as bytes, and the tracker that its changed versions are compared with.

    `fault` is what was repaired in the model, see `surgery.model.proto.repair`.
    """

    stored: storage.StoredModel
    skeleton: bytes
    tracker: SignatureTracker
    fault: str = ""


def repaired(stored: storage.StoredModel) -> storage.StoredModel:
    """Return a model whose nodes runtimes accept, see `surgery.model.proto.repair`; the same one if nothing is
    wrong."""
    return replace(stored, proto=repair.repaired(stored.proto)) if repair.faults(stored.proto) else stored


def begin(stored: storage.StoredModel, inputs: InputsSpec, verify: VerifySpec, *, early: bool = True) -> ReferenceStart:
    """Start to run a model on its inputs, unless verification is off. The caller closes the tracker.

    Unless `early`, the model runs only when its outputs are needed. Raises RecipeError or UsageError for data that does
    not fit the model, also where only a later step would read it.
    """
    fault = repair.faults(stored.proto)
    stored = repaired(stored)
    skeleton = storage.without_alias(stored.proto).SerializeToString(deterministic=True)
    tracker = SignatureTracker(skeleton, with_found_sets(inputs, stored.path), verify)
    if early and verify.mode != "off":
        tracker.verifier.original.begin()
    return ReferenceStart(stored, skeleton, tracker, fault)
