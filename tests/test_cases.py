"""Every case file, and the completeness of the case files as a whole."""

from pathlib import Path

import pytest

from surgery import registry, testing

FOLDER = Path(__file__).parent / "cases"
CASES = testing.cases(FOLDER)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: testing.Case, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--bless"):
        testing.bless(case)
        case = testing.read_case(case.path)
    found = list(testing.problems(case))
    assert not found, "\n".join(found)


def test_every_pass_has_a_case_that_fires() -> None:
    fires = {case.pass_name for case in CASES if case.after is not None}
    assert set(registry.passes()) - fires == set()


def test_every_reason_to_refuse_has_a_case() -> None:
    shown = {name: [r for case in CASES if case.pass_name == name for r in case.refused] for name in registry.passes()}
    missing = {
        f"{name}: {reason.pattern}"
        for name, reasons in testing.reasons_in(registry.passes().values()).items()
        for reason in reasons
        if not any(reason.fullmatch(given) for given in shown[name])
    }
    assert missing == set()


def test_refusals_outnumber_rewrites() -> None:
    fires = sum(case.after is not None for case in CASES)
    assert len(CASES) - fires >= fires
