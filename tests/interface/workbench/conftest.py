"""A workbench that is served in this process, and pages of it in Chromium."""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import surgery

Served = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Served]:
    """Serves a session of a model, and returns the address with its token."""
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    from surgery.interface.workbench.serving import address, bound, prepared
    from surgery.interface.workbench.shared_session import SharedSession

    running = []

    def served(model: Path, recipe: Any = None, **options: Any) -> str:
        folder = model.resolve().parent
        opened = partial(_opened, model, recipe, folder, options)
        shared, at = SharedSession(opened, folder), bound(0)
        server, gate = prepared(shared, at)
        thread = threading.Thread(target=partial(server.run, sockets=[at]), daemon=True)
        thread.start()
        running.append((server, thread, shared))
        while not server.started:
            time.sleep(0.01)
        return address(at, gate)

    yield served
    for server, thread, shared in running:
        server.should_exit = True
        thread.join(10)
        shared.close()


def _opened(model: Path, recipe: Any, folder: Path, options: dict[str, Any], observer: Any) -> surgery.Session:
    return surgery.Session.open(model, recipe, observer=observer, within=folder, **options)


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens an address in a context of its own; the test fails if the page reports an error, or asks elsewhere."""
    contexts: list[Any] = []
    words: list[str] = []

    def opened(address: str, *, width: int = 1280, height: int = 800, context: Any = None, **options: Any) -> Any:
        if context is None:
            settings = {"color_scheme": "light", "reduced_motion": "reduce", "locale": "en-US", **options}
            context = browser.new_context(viewport={"width": width, "height": height}, **settings)
            contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: words.append(f"error: {error.stack or error}"))
        page.on("console", lambda message: words.append(message.text) if "Content Security" in message.text else None)
        page.on("dialog", lambda dialog: words.append(f"dialog: {dialog.message}"))
        home = address.partition("?")[0]
        page.on(
            "request", lambda request: None if request.url.startswith((home, "data:")) else words.append(request.url)
        )
        page.goto(address)
        page.wait_for_selector("body[data-ready]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert words == []
