"""Packer: dataclasses become plain values, and dataclasses again."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest

from surgery.base.packing import Packer


class Color(Enum):
    RED = "red"


@dataclass(frozen=True)
class Point:
    at: tuple[int, ...]
    color: Color
    names: Mapping[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Unknown:
    x: int


PACKER = Packer(Color, Point)
VALUES = [
    Point((1, 2), Color.RED, {"a": (Point((), Color.RED), None)}),
    [1, (2.5, "x"), {"~": 1}],
    ({1: "a", (2, 3): [True]}, ()),
    {"plain": {"deep": ([],)}},
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_what_is_unpacked_is_what_was_packed(value: Any) -> None:
    assert repr(PACKER.unpack(json.loads(json.dumps(PACKER.pack(value))))) == repr(value)


def test_the_packed_form_does_not_change() -> None:
    """Caches of earlier versions are read: fields are stored by position, under the name of the class."""
    assert PACKER.pack(Point((1,), Color.RED)) == {"~": "Point", "of": [[1], {"~": "Color", "of": "red"}, {}]}


def test_leaves_are_packed_by_the_caller() -> None:
    def leaf(value: Any) -> Any:
        return {"~": "bytes", "of": value.decode()}

    packer = Packer(Point, leaf=leaf, readers={"bytes": str.encode})
    assert packer.unpack(packer.pack((b"ab", [b"c"]))) == (b"ab", [b"c"])
    assert Packer().pack((b"ab",)) == [b"ab"]


@pytest.mark.parametrize("value", [{"~": "Unknown", "of": [1]}, {"~": "Point", "of": []}, {"~": "Color", "of": "x"}])
def test_other_values_are_not_unpacked(value: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        PACKER.unpack(value)
    assert Packer().pack(Unknown(1)) == Unknown(1)
