"""The workbench of a session in a notebook: a server in a thread of this process, and the frame that shows it."""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING, Any

from surgery.base.errors import UsageError
from surgery.interface.pages.page import render
from surgery.interface.workbench.shared_session import SharedSession

if TYPE_CHECKING:
    from surgery.features.workbench.session import Session

_MOST_SECONDS = 10.0
"""How long to wait for the server to start, or to end."""


def workbench(session: Session) -> ShownSession:
    """Serve a session. Raises UsageError if the server is not installed."""
    return ShownSession(session)


def workbench_of_model(model: Any) -> ShownSession:
    """Open a session of a model and serve it; it ends with the page. Raises UsageError as `workbench` does."""
    from surgery.features.workbench.session import Session

    session = Session.open(model)
    try:
        return ShownSession(session, is_owner=True)
    except BaseException:
        session.close()
        raise


class ShownSession:
    """The page of a session, which a notebook shows in a frame. `height` is that of the frame in pixels."""

    height = 800

    def __init__(self, session: Session, *, is_owner: bool = False) -> None:
        try:
            from surgery.interface.workbench.serving import address, bound, prepared
        except ModuleNotFoundError as error:
            todo = "pip install 'onnx-surgery[workbench]'"
            raise UsageError(f"the workbench needs {error.name}, which is not installed", todo=todo) from error
        path = session.stored.path
        self._name = path.name if path is not None else "a model in memory"
        self._address = address
        self._shared = SharedSession(lambda _: session, session.folder, is_owner=is_owner)
        self._at = bound(0)
        self._server, self._gate = prepared(self._shared, self._at)
        self._thread = threading.Thread(target=self._serve, name="workbench-server", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._at])
        finally:
            self._shared.close()

    @property
    def is_open(self) -> bool:
        """Whether the page is still served."""
        return self._thread.is_alive() and not self._server.should_exit

    @property
    def address(self) -> str:
        """An address of the page for a tab of a browser on this machine; each is good for one visit."""
        return self._address(self._at, self._gate)

    def close(self) -> None:
        """End the server and its thread. The session stays open."""
        self._server.should_exit = True
        if threading.current_thread() is not self._thread:
            self._thread.join(_MOST_SECONDS)

    def __repr__(self) -> str:
        """Return a line for a prompt."""
        where = f"at {self.address}" if self.is_open else "closed"
        return f"<The workbench of {self._name!r}, {where}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the page in a frame, and a link to open it in a tab."""
        if not self.is_open:
            return str(render("workbench_closed.html.jinja", name=self._name))
        return str(
            render(
                "workbench_frame.html.jinja",
                name=self._name,
                height=self.height,
                id=f"surgery-{secrets.token_hex(8)}",
                port=self._at.getsockname()[1],
                token=self._gate.token(is_framed=True),
                address=self.address,
            )
        )
