"""Values of options: sizes, defaults, and which values need no conversion."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

from surgery.engine.registry.options import FilePath, Keeps, Option, Size, parse_size


def option(annotation: Any, default: Any = None) -> Option:
    return Option("o", annotation, default, "")


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ("4096", 4096),
        ("3b", 3),
        ("1kB", 1000),
        ("2 MB", 2_000_000),
        (" 1GB ", 10**9),
        ("1KiB", 1024),
        ("1.5mib", 3 * 2**19),
        ("2GiB", 2**31),
        ("9" * 20, 10**20),
        (7, 7),
        (None, None),
    ],
)
def test_a_size_is_a_number_of_bytes(given: Any, size: Any) -> None:
    assert parse_size(given) == size


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("much", "'much' is not a size such as 4096, 64KiB or 1MB"),
        ("-5", "'-5' is not a size such as 4096, 64KiB or 1MB"),
        ("1i", "'1i' is not a size such as 4096, 64KiB or 1MB"),
        ("1k", "'1k' is not a size such as 4096, 64KiB or 1MB"),
        ("", "'' is not a size such as 4096, 64KiB or 1MB"),
        ("9" * 21, f"'{'9' * 20}...' is too large"),
    ],
)
def test_other_texts_are_no_sizes(given: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        parse_size(given)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("annotation", "default", "required", "plain"),
    [
        (int, inspect.Parameter.empty, True, None),
        (int, 3, False, 3),
        (int | None, None, False, None),
        (float, float("inf"), False, "Infinity"),
        (tuple[int, ...], (1, 2), False, [1, 2]),
        (Path, Path("a/b"), False, "a/b"),
    ],
)
def test_a_default_as_json_has_it(annotation: Any, default: Any, required: bool, plain: Any) -> None:
    found = option(annotation, default)
    assert (found.required, found.plain_default) == (required, plain)


@pytest.mark.parametrize(
    ("annotation", "is_file"),
    [
        (FilePath, True),
        (FilePath | None, True),
        (list[FilePath], True),
        (dict[str, FilePath], True),
        (Path, False),
        (Keeps, False),
    ],
)
def test_files_are_found_within_types(annotation: Any, is_file: bool) -> None:
    assert option(annotation).is_file is is_file


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(bool, True), (int, 3), (Size, 3), (int | None, None), (Literal["a", "b"], "b"), (float, 0.5)],
)
def test_a_value_of_the_type_needs_no_conversion(annotation: Any, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pydantic is imported only for others: that takes a tenth of a second."""
    monkeypatch.setitem(sys.modules, "pydantic", None)
    assert option(annotation, value).converted_default() is value
    if not isinstance(value, float):  # which may not be finite
        assert option(annotation).validate(value) is value


@pytest.mark.parametrize(
    ("annotation", "given", "value"),
    [
        (float, 3, 3.0),
        (tuple[int, int], [1, 2], (1, 2)),
        (int, "3", 3),
        (bool, "true", True),
        (Path, Path("a"), Path("a")),
        (str, "3", "3"),
        (Size, "1kB", 1000),
        (int | None, "4", 4),
    ],
)
def test_other_values_are_converted(annotation: Any, given: Any, value: Any) -> None:
    found = option(annotation, given).converted_default()
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("annotation", "given", "message"),
    [
        (bool, 1, "input should be a valid boolean"),
        (int, True, "input should be a valid integer"),
        (int, None, "input should be a valid integer"),
        (Literal["a", "b"], "c", "input should be 'a' or 'b'"),
        (str, 3, "input should be a valid string"),
        (Size, "much", "'much' is not a size such as 4096, 64KiB or 1MB"),
        (int, object(), "not a object"),
    ],
)
def test_values_of_other_types_are_refused(annotation: Any, given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        option(annotation).validate(given)
