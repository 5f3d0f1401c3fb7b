"""The cases and examples of passes that call other tools, which take seconds to import and are imported once."""

import pytest
from support import case_files
from support.breadth import sampled

from surgery.engine.registry.catalog import catalog
from surgery.features import testing

TOOLS = {name: one for name, one in catalog.passes().items() if one.is_standard and one.theme == "tools"}
pytestmark = pytest.mark.usefixtures("tools_at_hand")


@pytest.mark.parametrize("case", sampled([case for case in case_files.read() if case.pass_name in TOOLS], 2), ids=str)
def test_case(case: testing.Case, request: pytest.FixtureRequest) -> None:
    case_files.check(case, bless=request.config.getoption("--bless"))


@pytest.mark.parametrize("name", TOOLS)
def test_the_example_of_every_tool_fires(name: str) -> None:
    case_files.check_example(TOOLS[name])
