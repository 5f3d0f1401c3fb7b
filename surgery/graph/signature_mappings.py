"""How inputs and outputs of a changed model follow from the previous model, as declared by an edit.

Verification runs the model before with these around it. They are data, so that a pass in a fork can hand them over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

End = Literal["input", "output"]


@dataclass(frozen=True)
class Relation:
    """How one end of a model follows from ends of another one, as lines of ONNX text; the last line makes it.

    For an "input", `port` is one of the model before, and `body` reads inputs of the changed model; `inverse`, if there
    is one, makes those from inputs of the model before. For an "output", `port` is one of the changed model, and `body`
    reads values of the model before. `names` says which tensor an identifier of the text stands for, where that is not
    its name, and `constants` are arrays that it reads.
    """

    end: End
    port: str
    body: str
    names: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    inverse: str = ""


@dataclass(frozen=True)
class Joined:
    """Another model that became part of this one.

    `other` is that model without weights, serialized. `connect` says which value of the model before an input of it
    takes, by the name of that input. `prefix` is before all names that came from it.
    """

    other: bytes
    connect: Mapping[str, str]
    prefix: str = ""


@dataclass(frozen=True)
class Pieces:
    """A model that takes another batch: it gives, in one, what the model before gives for each piece of its inputs.

    `inputs` and `outputs` are axes by the names of before, and `count` says in how many pieces the comparison cuts.
    """

    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    count: int


SignatureMapping = Relation | Joined | Pieces


def pack(accounts: tuple[SignatureMapping, ...]) -> list[dict[str, Any]]:
    """Return plain data, for another process."""
    return [{"kind": type(account).__name__, **vars(account)} for account in accounts]


def unpack(packed: list[dict[str, Any]]) -> tuple[SignatureMapping, ...]:
    """Read what `pack` has given."""
    kinds: dict[str, type[SignatureMapping]] = {"Relation": Relation, "Joined": Joined, "Pieces": Pieces}
    return tuple(kinds[item["kind"]](**{key: value for key, value in item.items() if key != "kind"}) for item in packed)
