"""The inputs of the original's runs, as far as a changed model takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surgery.verification.comparing.vacuity import Run


def feeds_for(skeleton: bytes, runs: Sequence[Run]) -> list[Mapping[str, Any]]:
    """Return the inputs of each run without those that a model does not have."""
    import onnx

    from surgery.model.proto.signature import signature

    known = {port.name for port in signature(onnx.load_model_from_string(skeleton)).inputs}
    return [{key: value for key, value in run.feed.items() if key in known} for run in runs]
