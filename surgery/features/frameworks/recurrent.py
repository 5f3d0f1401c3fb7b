"""Weights of recurrent layers: PyTorch has a matrix for each direction, ONNX all directions in one tensor.

ONNX stacks the directions, concatenates both biases, and has the gates in another order. Where the names of the
checkpoint are those of PyTorch, or its format is, the order of the gates is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import onnx

ROLES: Final = {1: "W", 2: "R", 3: "B"}
"""The weights of a recurrent operator, by input."""
STATES: Final = frozenset({5, 6})
"""The inputs of a recurrent operator that are initial states."""

OPERATORS: Final = frozenset({"LSTM", "GRU", "RNN"})
_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "W": ("weight_ih",),
    "R": ("weight_hh",),
    "B": ("bias_ih", "bias_hh"),
}
_NAME: Final = re.compile(r"(?P<module>.*?)(?P<kind>(?:weight|bias)_(?:ih|hh))_l(?P<layer>\d+)(?P<back>_reverse)?")


@dataclass(frozen=True)
class Recurrent:
    """How a recurrent node reads an initializer: its operator and role, and the number of directions.

    `resets_first`: a GRU that applies the reset gate before the product with R, which PyTorch does after it.
    """

    operator: str
    role: str
    directions: int
    resets_first: bool = False


def read_by(node: onnx.NodeProto, index: int) -> Recurrent | None:
    """Return how a recurrent node reads its input; None for other nodes and inputs."""
    if node.op_type not in OPERATORS or node.domain not in ("", "ai.onnx") or index not in ROLES:
        return None
    found = {attribute.name: attribute for attribute in node.attribute}
    both = "direction" in found and found["direction"].s == b"bidirectional"
    first = node.op_type == "GRU" and not ("linear_before_reset" in found and found["linear_before_reset"].i)
    return Recurrent(node.op_type, ROLES[index], 2 if both else 1, first)


def is_of_torch(name: str) -> bool:
    """Return whether a name is that of a recurrent weight in PyTorch."""
    return _NAME.fullmatch(name) is not None


def wrong_order(reader: Recurrent, tensors: Sequence[str]) -> str:
    """Return what is wrong with the tensors of an initializer whose names are those of PyTorch; empty if nothing is."""
    matches = [_NAME.fullmatch(name) for name in tensors]
    parts = [(match["kind"], match["back"] or "") for match in matches if match is not None]
    wanted = [(kind, back) for back in ("", "_reverse")[: reader.directions] for kind in _OF[reader.role]]
    if len(parts) == len(tensors) and parts == wanted:
        return ""
    names = ", ".join(f"{kind}_l*{back}" for kind, back in wanted)
    return f"{reader.role} of {reader.operator} consists of {names}, in this order"


def sources(reader: Recurrent, module: str, layer: int) -> tuple[str, ...]:
    """Return the tensors of an initializer, for a layer of a module of PyTorch."""
    backs = ("", "_reverse")[: reader.directions]
    return tuple(f"{module}{kind}_l{layer}{back}" for back in backs for kind in _OF[reader.role])


def layers(names: Sequence[str]) -> list[tuple[str, int]]:
    """List the modules and layers with recurrent weights, in the order of the checkpoint."""
    found = (match for name in names if (match := _NAME.fullmatch(name)) is not None)
    return list(dict.fromkeys((match["module"], int(match["layer"])) for match in found))
