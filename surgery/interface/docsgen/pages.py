"""All generated pages of the documentation."""

from __future__ import annotations

from surgery.engine.registry.catalog import catalog
from surgery.interface import commands as cli
from surgery.interface.docsgen import commands, python_pages, reference


def generate() -> dict[str, str]:
    """Return the pages with all known passes, by path relative to the documentation folder."""
    shared = {**python_pages.pages(), "reference/commands.md": commands.page(cli.parser())}
    return {**reference.pages(catalog.passes().values()), **shared}
