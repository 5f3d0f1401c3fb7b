"""Any two models, verified one against the other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery import storage
from surgery.parity import Parity
from surgery.verify.verdict import Verdict, verify_models

if TYPE_CHECKING:
    import onnx

    from surgery.recipe.schema import InputsSpec, VerifySpec


@dataclass(frozen=True)
class Pair:
    """The verdict on two models, how their signatures differ, and the inputs that they ran on."""

    verdict: Verdict
    signature: tuple[str, ...]
    bindings: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """Give plain values."""
        needed = self.verdict.needed
        return {
            "verdict": self.verdict.status,
            "reason": self.verdict.reason,
            "needed": dict(needed) if needed is not None else {"rtol": None, "atol": None},
            "message": self.verdict.message,
            "signature": list(self.signature),
            "bindings": list(self.bindings),
        }


def verify(
    original: str | Path | onnx.ModelProto,
    changed: str | Path | onnx.ModelProto,
    *,
    inputs: InputsSpec | None = None,
    spec: VerifySpec | None = None,
    promise: Parity = Parity.CLOSE,
) -> Pair:
    """Run two models (files, or messages in memory) on the same inputs and compare their outputs by name."""
    sides = [storage.load(Path(m)) if isinstance(m, str | Path) else storage.from_proto(m) for m in (original, changed)]
    first, second = (side.proto.SerializeToString(deterministic=True) for side in sides)
    verdict, differences, bindings = verify_models(first, second, inputs, spec, promise)
    return Pair(verdict, tuple(differences), tuple(bindings))
