"""All generated pages of the documentation."""

from __future__ import annotations

from surgery import cli
from surgery.docsgen import commands, reference
from surgery.registry.catalog import catalog


def generate() -> dict[str, str]:
    """Return the pages with all known passes, by path relative to the documentation folder."""
    return {**reference.pages(catalog.passes().values()), "reference/commands.md": commands.page(cli.parser())}
