"""Pages: self-contained HTML files that show runs, models and measurements, and the charts in them.

Nothing here knows models: a page is made of plain values, as the JSON reports have them. All of a page is in its file,
which loads nothing from anywhere.
"""

from __future__ import annotations

from surgery.pages.page import Section, page
from surgery.pages.text import visible

__all__ = ["Section", "page", "visible"]
