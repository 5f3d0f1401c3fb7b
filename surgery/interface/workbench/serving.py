"""Run the server on this machine until it is interrupted, or the page says that it is done."""

from __future__ import annotations

import socket
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import uvicorn

from surgery.base.errors import UsageError
from surgery.interface.workbench.application import application

if TYPE_CHECKING:
    from surgery.interface.workbench.gate import Gate
    from surgery.interface.workbench.shared_session import SharedSession

_HOST = "127.0.0.1"


def bound(port: int) -> socket.socket:
    """Return a socket on the loopback interface; port 0 is any free one. Raises UsageError if the port is taken."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.bind((_HOST, port))
        made.listen()  # whoever is faster than the server waits
    except OSError as error:
        made.close()
        raise UsageError(
            f"port {port} cannot be used: {error.strerror}", todo="pass another --port, or omit it"
        ) from error
    return made


def prepared(shared: SharedSession, at: socket.socket) -> tuple[uvicorn.Server, Gate]:
    """Return a server for a session, and the gate, which makes the tokens that open it."""
    port = at.getsockname()[1]

    def end() -> None:
        server.should_exit = True

    gate = application(shared, port, end)
    settings = uvicorn.Config(gate, log_level="warning", access_log=False, timeout_graceful_shutdown=1, ws="none")
    server = uvicorn.Server(settings)
    return server, gate


def address(at: socket.socket, gate: Gate) -> str:
    """Return an address of the page, which is good for one visit."""
    return f"http://{_HOST}:{at.getsockname()[1]}/?token={gate.token()}"


def serve(shared: SharedSession, at: socket.socket, *, browser: bool, say: Callable[[str], None]) -> None:
    """Serve a session until Ctrl-C, or until the page ends it. `say` receives the address."""
    server, gate = prepared(shared, at)
    opened = address(at, gate)
    say(opened)
    if browser:
        with suppress(webbrowser.Error):  # the address was printed
            webbrowser.open(opened)
    try:
        server.run(sockets=[at])
    finally:
        shared.close()
