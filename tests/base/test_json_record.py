"""Records: the JSON form of a dataclass follows from its fields."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from surgery.base.json_record import Record, plain


class Color(Enum):
    RED = "red"


@dataclass(frozen=True)
class Inner(Record):
    color: Color
    place: Path | None = None


@dataclass(frozen=True)
class Outer(Record, keys="ok title=name note? seconds:2 *inner others"):
    name: str
    inner: Inner
    seconds: tuple[float, ...] = ()
    note: str = ""
    others: tuple[Inner, ...] = ()
    hidden: str = "not shown"

    @property
    def ok(self) -> bool:
        return not self.note


@dataclass(frozen=True)
class Loose:
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def test_without_keys_the_fields_are_shown_in_their_order() -> None:
    assert list(Inner(Color.RED, Path("a/b")).to_json().items()) == [("color", "red"), ("place", str(Path("a/b")))]
    assert Inner(Color.RED).to_json() == {"color": "red", "place": None}


def test_keys_choose_rename_round_and_insert() -> None:
    found = Outer("n", Inner(Color.RED), (0.126, 2.0), others=(Inner(Color.RED, Path("x")),)).to_json()
    assert found == {
        "ok": True,
        "title": "n",
        "note": None,
        "seconds": [0.13, 2.0],
        "color": "red",
        "place": None,
        "others": [{"color": "red", "place": "x"}],
    }
    assert list(found) == ["ok", "title", "note", "seconds", "color", "place", "others"]
    assert Outer("n", Inner(Color.RED), note="bad").to_json()["note"] == "bad"


@dataclass(frozen=True)
class Deep(Record, keys="inner.color place=inner.place others"):
    inner: Inner | None
    others: tuple[Inner, ...] = ()


def test_keys_reach_attributes_of_attributes() -> None:
    assert Deep(Inner(Color.RED, Path("x"))).to_json() == {"color": "red", "place": "x", "others": []}
    assert Deep(None).to_json() == {"color": None, "place": None, "others": []}


def test_a_count_of_zero_is_not_null() -> None:
    assert plain({"count": 0, "none": None, "off": False}) == {"count": 0, "none": None, "off": False}


@pytest.mark.parametrize("keys", ["nam", "title=nam", "name:x", "name?:3:4", "!name"])
def test_a_key_without_an_attribute_fails_on_import(keys: str) -> None:
    with pytest.raises(TypeError, match="has no attribute for its key"):
        type("Wrong", (Record,), {"__annotations__": {"name": "str"}}, keys=keys)


def test_what_json_lacks_is_text() -> None:
    found: Any = plain({"values": (float("nan"), float("-inf"), 1.5, 1 + 2j), "loose": Loose({"a": (1, 2)})})
    assert json.loads(json.dumps(found, allow_nan=False)) == {
        "values": ["nan", "-inf", 1.5, "(1+2j)"],
        "loose": {"sizes": {"a": [1, 2]}},
    }
    assert plain(Loose()) == asdict(Loose())


def test_a_class_of_a_record_shows_the_same_with_slots() -> None:
    @dataclass(frozen=True, slots=True)
    class Slim(Record, keys="second=first"):
        first: int

    assert Slim(3).to_json() == {"second": 3}


def test_a_record_of_a_record_has_keys_of_its_own() -> None:
    @dataclass(frozen=True)
    class Named(Outer, keys="name"):
        pass

    @dataclass(frozen=True)
    class Same(Outer):
        pass

    assert Named("n", Inner(Color.RED)).to_json() == {"name": "n"}
    assert Same("n", Inner(Color.RED)).to_json()["title"] == "n"
