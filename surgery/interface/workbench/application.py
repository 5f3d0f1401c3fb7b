"""The server: a page, and an interface in JSON over one session, for the browser of the person who started it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from surgery.base.errors import RecipeError, SurgeryError, internal
from surgery.interface.pages.workbench import page_of_workbench
from surgery.interface.workbench.gate import Gate
from surgery.interface.workbench.shared_session import SharedSession, StaleError, names_in

if TYPE_CHECKING:
    from starlette.requests import Request

_MOST_BYTES = 4 << 20
"""Maximum size of what a page sends: a recipe, and names of nodes."""

_BEAT = 15.0
"""Seconds after which a silent stream of events sends a line, so that a lost connection is noticed."""


_Work = Callable[[Mapping[str, Any]], Any]
_Where = Callable[..., Awaitable[Any]]


def application(shared: SharedSession, port: int, end: Callable[[], None]) -> Gate:
    """Return the application for a session; `end` stops the server."""
    html, policy = page_of_workbench(shared.title, has_tour=shared.has_tour)
    answers = _Answers(shared, html, end)
    routes = [
        Route("/", answers.page),
        Route("/report", answers.report),
        Route("/api/state", answers.state),
        Route("/api/drawing", answers.drawing),
        Route("/api/schema", answers.schema),
        Route("/api/events", answers.events),
        Route("/api/end", answers.end, methods=["POST"]),
        *(
            Route(f"/api/{name}", answers.answering(where, work), methods=["POST"])
            for name, (where, work) in _works(shared).items()
        ),
    ]
    return Gate(Starlette(routes=routes), port, policy)


def _works(shared: SharedSession) -> Mapping[str, tuple[_Where, _Work]]:
    """Return what pages can send, and where it is done."""
    return {
        "act": (shared.acted, shared.act),
        "save": (shared.acted, shared.save),
        "offers": (shared.asked, lambda given: shared.offers(names_in(given))),
        "properties": (shared.asked, lambda given: shared.properties(names_in(given))),
        "draft": (shared.asked, lambda given: shared.draft(names_in(given), str(given.get("place")))),
        "why": (
            shared.asked,
            lambda given: shared.why(str(given.get("pass")), str(given.get("node")), given.get("options") or {}),
        ),
        "compare": (shared.ran, lambda given: shared.compared(given)),
        "heat": (shared.ran, lambda given: shared.heat(given)),
        "inputs": (shared.ran, lambda given: shared.inputs(given)),
        "blame": (shared.ran, lambda given: shared.searches.blame()),
        "changes": (shared.ran, shared.changes),
        "stop": (shared.asked, lambda given: shared.searches.stop()),
        "values": (shared.ran, lambda given: shared.values(given)),
    }


class _Answers:
    """The answers to requests."""

    def __init__(self, shared: SharedSession, html: str, end: Callable[[], None]) -> None:
        self._desk, self._html, self._end = shared, html, end

    async def page(self, _: Request) -> Response:
        return HTMLResponse(self._html)

    async def report(self, _: Request) -> Response:
        """Answer with the saved report, which has a policy of its own; its scripts may not reach this server."""
        html = await self._desk.asked(self._desk.report)
        if html is None:
            return PlainTextResponse("No report was saved, or it is gone.", 404)
        policy = "sandbox allow-scripts allow-downloads; frame-ancestors 'none'"
        # A page in a sandbox may not ask for an opener policy.
        return HTMLResponse(
            html, headers={"content-security-policy": policy, "cross-origin-opener-policy": "unsafe-none"}
        )

    async def state(self, _: Request) -> Response:
        return JSONResponse(await self._desk.asked(self._desk.state))

    async def drawing(self, _: Request) -> Response:
        return Response(await self._desk.asked(self._desk.drawing), media_type="application/json")

    async def schema(self, _: Request) -> Response:
        return JSONResponse(await self._desk.asked(self._desk.session.queries.schema))

    async def end(self, _: Request) -> Response:
        self._desk.progress.send(kind="end")
        asyncio.get_running_loop().call_later(0.2, self._end)
        return JSONResponse({"ended": True})

    async def events(self, request: Request) -> Response:
        queue = self._desk.progress.listen()

        async def lines() -> AsyncIterator[str]:
            yield ": here\n\n"
            try:
                while not await request.is_disconnected():
                    try:
                        event = await asyncio.wait_for(queue.get(), _BEAT)
                    except TimeoutError:
                        yield ": still here\n\n"
                        continue
                    yield f"data: {json.dumps(event)}\n\n"
                    if event.get("kind") == "end":
                        return
            finally:
                self._desk.progress.leave(queue)

        return StreamingResponse(lines(), media_type="text/event-stream")

    def answering(self, where: _Where, work: _Work) -> Callable[[Request], Any]:
        """Return the answer to requests that send a mapping, with errors as values."""

        async def answer(request: Request) -> Response:
            try:
                given = await _given(request)
                return JSONResponse(await where(work, given))
            except SurgeryError as error:
                state = await self._desk.asked(self._desk.state) if isinstance(error, StaleError) else None
                return JSONResponse({"error": _error_values(error), "state": state}, 409 if state is not None else 400)
            except Exception as error:  # one line in the page, whatever broke
                return JSONResponse({"error": {"message": internal(error), "problems": []}}, 500)

        return answer


async def _given(request: Request) -> Mapping[str, Any]:
    """Return what a page sends. Raises SurgeryError if it is too large or no mapping."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BYTES:
            raise SurgeryError("the request is too large")
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not (request.headers.get("content-type") or "").startswith("application/json"):
        raise SurgeryError("the request is not a mapping in JSON")
    return found


def _error_values(error: SurgeryError) -> dict[str, Any]:
    """Return an error as plain values; mistakes in a recipe have their places."""
    problems = error.problems if isinstance(error, RecipeError) else ()
    places = [{"line": one.line, "column": one.column, "message": one.message} for one in problems]
    return {"message": str(error), "problems": places}
