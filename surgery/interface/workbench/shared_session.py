"""One session for all tabs: what pages do, what they ask meanwhile, and the progress that they are sent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from surgery.base.errors import UsageError
from surgery.features.workbench import chosen_inputs, second_model
from surgery.interface.drawing.node_heat import heat_of
from surgery.interface.drawing.run_page import RunPage
from surgery.interface.workbench import comparison
from surgery.interface.workbench.drawings import Drawings
from surgery.interface.workbench.searches import Searches
from surgery.interface.workbench.value_summary import summary_of

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import StepRecord
    from surgery.features.workbench.session import Session, SessionChange
    from surgery.features.workbench.snapshot import Snapshot

T = TypeVar("T")

_MOST_HEATS = 8
"""Maximum number of states and kinds of figures that are kept."""


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


@dataclass(frozen=True)
class PageState:
    """A session at one time, as pages show it. `version` counts the changes."""

    version: int
    snapshot: Snapshot
    can_undo: bool
    can_redo: bool


class SharedSession:
    """A session as pages use it.

    Only the thread for acts changes the session, one act after the other. What pages ask is answered from `page_state`,
    which never changes and is replaced after each act, so that no question waits for a step that is running. There is
    one thread for questions that look at the graph, and one for those that run models.

    Acts read and write files in `folder`. `is_owner` is whether the session ends with this; if not, others may
    change the session too. `has_tour` is whether pages begin with a guided tour.
    """

    def __init__(
        self,
        open_session: Callable[[PageProgress], Session],
        folder: Path,
        *,
        is_owner: bool = True,
        has_tour: bool = False,
    ) -> None:
        self.progress = PageProgress()
        self.folder = folder
        self.has_tour = has_tour
        self._page: Path | None = None
        self._is_owner = is_owner
        self._acts, self._asked, self._runs = (
            ThreadPoolExecutor(1, thread_name_prefix=f"workbench-{name}") for name in ("acts", "asked", "runs")
        )
        try:
            self.session = self._acts.submit(open_session, self.progress).result()
        except BaseException:
            self._shut_down()
            raise
        self.session.queries.load()
        path = self.session.stored.path
        self.title = path.name if path is not None else "a model in memory"
        self._drawings = Drawings(self.title)
        self._chosen: chosen_inputs.ChosenInputs | None = None
        self._heats: dict[tuple[str, bytes], dict[str, Any]] = {}
        self.session.watchers.add(self.progress, self._changed)
        self.page_state = self._page_state(self.session.version)
        self.searches = Searches(self.session, self.progress)

    def close(self) -> None:
        """End the work, and the session if it is owned."""
        self.session.watchers.remove(self.progress)
        self.searches.stop()
        if self._is_owner:
            self._acts.submit(self.session.close).result()
        self._shut_down()

    def _shut_down(self) -> None:
        for thread in (self._acts, self._asked, self._runs):
            thread.shutdown(cancel_futures=True)

    def _page_state(self, version: int) -> PageState:
        session = self.session
        return PageState(version, session.snapshot, session.can_undo, session.can_redo)

    def _changed(self, version: int) -> None:
        self.page_state = self._page_state(version)
        self.progress.send(kind="changed", version=version)

    async def acted(self, work: Callable[..., T], *values: Any) -> T:
        """Run something that uses the session, after the acts before it."""
        return await asyncio.get_running_loop().run_in_executor(self._acts, partial(self._confined, work, *values))

    def _confined(self, work: Callable[..., T], *values: Any) -> T:
        with self.session.confined(self.folder):
            return work(*values)

    async def asked(self, work: Callable[..., T], *values: Any) -> T:
        """Run something that looks at the page state, while an act may be running."""
        return await asyncio.get_running_loop().run_in_executor(self._asked, partial(work, *values))

    async def ran(self, work: Callable[..., T], *values: Any) -> T:
        """Run something that runs models of the page state, which may take long, while an act may be running."""
        return await asyncio.get_running_loop().run_in_executor(self._runs, partial(work, *values))

    # What pages ask for

    def state(self) -> dict[str, Any]:
        """Return everything that the page shows besides the graph."""
        shown, session = self.page_state, self.session
        return {
            "version": shown.version,
            "title": self.title,
            "folder": str(self.folder),
            "steps": [step.to_json() for step in shown.snapshot.steps],
            "recipe": shown.snapshot.texts.whole(),
            "recipes": [{"name": name, "about": about} for name, about in session.queries.recipes().items()],
            "can_undo": shown.can_undo,
            "can_redo": shown.can_redo,
            "reopened": session.reopened,
            "refused": session.refused.to_json() if session.refused is not None else None,
            "nodes": len(shown.snapshot.state.proto.graph.node),
            "nodes_at_first": shown.snapshot.first.nodes,
            "outputs": [value.name for value in shown.snapshot.first.proto.graph.output],
        }

    def drawing(self) -> str:
        """Return the drawing document of the model after each step that changed it, as JSON."""
        now = self.page_state.snapshot
        text = self._drawings.of(now)
        # The page has asked for all that it needs; what people do next should not wait for this.
        self._acts.submit(self.session.replay)
        self._asked.submit(self.session.queries.prepare, now)
        return text

    def offers(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return what can be done with a selection."""
        return [offer.to_json() for offer in self.session.queries.offers(self.page_state.snapshot, names)]

    def properties(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return what of a selection can be changed by typing a value, or with one press."""
        return [one.to_json() for one in self.session.queries.properties(self.page_state.snapshot, names)]

    def why(self, name: str, node: str, options: Mapping[str, Any]) -> list[str]:
        """Return the explanation of a pass at a node, in lines."""
        found = self.session.queries.why(self.page_state.snapshot, name, node, options)
        if found.sites:
            return [f"it changes {len(found.sites)} places here"]
        return found.lines(8)

    def draft(self, names: Sequence[str], place: str) -> dict[str, Any]:
        """Return nodes as text for a place at the selection, as options of `insert-nodes`."""
        return self.session.queries.draft(self.page_state.snapshot, names, place)

    def values(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a tensor in the original, and after a step, which is the last one by default."""
        step = _optional_number(asked, "step")
        return summary_of(
            self.session.tensor_values.tensor(self.page_state.snapshot, _text(asked, "tensor"), step, self._spec)
        )

    @property
    def _spec(self) -> Any:
        """The chosen inputs; None for those of the verification."""
        return self._chosen.spec if self._chosen is not None else None

    def compared(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the models that can be compared with, or the comparison with one of them."""
        if not asked.get("path"):
            return {"models": second_model.candidates(self.folder)}
        return comparison.compared(self.page_state.snapshot, self.folder, _text(asked, "path"), self._spec)

    def inputs(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Choose the inputs to look at values with, for all tabs; return what is chosen, and what may be."""
        now, kind = self.page_state.snapshot, str(asked.get("kind") or "")
        self.session.tensor_values.forget()
        if kind == "verification":
            self._chosen = None
        elif kind == "tokens":
            self._chosen = chosen_inputs.from_tokens(now, _text(asked, "text"))
        elif kind == "file":
            options = asked.get("images")
            options = options if isinstance(options, dict) else {}
            self._chosen = chosen_inputs.from_file(now, self.folder, _text(asked, "path"), options)
        chosen = self._chosen
        return {
            "title": chosen.title if chosen is not None else "",
            "can_verify": chosen is not None and bool(chosen.section),
            "files": chosen_inputs.candidates(self.folder),
        }

    def changes(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return after which step an output first differs by more than a limit, and by how much after each."""
        limit = asked.get("limit")
        if not isinstance(limit, int | float) or isinstance(limit, bool) or not limit >= 0:
            raise UsageError("the limit is a number, 0 or more")
        return self.searches.changes(self.page_state.snapshot, _text(asked, "tensor"), limit)

    def heat(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return figures of the nodes of the model after the last step, which are kept for the last few states."""
        now, kind = self.page_state.snapshot, _text(asked, "kind")
        key = kind, now.state.data
        found = self._heats.pop(key, None)
        if found is None:
            verify = now.recipe.verify
            settings = {name: getattr(verify, name) for name in ("timeout", "memory", "custom_op_library", "providers")}
            found = heat_of(now.model, kind, settings).to_json()
        self._heats[key] = found
        while len(self._heats) > _MOST_HEATS:
            del self._heats[next(iter(self._heats))]
        return found

    # What pages do

    def act(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Change the steps as a page asks; return whether that was done, and the state then."""
        if asked.get("version") != self.page_state.version:
            raise StaleError("the steps were changed in another tab", todo="the page shows them now; act again")
        change = self._change(asked)
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
            "keep_right": session.keep_right,
            "set": lambda: session.set_property(names_in(asked), str(asked.get("key")), str(asked.get("value") or "")),
            "verify-on-inputs": self._verify_on_inputs,
            "undo": session.undo,
            "redo": session.redo,
        }
        act = acts.get(str(asked.get("act")))
        if act is None:
            raise UsageError(f"there is no act '{asked.get('act')}'")
        return act()

    def _verify_on_inputs(self) -> SessionChange:
        """Write the chosen inputs into the recipe, which runs again."""
        if self._chosen is None:
            raise UsageError("no inputs are chosen", todo="choose a file first")
        return self.session.write(self._chosen.written_into(self.session.snapshot))

    def save(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Write model, recipe, reports and provenance to a folder below the opened one, or next to a model there."""
        place = self.folder / _text(asked, "place")
        saved = self.session.save(place, force=asked.get("force") is True, page=RunPage())
        self._page = saved.page
        files = filter(None, (saved.model, saved.recipe, saved.page, saved.report, saved.provenance))
        return {"files": [str(path.relative_to(self.folder)) for path in files], "nodes": saved.result.output.nodes}

    def report(self) -> str | None:
        """Return the page of the report that was saved last; None if there is none."""
        try:
            return self._page.read_text(encoding="utf-8") if self._page is not None else None
        except OSError:
            return None


def names_in(asked: Mapping[str, Any]) -> list[str]:
    """Return the names of nodes and tensors that a page sends."""
    names = asked.get("names")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


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
