"""Parts of the tests: together they are all tests, and none of them runs twice."""

from collections import Counter

import pytest
from support.parts import Part

NAMES = [f"tests/folder/test_file.py::test_{number}" for number in range(1000)]


def test_each_test_is_in_one_part() -> None:
    parts = [Part(f"{number}/4") for number in (1, 2, 3, 4)]
    found = Counter(part.number for name in NAMES for part in parts if part.has(name))
    assert all(sum(part.has(name) for part in parts) == 1 for name in NAMES)
    assert min(found.values()) > 200


@pytest.mark.parametrize("text", ["", "2", "0/4", "5/4", "a/4", "1/0", "-1/4", "1/2/3"])
def test_a_text_that_names_no_part_is_an_error(text: str) -> None:
    with pytest.raises(pytest.UsageError, match="give K/N, such as 1/4"):
        Part(text)
