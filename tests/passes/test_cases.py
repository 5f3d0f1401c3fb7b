"""Every case file, and the completeness of the case files as a whole."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

import pytest
from support import case_files
from support.breadth import sampled

from surgery.engine.registry.catalog import catalog
from surgery.engine.registry.passes import Pass
from surgery.features import testing

CASES = case_files.read()
# ONNX text has no metadata of nodes: tests/model/proto/test_lineage.py, tests/model/graph/test_stripping.py
WITHOUT_TEXT = {"strip-lineage", "strip-metadata"}
# Other tests register passes of their own.
STANDARD = {name: p for name, p in catalog.passes().items() if p.is_standard and name not in WITHOUT_TEXT}


# Their cases and examples are in test_tool_cases.py, where the tools are imported once for all.
TOOLS = {name for name, declared in STANDARD.items() if declared.theme == "tools"}


def in_breadth(cases: Iterable[testing.Case]) -> list[Any]:
    """List the cases. Of those of a pass, every twentieth that fires and every twentieth that does not is quick."""

    def kind(case: testing.Case) -> tuple[str, bool]:
        return case.pass_name, case.after is not None

    groups = groupby(sorted(cases, key=kind), key=kind)
    return [value for _, group in groups for value in sampled(group, 20)]


@pytest.mark.parametrize("case", in_breadth(case for case in CASES if case.pass_name not in TOOLS), ids=str)
def test_case(case: testing.Case, request: pytest.FixtureRequest) -> None:
    case_files.check(case, bless=request.config.getoption("--bless"))


def test_every_pass_has_a_case_that_fires() -> None:
    assert testing.without_firing(CASES, STANDARD.values()) == []


def test_every_reason_to_refuse_has_a_case() -> None:
    assert testing.unshown(CASES, STANDARD.values()) == []


def test_refusals_outnumber_rewrites() -> None:
    fires = sum(case.after is not None for case in CASES)
    assert len(CASES) - fires >= fires


def needs_a_file(declared: Pass) -> bool:
    """An example in a docstring has no files next to it; the cases have."""
    return any(option.is_file and option.required for option in declared.options)


@pytest.mark.parametrize(
    "name", [name for name, one in STANDARD.items() if name not in TOOLS and not needs_a_file(one)]
)
def test_the_example_of_every_pass_fires(name: str) -> None:
    case_files.check_example(STANDARD[name])
