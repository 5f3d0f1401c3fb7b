"""The generated reference is up to date, and complete."""

import re

import pytest
from support import ROOT, lacking

from surgery.engine.registry.catalog import catalog
from surgery.interface import commands as cli
from surgery.interface.commands._single_pass import EDITS
from surgery.interface.docsgen import commands, python_pages, reference

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    written = reference.pages(declared for declared in catalog.passes().values() if declared.is_standard)
    return {**written, **python_pages.pages(), "reference/commands.md": commands.page(cli.parser())}


def test_the_pages_are_up_to_date(pages: dict[str, str]) -> None:
    lacking.skip_short_numbers()
    stale = [name for name, text in pages.items() if (DOCS / name).read_text(encoding="utf-8") != text]
    assert stale == [], "run 'make docs'"


def test_no_generated_page_is_left_over(pages: dict[str, str]) -> None:
    texts = {str(path.relative_to(DOCS)): path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")}
    assert {name for name, text in texts.items() if text.startswith(reference.GENERATED)} == set(pages)


def test_every_pass_has_an_entry(pages: dict[str, str]) -> None:
    titles = re.findall(r"^## (.*)$", "".join(text for name, text in pages.items() if "README" not in name), re.M)
    standard = {name for name, declared in catalog.passes().items() if declared.is_standard}
    assert standard <= set(titles)


def test_every_command_has_an_entry_with_all_its_options(pages: dict[str, str]) -> None:
    entries = dict(re.findall(r"^## surgery (.*)\n\n((?:(?!^## ).*\n)*)", pages["reference/commands.md"], re.M))
    modules = {path.stem for path in (DOCS.parent / "surgery" / "interface" / "commands").glob("[a-z]*.py")}
    assert {name.partition(" ")[0] for name in entries} == {name.replace("_", "-") for name in modules} | set(EDITS)
    assert "`--on-failure abort\\|rollback\\|bisect\\|keep`" in entries["apply"]
    assert "surgery split [OPTIONS] MODEL" in entries["split"] and "`--at TENSOR [TENSOR ...]`" in entries["split"]
    assert "`--trust`" in entries["recipe show"]
