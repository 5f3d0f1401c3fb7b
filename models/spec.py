"""The words the builders share: what a model is, before and after it is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

Exporter = Literal["dy", "ts"]
Size = Literal["full", "small"]

Axes = dict[int, str]
"""The dynamic axes of one tensor: axis -> name of the dim."""


@dataclass
class Built:
    """A module ready for export, with example arguments.

    `inputs` and `outputs` map names to dynamic axes, in the order of the arguments and results.
    """

    module: torch.nn.Module
    args: tuple[torch.Tensor, ...]
    inputs: dict[str, Axes]
    outputs: dict[str, Axes]


@dataclass(frozen=True)
class Spec:
    """One line of the zoo: an architecture, and how to export it."""

    name: str
    about: str
    build: Callable[[Size, Exporter], Built]
    full: str
    """File name of the full-size model, without exporter and suffix."""
    small: str
    """File name of the small model, without exporter and suffix."""
    opset: int = 18
    opset_of: dict[str, int] = field(default_factory=dict)
    """Opset of single exporters, where it is not `opset`."""
    training: bool = False
    """Export in training mode, so that the exporter writes its Dropout nodes."""
    exporters: tuple[Exporter, ...] = ("dy", "ts")
    bundled: dict[str, str] = field(default_factory=dict)
    """Exporter -> file name of the committed small model, where it differs from the rule."""

    def file_name(self, exporter: Exporter, size: Size) -> str:
        """Name the file of one export, such as `bert-base.dy.onnx`."""
        if size == "small" and exporter in self.bundled:
            return self.bundled[exporter]
        stem = self.full if size == "full" else self.small
        return f"{stem}.{exporter}.onnx"

    def opset_for(self, exporter: Exporter) -> int:
        """Give the opset one exporter is asked for."""
        return self.opset_of.get(exporter, self.opset)
