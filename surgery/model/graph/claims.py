"""Relations that a site declares, before the names of new values are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from surgery.model.graph.signature_mappings import End, Relation
from surgery.model.graph.values import Value

Operand = Value | str | np.ndarray[Any, Any]
"""What an identifier of the text stands for: a value, the name of a tensor, or an array."""


@dataclass(frozen=True)
class Claim:
    """How an input or output follows from the other model, see `Relation`; text that cannot be parsed is refused."""

    end: End
    port: Value | str
    body: str
    operands: Mapping[str, Operand]
    inverse: str = ""

    def __post_init__(self) -> None:
        from surgery.model.graph.text import parse_nodes

        for part in (self.body, self.inverse):
            parse_nodes(part)

    def settled(self) -> Relation:
        """Return the relation with the final names of new values, which the commit assigns."""
        arrays = {key: operand for key, operand in self.operands.items() if isinstance(operand, np.ndarray)}
        names = {key: _name(operand) for key, operand in self.operands.items() if not isinstance(operand, np.ndarray)}
        return Relation(self.end, _name(self.port), self.body, names, arrays, self.inverse)


def _name(operand: Value | str) -> str:
    return operand if isinstance(operand, str) else operand.name
