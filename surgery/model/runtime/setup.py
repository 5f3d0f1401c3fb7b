"""The setup of ONNX Runtime sessions: libraries of custom operators, and execution providers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CPU = "CPUExecutionProvider"

_OPTIONS: Mapping[str, Mapping[str, str]] = {"CUDAExecutionProvider": {"use_tf32": "0"}}
"""Provider options for computing float32 in full precision: by default, CUDA rounds factors to 10 bits."""

_FULL_PRECISION = frozenset({CPU, "AzureExecutionProvider", "CUDAExecutionProvider", "XnnpackExecutionProvider"})
"""Providers that compute float32 in full precision, with the options above. Others may compute it in 16 bits."""


@dataclass(frozen=True)
class SessionSetup:
    """Libraries of custom operators, and execution providers in order of preference; empty means the CPU."""

    libraries: tuple[Path, ...] = ()
    providers: tuple[str, ...] = ()

    @property
    def is_coarse(self) -> bool:
        """Whether float32 may be computed in 16 bits."""
        return not _FULL_PRECISION.issuperset(self.providers)

    @property
    def leaves_cpu(self) -> bool:
        """Whether a provider other than the CPU runs nodes."""
        return any(name != CPU for name in self.providers)


class ProviderError(Exception):
    """An execution provider cannot be used for a session: its name, and the reason."""


def provider_arguments(providers: Sequence[str], *, full_precision: bool = True) -> list[Any]:
    """Return providers in the form that ONNX Runtime takes, the CPU last.

    They compute float32 in full precision if they can, or else with their default options.
    """
    options = _OPTIONS if full_precision else {}
    return [*((name, dict(options.get(name, {}))) for name in providers if name != CPU), CPU]


def require_known(providers: Sequence[str]) -> None:
    """Raise `ProviderError` for a provider that the installed ONNX Runtime lacks; runs in a worker process."""
    import onnxruntime

    known = onnxruntime.get_available_providers()
    for name in providers:
        if name not in known:
            raise ProviderError(name, f"the installed ONNX Runtime has {', '.join(known)}")


def require_started(providers: Sequence[str], session: Any) -> None:
    """Raise `ProviderError` for a requested provider that a session lacks, because the runtime ignores failures."""
    started = session.get_providers()
    for name in providers:
        if name not in started:
            raise ProviderError(name, "it does not start, and ONNX Runtime would continue without it")


def packs_weights(skeleton: bytes) -> bool:
    """Return whether a model computes with all optimizations what it will once deployed only if its weights are packed.

    MatMulNBits rounds its data to 8 bits only with packed weights; a blocked DequantizeLinear becomes a MatMulNBits.
    """
    return b"block_size" in skeleton
