"""Every link in a Markdown file of the repository leads to a file that exists, and to a heading that it has."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
from support import ROOT

from surgery.interface.docsgen.reference import anchor

FENCED = re.compile(r"^```.*?^```$", flags=re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")


def markdown_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


@cache
def anchors(path: Path) -> frozenset[str]:
    prose = FENCED.sub("", path.read_text(encoding="utf-8"))
    return frozenset(anchor(title) for title in re.findall(r"^#+ (.+)$", prose, flags=re.MULTILINE))


def broken(path: Path) -> list[str]:
    prose = re.sub(r"``.*?``|`[^`\n]*`", "", FENCED.sub("", path.read_text(encoding="utf-8")))
    found = []
    for link in LINK.findall(prose):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, heading = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (heading and heading not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("path", markdown_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path: Path) -> None:
    assert broken(path) == []


def test_most_markdown_files_are_checked() -> None:
    assert len(markdown_files()) > 20


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b`: c\n[one](#a-b-c) [`two`](#b) [three](no.md) [four](page.md#d)\n```\n[five](no.md)\n```\n")
    assert broken(page) == ["#b", "no.md", "page.md#d"]


def test_every_page_is_in_the_table_of_contents() -> None:
    listed = set(re.findall(r"\]\(([\w/.-]+\.md)\)", (ROOT / "docs" / "index.md").read_text(encoding="utf-8")))
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert pages - listed - {"index.md"} == {name for name in pages if re.match("reference/passes/[a-z]", name)}
