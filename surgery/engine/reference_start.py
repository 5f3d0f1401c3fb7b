"""The original of a chain, run from the moment on at which it is known what it is fed.

The work is done in other processes, and no pass is needed for it: here nothing of the graph is imported, so that the
runs go on while the rest of this program loads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from surgery import storage
from surgery.verification.inputs.given import with_sets_beside
from surgery.verification.signature.tracker import SignatureTracker

if TYPE_CHECKING:
    from surgery.verification.inputs.spec import InputsSpec, VerifySpec


@dataclass(frozen=True)
class ReferenceStart:
    """A loaded model, its skeleton as bytes, and what its changed versions are held to."""

    stored: storage.StoredModel
    skeleton: bytes
    contract: SignatureTracker


def begin(stored: storage.StoredModel, inputs: InputsSpec, verify: VerifySpec) -> ReferenceStart:
    """Start to run a model on its inputs, unless nothing is to be compared; who begins closes the contract."""
    skeleton = storage.without_alias(stored.proto).SerializeToString(deterministic=True)
    contract = SignatureTracker(skeleton, with_sets_beside(inputs, stored.path), verify)
    if verify.mode != "off":
        contract.verifier.begin()
    return ReferenceStart(stored, skeleton, contract)
