"""The generated reference is up to date, and complete."""

import re
from pathlib import Path

import pytest
from support import ROOT

from surgery.docsgen import reference
from surgery.registry import declare

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return reference.pages(declared for declared in declare.passes().values() if declared.is_standard)


def test_the_pages_are_up_to_date(pages: dict[str, str]) -> None:
    stale = [name for name, text in pages.items() if (DOCS / name).read_text(encoding="utf-8") != text]
    assert stale == [], "run 'make docs'"


def test_no_page_is_left_over(pages: dict[str, str]) -> None:
    written = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert {name for name in written if name.startswith("passes/")} == set(pages) - {"recipe-reference.md"}


def test_every_pass_has_an_entry(pages: dict[str, str]) -> None:
    titles = re.findall(r"^## (.*)$", "".join(text for name, text in pages.items() if "README" not in name), re.M)
    standard = {name for name, declared in declare.passes().items() if declared.is_standard}
    assert standard <= set(titles)


def test_links_lead_somewhere(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        for path, anchor in re.findall(r"\]\(([\w/.-]*)#?([\w-]*)\)", text):
            target = str(Path(name).parent / path) if path else name
            assert target in pages, (name, path)
            assert not anchor or f'<a id="{anchor}">' in pages[target] or f"## {anchor}\n" in pages[target], anchor
