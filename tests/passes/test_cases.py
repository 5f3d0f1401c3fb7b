"""Every case file, and the completeness of the case files as a whole."""

import onnx_ir as ir
import pytest
from support import case_files

from surgery import testing
from surgery.graph import text
from surgery.registry import declare

CASES = case_files.read()
# ONNX text has no metadata: tests/graph/test_lineage.py
WITHOUT_TEXT = {"strip-lineage"}
# Other tests register passes of their own.
STANDARD = {name: p for name, p in declare.passes().items() if p.is_standard and name not in WITHOUT_TEXT}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: testing.Case, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--bless") and testing.findings(case):
        case = testing.bless(case)
    testing.check(case)


def test_every_pass_has_a_case_that_fires() -> None:
    assert testing.without_firing(CASES, STANDARD.values()) == []


def test_every_reason_to_refuse_has_a_case() -> None:
    assert testing.unshown(CASES, STANDARD.values()) == []


def test_refusals_outnumber_rewrites() -> None:
    fires = sum(case.after is not None for case in CASES)
    assert len(CASES) - fires >= fires


def needs_a_file(declared: declare.Pass) -> bool:
    """An example in a docstring has no files next to it; the cases have."""
    return any(option.is_file and option.required for option in declared.options)


@pytest.mark.parametrize("name", [name for name, declared in STANDARD.items() if not needs_a_file(declared)])
def test_the_example_of_every_pass_fires(name: str) -> None:
    example = testing.example(STANDARD[name])
    assert example is not None, f"{name} has no example in its docstring"
    assert text.structural_diff(parsed(example.before), parsed(example.after), declared=True)


def parsed(source: str) -> ir.Model:
    return ir.from_proto(text.parse(source))
