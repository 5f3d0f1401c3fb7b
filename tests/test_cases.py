"""Every case file, and the completeness of the case files as a whole."""

from pathlib import Path

import onnx_ir as ir
import pytest

from surgery import registry, testing, text

FOLDER = Path(__file__).parent / "cases"
CASES = testing.cases(FOLDER)
# Other tests register passes of their own.
STANDARD = {name: p for name, p in registry.passes().items() if p.origin.startswith("surgery.passes.")}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: testing.Case, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--bless"):
        testing.bless(case)
        case = testing.read_case(case.path)
    found = list(testing.problems(case))
    assert not found, "\n".join(found)


def test_every_pass_has_a_case_that_fires() -> None:
    fires = {case.pass_name for case in CASES if case.after is not None}
    assert set(STANDARD) - fires == set()


def test_every_reason_to_refuse_has_a_case() -> None:
    shown = {name: [r for case in CASES if case.pass_name == name for r in case.refused] for name in STANDARD}
    missing = {
        f"{name}: {reason.pattern}"
        for name, reasons in testing.reasons_in(STANDARD.values()).items()
        for reason in reasons
        if not any(reason.fullmatch(given) for given in shown[name])
    }
    assert missing == set()


def test_refusals_outnumber_rewrites() -> None:
    fires = sum(case.after is not None for case in CASES)
    assert len(CASES) - fires >= fires


@pytest.mark.parametrize("name", STANDARD)
def test_the_example_of_every_pass_fires(name: str) -> None:
    example = testing.example(STANDARD[name])
    assert example is not None, f"{name} has no example in its docstring"
    assert text.structural_diff(parsed(example.before), parsed(example.after), declared=True)


def parsed(source: str) -> ir.Model:
    return ir.from_proto(text.parse(source))
