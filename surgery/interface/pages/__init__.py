"""Pages: HTML files that show runs, models and measurements, with charts.

This package does not depend on models: pages are built from plain values, as in the JSON reports. A page is one
self-contained file.
"""

from __future__ import annotations

from surgery.interface.pages.page import PageSection, page
from surgery.interface.pages.page_text import visible

__all__ = ["PageSection", "page", "visible"]
