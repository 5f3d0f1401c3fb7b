"""Pages in Chromium: without a network, and no word on the console."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.viewer_page import viewer_page

Open = Callable[..., Any]


@pytest.fixture
def open_file(browser: Any) -> Iterator[Open]:
    """Opens an HTML file; the test fails if the page says anything on the console, or asks for anything else."""
    contexts = []
    words: list[str] = []

    def opened(path: Path, *, width: int = 1280, height: int = 800, fragment: str = "", **options: Any) -> Any:
        settings = {"color_scheme": "light", "reduced_motion": "reduce", "locale": "en-US", **options}
        context = browser.new_context(viewport={"width": width, "height": height}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", lambda message: words.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: words.append(f"error: {error.stack or error}"))
        page.on("request", lambda request: _ask(request.url, path, words))
        page.on("dialog", lambda dialog: words.append(f"dialog: {dialog.message}"))
        page.goto(path.as_uri() + fragment)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert words == []


def _ask(url: str, path: Path, words: list[str]) -> None:
    # What is saved comes from a blob of the page.
    if url.partition("#")[0] != path.as_uri() and not url.startswith("blob:"):
        words.append(f"request: {url}")


@pytest.fixture
def open_viewer(open_file: Open, tmp_path: Path) -> Open:
    """Opens a page with the viewer of a drawing document, and waits until it is drawn."""

    def opened(document: Mapping[str, Any], **options: Any) -> Any:
        path = tmp_path / "viewer.html"
        path.write_text(viewer_page(document), encoding="utf-8", errors="surrogatepass")
        page = open_file(path, **options)
        page.wait_for_selector("body[data-drawn]")
        return page

    return opened
