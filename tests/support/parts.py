"""A part of the tests: `--part K/N` keeps every test whose name falls into the K-th of N parts.

The parts are of similar length, whatever the order of the tests, and all of them together are all tests.
"""

from __future__ import annotations

from zlib import crc32

import pytest


class Part:
    """The K-th of N parts; raises `pytest.UsageError` for a text that names none."""

    def __init__(self, text: str) -> None:
        number, _, count = text.partition("/")
        if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
            raise pytest.UsageError(f"--part {text}: give K/N, such as 1/4")
        self.number, self.count = int(number), int(count)

    def has(self, name: str) -> bool:
        """Return whether a test is in this part."""
        return crc32(name.encode()) % self.count == self.number - 1

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        others = [item for item in items if not self.has(item.nodeid)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if self.has(item.nodeid)]
