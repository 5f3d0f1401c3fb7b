"""The web site of the documentation: `make site`."""

import re

from sphinx.application import Sphinx

project = "surgery"
html_title = "surgery"
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
extensions = ["myst_parser"]
exclude_patterns = ["images/draw.py"]
# Anchors like those of GitHub, so that links work in both places.
myst_heading_anchors = 4


def setup(app: Sphinx) -> None:
    """Derive the navigation from the lists of links in the index, which stay plain Markdown."""
    app.connect("source-read", _add_navigation)


def _add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    if page == "index":
        for title, body in re.findall(r"^## (.+)\n((?:(?!^## ).*\n)*)", source[0], flags=re.MULTILINE):
            source[0] += _toctree(title, re.findall(r"^- \[.*?\]\((.+?\.md)\)", body, flags=re.MULTILINE))
    elif page == "reference/passes/README":
        source[0] += _toctree("Passes", sorted(set(re.findall(r"\((\w+\.md)#", source[0]))))


def _toctree(caption: str, pages: list[str]) -> str:
    lines = ["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"]
    return "\n" + "\n".join(lines) + "\n"
