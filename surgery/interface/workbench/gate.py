"""Who may talk to the server: the browser that has the token, on this machine, from the page itself."""

from __future__ import annotations

import hmac
import re
import secrets
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS = (
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
)

_NOTEBOOK = re.compile(r"http://(localhost|127\.0\.0\.1)(:[0-9]{1,5})?")
"""The origin of a notebook on this machine."""


class Gate:
    """Refuses requests for another host, from another origin, or without the cookie that the first visit gets.

    The address has a token, which is good for one visit: that visit gets a cookie, which scripts cannot read and other
    sites cannot send. A name that was made to point to this machine (DNS rebinding) is another host.

    No page may frame this one, except a notebook on this machine that has the token of a frame and says where it is.
    """

    def __init__(self, app: ASGIApp, port: int, policy: str) -> None:
        self._app = app
        self._secret = secrets.token_urlsafe(32)
        self._tokens: dict[str, bool] = {}
        self._ancestors = "'none'"
        self._cookie = f"surgery-{port}"
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._policy = policy

    def token(self, *, is_framed: bool = False) -> str:
        """Return a new token for one visit, in a frame of a notebook or not."""
        made = secrets.token_urlsafe(32)
        self._tokens[made] = is_framed
        return made

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        why = self._refusal(scope)
        is_new = not why and not self._has_cookie(scope)
        if is_new and not self._takes_token(scope):
            why = "this address is no longer valid; start 'surgery open' again, and use the address that it prints"
        headers = [*_HEADERS, ("content-security-policy", f"{self._policy}; frame-ancestors {self._ancestors}")]
        if is_new and not why:
            headers.append(("set-cookie", f"{self._cookie}={self._secret}; HttpOnly; SameSite=Strict; Path=/"))

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [*message.get("headers", ())]
                own = {name for name, _ in given}
                more = [(name.encode(), value.encode()) for name, value in headers if name.encode() not in own]
                message["headers"] = [*given, *more]
            await send(message)

        app = PlainTextResponse(why, 403) if why else self._app
        await app(scope, receive, answer)

    def _refusal(self, scope: Scope) -> str:
        """Return why a request is refused whoever sends it; empty if it is not."""
        if scope["type"] != "http":
            return "only HTTP is supported"
        host, origin = _header(scope, b"host"), _header(scope, b"origin")
        if host not in self._hosts:
            return "the Host header does not name this server"
        if scope["method"] not in ("GET", "HEAD") and not origin:
            return "the Origin header is missing"
        if origin and origin not in {f"http://{one}" for one in self._hosts}:
            return "requests from other sites are refused"
        return ""

    def _has_cookie(self, scope: Scope) -> bool:
        try:
            found = SimpleCookie(_header(scope, b"cookie")).get(self._cookie)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value.encode(), self._secret.encode())

    def _takes_token(self, scope: Scope) -> bool:
        """Return whether a request has a token, which is then used up."""
        given = parse_qs(scope["query_string"].decode("latin-1"))
        token = given.get("token", [""])[0]
        found = next((one for one in self._tokens if hmac.compare_digest(token.encode(), one.encode())), None)
        if found is None or scope["path"] != "/":
            return False
        if self._tokens.pop(found):
            frame = given.get("frame", [""])[0]
            self._ancestors = frame if _NOTEBOOK.fullmatch(frame) else self._ancestors
        return True


def _header(scope: Scope, name: bytes) -> str:
    found = [value for key, value in scope["headers"] if key == name]
    return found[0].decode("latin-1") if len(found) == 1 else ""
