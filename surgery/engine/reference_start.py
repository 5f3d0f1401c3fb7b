"""Run the original as early as possible: while passes are still being imported.

The runs are made by other processes. Nothing of the graph is imported here, so that they start before the rest of the
program is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from surgery import storage
from surgery.verification.inputs.given import with_found_sets
from surgery.verification.signature.tracker import SignatureTracker

if TYPE_CHECKING:
    from surgery.verification.inputs.spec import InputsSpec, VerifySpec


@dataclass(frozen=True)
class ReferenceStart:
    """A loaded model, its skeleton as bytes, and what its changed versions are held to."""

    stored: storage.StoredModel
    skeleton: bytes
    tracker: SignatureTracker


def begin(stored: storage.StoredModel, inputs: InputsSpec, verify: VerifySpec, *, early: bool = True) -> ReferenceStart:
    """Start to run a model on its inputs, unless nothing is to be compared. The caller closes the tracker.

    Unless `early`, it runs once it is needed.
    """
    skeleton = storage.without_alias(stored.proto).SerializeToString(deterministic=True)
    tracker = SignatureTracker(skeleton, with_found_sets(inputs, stored.path), verify)
    if early and verify.mode != "off":
        tracker.verifier.begin()
    return ReferenceStart(stored, skeleton, tracker)
