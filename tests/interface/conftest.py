"""Chromium for the tests of pages, started once."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--font-render-hinting=none",
    "--force-color-profile=srgb",
]
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def _missing(reason: str) -> None:
    if os.environ.get("SURGERY_REQUIRE_BROWSER") == "1":
        pytest.fail(f"SURGERY_REQUIRE_BROWSER=1, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, for all tests of a worker."""
    try:
        from playwright import sync_api
    except ImportError:
        _missing("playwright is not installed")
    program = os.environ.get("SURGERY_BROWSER") or next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        _missing("there is no Chromium: install it, or name it in SURGERY_BROWSER")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=_FLAGS)
        yield started
        started.close()
