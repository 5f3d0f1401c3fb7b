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
    committed: dict[Exporter, str] = field(default_factory=dict)
    """The small models that are part of the repository: exporter -> file name."""
    opsets: dict[Exporter, int] = field(default_factory=lambda: {"dy": 18, "ts": 17})
    training: bool = False
    """Export in training mode, so that the exporter writes its Dropout nodes."""
    metadata: bool = False
    """Keep the dynamo exporter's node metadata in the small model, several times the size of its graph."""

    def file_name(self, exporter: Exporter, size: Size) -> str:
        """Name the file of one export, such as `bert-base.dy.onnx`."""
        if size == "small" and exporter in self.committed:
            return self.committed[exporter]
        stem = self.full if size == "full" else self.small
        return f"{stem}.{exporter}.onnx"
