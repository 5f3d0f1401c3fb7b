"""Seconds that each file of tests takes, next to its budget: reported on request, no run fails for them.

`--durations-by-file` sums setup, call and teardown of the tests of each file, over all workers of pytest-xdist. Times
of a busy machine say little, so that only a file that takes twice its budget is worth a line.
"""

from __future__ import annotations

from collections import Counter

import pytest

BUDGET = 20.0
# What takes longer by its nature: many models, commands in separate processes, time limits that are reached.
BUDGETS = {
    "tests/passes/test_cases.py": 250.0,
    "tests/passes/test_narrowing.py": 60.0,
    "tests/behaviour/test_kills.py": 60.0,
    "tests/mutation/test_mutation.py": 60.0,
    "tests/docs/test_pages.py": 100.0,
    "tests/docs/test_edit.py": 40.0,
    "tests/engine/registry/test_discovery.py": 40.0,
    "tests/model/storage/test_corpus.py": 40.0,
    "tests/verification/inputs/test_search.py": 40.0,
}
FAR_BEYOND = 2.0


class Durations:
    """Add up what is reported, and show it at the end."""

    def __init__(self, shown: int) -> None:
        self.seconds: Counter[str] = Counter()
        self.shown = shown

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("slowest files")
        for file, seconds in self.seconds.most_common(self.shown):
            terminalreporter.line(f"{seconds:8.1f} s of {budget(file):.0f} s  {file}")
        for file, seconds in self.seconds.most_common():
            if seconds > FAR_BEYOND * budget(file):
                terminalreporter.line(f"{file} takes {seconds:.0f} s, its budget is {budget(file):.0f} s", yellow=True)


def budget(file: str) -> float:
    """Return the seconds that a file of tests may take on one idle core."""
    return BUDGETS.get(file, BUDGET)
