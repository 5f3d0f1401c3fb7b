"""One session for all tabs: what a page asks for and does, in one thread, and the progress that it is sent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from surgery.base.errors import UsageError
from surgery.interface.drawing import History, document
from surgery.interface.workbench.value_summary import summary_of

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import StepRecord
    from surgery.features.workbench.session import Session, SessionChange

T = TypeVar("T")


class StaleError(UsageError):
    """The page shows an earlier state of the session than the current one, because another tab changed it."""


class PageProgress:
    """An observer of steps that sends what happens to all pages."""

    def __init__(self) -> None:
        self._listeners: dict[asyncio.Queue[Mapping[str, Any]], asyncio.AbstractEventLoop] = {}
        self._lock = threading.Lock()

    def listen(self) -> asyncio.Queue[Mapping[str, Any]]:
        """Return a queue that receives all further events, in the running event loop."""
        queue: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        with self._lock:
            self._listeners[queue] = asyncio.get_running_loop()
        return queue

    def leave(self, queue: asyncio.Queue[Mapping[str, Any]]) -> None:
        """Send a queue no more events."""
        with self._lock:
            self._listeners.pop(queue, None)

    def send(self, **event: Any) -> None:
        """Send an event from any thread."""
        with self._lock:
            for queue, loop in self._listeners.items():
                loop.call_soon_threadsafe(queue.put_nowait, event)

    def stage(self, step: str, stage: str) -> None:
        """Send the stage that a step has reached."""
        self.send(kind="stage", step=step, stage=stage)

    def said(self, step: str, text: str) -> None:
        """Send what a pass has printed."""
        self.send(kind="said", step=step, text=text[-2000:])

    def done(self, record: StepRecord) -> None:
        """Send the outcome of a step."""
        self.send(kind="done", step=record.name, status=record.status)


class Desk:
    """A session as pages use it. Its work runs in one thread, in the order in which it was asked for."""

    def __init__(self, open_session: Callable[[PageProgress], Session], folder: Path) -> None:
        self.progress = PageProgress()
        self.folder = folder
        self.version = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="workbench")
        self._drawing: tuple[int, dict[str, Any]] | None = None
        try:
            self.session = self._thread.submit(open_session, self.progress).result()
        except BaseException:
            self._thread.shutdown()
            raise

    def close(self) -> None:
        """End the work, and the session."""
        self._thread.submit(self.session.close).result()
        self._thread.shutdown()

    async def run(self, work: Callable[..., T], *values: Any) -> T:
        """Run something in the thread of the session."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *values))

    # What pages ask for

    def state(self) -> dict[str, Any]:
        """Return everything that the page shows besides the graph."""
        session = self.session
        path = session.stored.path
        return {
            "version": self.version,
            "title": path.name if path is not None else "a model in memory",
            "folder": str(self.folder),
            "steps": [step.to_json() for step in session.steps],
            "recipe": session.recipe_yaml(),
            "can_undo": session.can_undo,
            "can_redo": session.can_redo,
            "reopened": session.reopened,
            "refused": session.refused.to_json() if session.refused is not None else None,
            "nodes": len(session.model.proto.graph.node),
        }

    def drawing(self) -> dict[str, Any]:
        """Return the drawing document of the model after each step that changed it."""
        if self._drawing is None or self._drawing[0] != self.version:
            session, history = self.session, History()
            history.begin(session.stored, session.model_after(-1).proto)
            for step in session.steps:
                if step.status == "committed":
                    history.commit(session.model_after(step.number).proto, step.records[-1], step.number)
            self._drawing = self.version, document(history, self.state()["title"])
            # The page has asked for all that it needs; what people do next should not wait for this.
            self._thread.submit(session.prepare)
        return self._drawing[1]

    def offers(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return what can be done with a selection."""
        return [offer.to_json() for offer in self.session.offers(names)]

    def why(self, name: str, node: str, options: Mapping[str, Any]) -> list[str]:
        """Return the explanation of a pass at a node, in lines."""
        found = self.session.why(name, node, options)
        if found.sites:
            return [f"it changes {len(found.sites)} places here"]
        return found.lines(8)

    def values(self, tensor: str) -> dict[str, Any]:
        """Return a summary of the values of a tensor, on the inputs that steps are verified on."""
        return summary_of(tensor, self.session.values(tensor))

    # What pages do

    def act(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Change the steps as a page asks; return whether that was done, and the state then."""
        version = asked.get("version")
        if version != self.version:
            raise StaleError("the steps were changed in another tab", todo="the page shows them now; act again")
        change = self._change(asked)
        if change.ok:
            self.version += 1
            self.progress.send(kind="changed", version=self.version)
        refused = change.refused.to_json() if change.refused is not None else None
        return {"ok": change.ok, "refused": refused, "state": self.state()}

    def _change(self, asked: Mapping[str, Any]) -> SessionChange:
        session = self.session
        acts: Mapping[str, Callable[[], SessionChange]] = {
            "add": lambda: session.add(_step(asked), _optional_number(asked, "at")),
            "replace": lambda: session.replace(_number(asked, "number"), _step(asked)),
            "remove": lambda: session.remove(_number(asked, "number")),
            "move": lambda: session.move(_number(asked, "number"), _number(asked, "to")),
            "switch": lambda: session.switch(_number(asked, "number"), asked.get("on") is True),
            "write": lambda: session.write(_text(asked, "text")),
            "undo": session.undo,
            "redo": session.redo,
        }
        act = acts.get(str(asked.get("act")))
        if act is None:
            raise UsageError(f"there is no act '{asked.get('act')}'")
        return act()

    def save(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Write model, recipe, report and provenance to a folder below the opened one, or next to a model there."""
        place = self.folder / _text(asked, "place")
        saved = self.session.save(place, force=asked.get("force") is True)
        files = (saved.model, saved.recipe, saved.report, saved.provenance)
        return {"files": [str(path.relative_to(self.folder)) for path in files], "nodes": saved.result.output.nodes}


def _step(asked: Mapping[str, Any]) -> str | Mapping[str, Any]:
    step = asked.get("step")
    if not isinstance(step, str | Mapping):
        raise UsageError("a step is text or a mapping")
    return step


def _number(asked: Mapping[str, Any], key: str) -> int:
    found = asked.get(key)
    if not isinstance(found, int):
        raise UsageError(f"'{key}' is a number")
    return found


def _optional_number(asked: Mapping[str, Any], key: str) -> int | None:
    return None if asked.get(key) is None else _number(asked, key)


def _text(asked: Mapping[str, Any], key: str) -> str:
    found = asked.get(key)
    if not isinstance(found, str) or not found.strip():
        raise UsageError(f"'{key}' is a text")
    return found
