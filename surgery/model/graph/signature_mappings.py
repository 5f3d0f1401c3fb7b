"""How inputs and outputs of a changed model follow from the previous model, as declared by an edit.

Verification wraps the previous model with them. They are plain data, so that a pass in a forked process can return
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

End = Literal["input", "output"]


@dataclass(frozen=True)
class Relation:
    """How an input or output of one model is computed from another model, as ONNX text whose last line computes it.

    For an "input", `port` is an input of the previous model, and `body` reads inputs of the changed model; `inverse`,
    if given, computes these from inputs of the previous model. For an "output", `port` is an output of the changed
    model, and `body` reads values of the previous model. `names` maps identifiers of the text to tensor names, where
    they differ, and `constants` has the arrays that it reads.
    """

    end: End
    port: str
    body: str
    names: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    inverse: str = ""


@dataclass(frozen=True)
class Joined:
    """Another model that was merged into this one.

    `other` is that model, serialized without weights. `connect` maps the names of its inputs to the values of the
    previous model that they receive. `prefix` was prepended to all its names.
    """

    other: bytes
    connect: Mapping[str, str]
    prefix: str = ""


@dataclass(frozen=True)
class Pieces:
    """A model with another batch size: its outputs are the concatenated outputs of the previous model for each piece.

    `inputs` and `outputs` are axes by the previous names, and `count` is the number of pieces in the comparison.
    """

    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    count: int


SignatureMapping = Relation | Joined | Pieces
