"""What differs between two locks, in words, and where the lock of a recipe is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surgery.base.errors import UsageError
from surgery.engine import recipe as recipes
from surgery.engine.provenance import lock
from surgery.engine.recipe import recipe_lookup

LOCK: dict[str, Any] = {
    "format_version": 1,
    "recipe": "r",
    "files": {"r.yaml": "0123456789abcdef0123"},
    "target": "standard",
    "seed": 0,
    "settings": {"verify": {"rtol": 0.1}},
    "passes": {"p": "0123456789abcdef", "q": {"from": "acme 1.0", "source": "fedcba9876543210"}},
    "packages": {"onnx": "1.20"},
    "engine": "0123456789abcdef",
    "python": "3.11",
    "processor": "x",
}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, []),
        ({"files": {"r.yaml": "ffff456789abcdef0123", "s.py": "1" * 20}},
         [("file 'r.yaml'", "0123456789ab", "ffff456789ab"), ("file 's.py'", "nothing", "1" * 12)]),
        ({"settings": {}}, [("setting 'verify.rtol'", "0.1", "nothing")]),
        ({"passes": {"p": "1" * 16, "q": {"from": "acme 2.0 of a long name", "source": "2" * 16}}},
         [("source of pass 'p'", "0123456789ab", "1" * 12),
          ("origin of pass 'q'", "acme 1.0", "acme 2.0 of a long name"),
          ("source of pass 'q'", "fedcba987654", "2" * 12)]),
        ({"packages": {"onnx": "1.21"}, "engine": "2" * 16, "seed": 1, "target": "openvino"},
         [("target", "standard", "openvino"), ("seed", "0", "1"), ("package onnx", "1.20", "1.21"),
          ("the source of surgery", "0123456789ab", "2" * 12)]),
        ({"python": "3.12", "processor": "y"}, [("python", "3.11", "3.12"), ("processor", "x", "y")]),
    ],
)  # fmt: skip
def test_what_differs_is_listed_in_the_order_of_the_lock(more: Any, expected: list[tuple[str, str, str]]) -> None:
    found = lock.changes(LOCK, {**LOCK, **more})
    assert [(one.what, one.old, one.new) for one in found] == expected


def test_pins_that_an_older_lock_does_not_have() -> None:
    for name in LOCK:
        older = {key: value for key, value in LOCK.items() if key != name}
        assert bool(lock.changes(older, LOCK)) is (name not in lock.OPTIONAL), name
        assert lock.changes(LOCK, older), name


def test_the_lock_is_next_to_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "recipe: r\nsteps: [drop-identity]"
    assert lock.default_path(recipes.parse(text)) == Path(f"r{lock.SUFFIX}")
    own = recipes.parse(text, tmp_path / "own.yaml")
    assert lock.default_path(own) == tmp_path / f"own{lock.SUFFIX}" and lock._shown(own) == str(tmp_path / "own.yaml")
    monkeypatch.setattr(recipe_lookup, "is_shipped", lambda path: True)
    assert lock.default_path(own) == Path(f"own{lock.SUFFIX}") and lock._shown(own) == "own"
    assert lock._shown(recipes.parse(text)) == "r"


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "r.lock"
    path.write_text(lock.text_of(LOCK))
    assert lock.read(path) == LOCK


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "this is not a lock: it is not YAML; remove it"),
        ("a: 1", "this is not a lock: it has no 'format_version'"),
        ("- a", "this is not a lock: it has no 'format_version'"),
        ("format_version: 99", "the lock has format version 99, but this release reads"),
        ("format_version: 1", "this is not a lock: it has no 'files'"),
        ("{format_version: 1, files: {}, passes: [], packages: {}, engine: x}", "it has no 'passes'"),
        ("{format_version: 1, files: {}, passes: {}, packages: {}, engine: 3}", "it has no 'engine'"),
    ],
)
def test_a_damaged_lock_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "r.lock"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        lock.read(path)
    assert message in str(error.value)


def test_a_lock_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no lock; make one: surgery lock r\.yaml"):
        lock.read(tmp_path / "r.lock", "r.yaml")
    with pytest.raises(UsageError, match="a single pass has no lock; save its recipe with --save-recipe"):
        lock.require(recipes.parse("steps: [drop-identity]"))


def test_a_recipe_is_locked_until_something_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipes.parse("recipe: r\nsteps: [drop-identity]", tmp_path / "r.yaml")
    pins = {**LOCK}
    monkeypatch.setattr(lock, "pins", lambda _: pins)
    path = tmp_path / f"r{lock.SUFFIX}"
    path.write_text(lock.text_of(LOCK))
    lock.require(recipe)
    pins["seed"] = 1
    with pytest.raises(UsageError, match="1 change since the lock was made:\n  seed") as error:
        lock.require(recipe)
    assert f"'surgery lock {tmp_path / 'r.yaml'}'" in str(error.value)
    pins["python"] = "3.12"
    with pytest.raises(UsageError, match="2 changes since the lock was made:") as error:
        lock.require(recipe, path)
    assert f"'surgery lock {tmp_path / 'r.yaml'} -o {path}'" in str(error.value)
