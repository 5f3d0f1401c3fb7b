"""All generated pages of the documentation."""

from __future__ import annotations

from surgery.engine.registry.catalog import catalog
from surgery.interface import commands as cli
from surgery.interface.docsgen import commands, reference


def generate() -> dict[str, str]:
    """Return the pages with all known passes, by path relative to the documentation folder."""
    return {**reference.pages(catalog.passes().values()), "reference/commands.md": commands.page(cli.parser())}
