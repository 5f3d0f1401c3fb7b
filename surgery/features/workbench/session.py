"""A session: a live model with a list of recipe steps, each of which runs and is verified as in `surgery.apply`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Self

from surgery.base.errors import ExpectationError, SurgeryError, UsageError
from surgery.base.views import view
from surgery.engine.caching.cache_folder import CacheFolder
from surgery.engine.caching.step_cache import Steps
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.records import Silent
from surgery.engine.provenance.statement_writing import SUFFIX, Sidecar
from surgery.engine.recipe import resolved
from surgery.engine.recipe.from_python import read
from surgery.engine.recipe.loader import parse
from surgery.engine.recipe.schema import Recipe
from surgery.engine.recipe.writer import written
from surgery.features.workbench.draft_file import DraftFile
from surgery.features.workbench.live_run import LiveRun
from surgery.features.workbench.named_files import named_files
from surgery.features.workbench.offers import Offer
from surgery.features.workbench.properties import Property
from surgery.features.workbench.queries import Queries
from surgery.features.workbench.saved_session import ReportPage, SavedSession, places, restore, why_not_ok
from surgery.features.workbench.snapshot import Snapshot
from surgery.features.workbench.step_outcomes import RefusedStep, SessionStep, refused_step
from surgery.features.workbench.step_texts import StepText, StepTexts, keeping_right, split, step_texts
from surgery.features.workbench.synchronized import synchronized
from surgery.features.workbench.tensor_values import TensorValues
from surgery.features.workbench.watchers import Watchers
from surgery.model import storage

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from surgery.engine.pipeline.records import Observer, Result
    from surgery.engine.recipe.from_python import Given
    from surgery.engine.why.explain import Why
    from surgery.model.storage.loading import Model

_IDLE = StepText("- drop-dead")
"""A step that stands for none: a recipe without steps cannot be read."""


@dataclass(frozen=True)
class SessionChange:
    """The outcome of a change to the steps: whether it was made, the steps then, or else the refused step."""

    ok: bool
    steps: tuple[SessionStep, ...]
    refused: RefusedStep | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        refused = self.refused.to_json() if self.refused is not None else None
        return {"ok": self.ok, "steps": [step.to_json() for step in self.steps], "refused": refused}


class Session:
    """A model that is edited step by step: the steps are those of a recipe, and each is verified before it counts.

        with surgery.Session.open("model.onnx") as session:
            session.add("drop-dropout")
            session.add({"set-dims": {"dims": {"batch": "N"}}})
            session.undo()
            session.save("edited")

    A step that is refused changes nothing, and neither does a change of other steps with which a later one is refused:
    the `SessionChange` says which, why and where. Every change is saved to a draft, which `open` finds again.
    """

    _draft: DraftFile
    _live: LiveRun

    def __init__(
        self, stored: storage.StoredModel, *, trust: bool, observer: Observer | None, within: Path | None
    ) -> None:
        self.stored = stored
        self.reopened = False
        """Whether the steps come from the draft of a session that ended without being saved."""
        self.shared_with: int | None = None
        """The process of another session that was open with the same model and recipe, and writes the same draft."""
        self.refused: RefusedStep | None = None
        """The step of the recipe that was refused when the session was opened; it and those after it are off."""
        self.version = 0
        """The number of changes to the steps, undone ones included."""
        self.watchers = Watchers(observer or Silent())
        self.lock = RLock()
        self._trust, self._within = trust, within
        self._path: Path | None = None
        self._known: frozenset[Path] = frozenset()
        self._past: list[Snapshot] = []
        self._future: list[Snapshot] = []
        self.attempt: Snapshot | None = None
        """The last change that was refused: its steps, of which those before the refused one ran."""
        self._page: Any = None
        self.queries, self.tensor_values = Queries(), TensorValues()  # answers about snapshots, in any thread

    @classmethod
    def open(
        cls,
        model: Model,
        recipe: Given | None = None,
        *,
        trust: bool = False,
        fresh: bool = False,
        observer: Observer | None = None,
        within: str | Path | None = None,
    ) -> Self:
        """Open a model, with the steps of a recipe, or those of the draft of an earlier session of both.

        `fresh` ignores the draft. With `trust`, recipes may run local code. `observer` receives the progress of steps.
        `within` is the folder outside of which steps may not name files, except those that `recipe` names, and `save`
        not write any. Raises what `surgery.apply` raises before a run.
        """
        folder = None if within is None else Path(within).resolve()
        session = cls(storage.opened(model), trust=trust, observer=observer, within=folder)
        begun = ""
        if recipe is None:
            path = session.stored.path
            texts = StepTexts((), written({"recipe": path.stem if path is not None else "model"}).rstrip("\n"))
            if path is not None:
                # Its paths are relative to the folder of the model, unless that is a temporary one.
                place = folder / path.name if folder is not None and storage.is_copy(path) else path
                session._path = place.with_suffix(".yaml")
        else:
            loaded = read(recipe, trust=trust)
            texts, session._path = _text_of(recipe, loaded), loaded.path
            session._known = frozenset(named.resolve() for named in named_files(loaded))
            begun = texts.whole()
        session._draft = DraftFile(session.stored, begun)
        session._live = LiveRun(session.stored, session._draft.outcomes, session.watchers)
        found = None if fresh else session._draft.read()
        session.reopened = found is not None and found != texts
        session._start(found if session.reopened and found is not None else texts)
        session.shared_with = session._draft.claim()
        return session

    def _start(self, texts: StepTexts) -> None:
        """Run the first steps; a refused one is switched off, with those after it, which may need it."""
        snapshot, refused = self._tried(texts)
        if refused is not None:
            self.refused = refused
            on = [number for number, step in enumerate(texts.steps) if step.on]
            least = on[len([ran for ran in snapshot.ran if ran is not None])]
            steps = (replace(step, on=step.on and number < least) for number, step in enumerate(texts.steps))
            snapshot, _ = self._tried(replace(texts, steps=tuple(steps)))
        self._now = snapshot

    def __enter__(self) -> Self:
        """Return the session."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the session."""
        self.close()

    def close(self) -> None:
        """End all work, and the page of `show`. The draft stays until the session is saved or discarded."""
        if self._page is not None:
            self._page.close()
        with self.lock:
            self._live.close()
            self._draft.release()

    def show(self, *, height: int = 800) -> Any:
        """Show the session in a notebook: a page that edits it, as `surgery open` does, in the output of the cell.

            session.show()

        A thread of this process serves the page, until the page or the session ends, or the returned value is closed,
        which also has an `address` for a tab of a browser. Only browsers on this machine can reach the page, and it
        reads and writes files only in the folder of the model. Cells and page may take turns to change the session.
        `height` is that of the page in pixels. It needs the extra 'workbench'; raises UsageError without it.
        """
        if self._page is None or not self._page.is_open:
            self._page = view("workbench")(self)
        self._page.height = height
        return self._page

    @contextmanager
    def confined(self, folder: Path) -> Iterator[None]:
        """Let no other thread change the session, and let it read and write new files only in a folder."""
        with self.lock:
            before, self._within = self._within, folder.resolve()
            try:
                yield
            finally:
                self._within = before

    def discard(self) -> None:
        """Remove the draft, and close the session."""
        self.close()
        self._draft.remove()

    def __repr__(self) -> str:
        """Return a line for a prompt."""
        name = self.stored.path.name if self.stored.path is not None else "a model in memory"
        on = sum(step.on for step in self._now.texts.steps)
        return f"<Session of {name!r}: {on} of {len(self._now.texts.steps)} steps, {self._now.state.nodes} nodes>"

    # Reading

    @property
    def steps(self) -> tuple[SessionStep, ...]:
        """The steps with their outcomes."""
        return self._now.steps

    @property
    def snapshot(self) -> Snapshot:
        """The steps and their outcomes as they are now; it stays the same when the session is changed."""
        return self._now

    @property
    def model(self) -> storage.StoredModel:
        """The model after the last step; weights are shared with the original."""
        return self._now.model

    def model_after(self, step: int) -> storage.StoredModel:
        """Return the model after a step, counted from 0; -1 is the original."""
        return self._now.model_after(step)

    def states(self) -> tuple[onnx.ModelProto, ...]:
        """Return the models without weights: the original, and that after each step that is on."""
        return tuple(state.proto for state in self._now.states(len(self._now.ran) - 1))

    @property
    def folder(self) -> Path:
        """The folder of the model; the current one for a model in memory, or from a URL."""
        path = self.stored.path
        return Path.cwd() if path is None or storage.is_copy(path) else path.resolve().parent

    @property
    def can_undo(self) -> bool:
        """Whether there is a change to undo."""
        return bool(self._past)

    @property
    def can_redo(self) -> bool:
        """Whether there is a change to redo."""
        return bool(self._future)

    def recipe_yaml(self) -> str:
        """Return the recipe as text; steps that are switched off are comments."""
        return self._now.texts.whole()

    # Changes

    def add(self, step: str | Mapping[str, Any], at: int | None = None) -> SessionChange:
        """Add a step at the end, or before the step `at`: the name of a pass, a mapping, or YAML of one or more steps.

        Raises RecipeError, with the place of each mistake, if it is not a valid step.
        """
        steps = self._now.texts.steps
        place = len(steps) if at is None else self._number(at, len(steps) + 1)
        return self._change((*steps[:place], *step_texts(step), *steps[place:]))

    def replace(self, number: int, step: str | Mapping[str, Any]) -> SessionChange:
        """Replace a step, counted from 0."""
        steps, at = self._now.texts.steps, self._number(number)
        return self._change((*steps[:at], *step_texts(step), *steps[at + 1 :]))

    def remove(self, number: int) -> SessionChange:
        """Remove a step, counted from 0; the steps after it run again on the model before it."""
        steps, at = self._now.texts.steps, self._number(number)
        return self._change((*steps[:at], *steps[at + 1 :]))

    def move(self, number: int, to: int) -> SessionChange:
        """Move a step to another place."""
        steps = [*self._now.texts.steps]
        step = steps.pop(self._number(number))
        steps.insert(self._number(to), step)
        return self._change(tuple(steps))

    def switch(self, number: int, on: bool) -> SessionChange:
        """Switch a step on or off."""
        at = self._number(number)
        steps = (replace(step, on=on) if one == at else step for one, step in enumerate(self._now.texts.steps))
        return self._change(tuple(steps))

    def write(self, text: str) -> SessionChange:
        """Replace the whole recipe by a text, as people edit it.

        Raises RecipeError, with the line and column of each mistake in the text.
        """
        parse(text, self._path, trust=self._trust)
        return self._made(split(text))

    def keep_right(self) -> SessionChange:
        """Make the last refused change again, but let the refused step leave alone the places where it is wrong."""
        if self.attempt is None:
            raise UsageError("no change was refused")
        steps, at = [*self.attempt.texts.steps], self.attempt.refused
        steps[at] = keeping_right(steps[at])
        return self._made(replace(self.attempt.texts, steps=tuple(steps)))

    def undo(self) -> SessionChange:
        """Undo the last change. Nothing runs: the outcomes before it are known."""
        return self._go(self._past, self._future, "undo")

    def redo(self) -> SessionChange:
        """Make the last undone change again."""
        return self._go(self._future, self._past, "redo")

    @synchronized
    def _go(self, source: list[Snapshot], target: list[Snapshot], verb: str) -> SessionChange:
        if not source:
            raise UsageError(f"there is nothing to {verb}")
        target.append(self._now)
        self._now = source.pop()
        self._changed()
        return SessionChange(True, self.steps)

    def _number(self, number: int, count: int | None = None) -> int:
        count = len(self._now.texts.steps) if count is None else count
        if not 0 <= number < count:
            raise UsageError(f"there is no step {number}", todo=f"there are {len(self._now.texts.steps)}, from 0")
        return number

    def _change(self, steps: tuple[StepText, ...]) -> SessionChange:
        return self._made(replace(self._now.texts, steps=steps))

    @synchronized
    def _made(self, texts: StepTexts) -> SessionChange:
        """Run the steps of a text; make it the current one unless a step is refused."""
        snapshot, refused = self._tried(texts)
        self.attempt = None if refused is None else snapshot
        if refused is not None:
            return SessionChange(False, self.steps, refused)
        self._past.append(self._now)
        self._future.clear()
        self._now = snapshot
        if self._within is None:
            # Whoever uses the session without its page may name any file.
            self._known |= {named.resolve() for named in named_files(snapshot.recipe)}
        self._changed()
        return SessionChange(True, self.steps)

    def _changed(self) -> None:
        self._draft.write(self._now.texts)
        self.version += 1
        self.watchers.changed(self.version)

    def _tried(self, texts: StepTexts) -> tuple[Snapshot, RefusedStep | None]:
        """Run steps up to the first refused one."""
        recipe = self._read(texts)
        on = [step for step in texts.steps if step.on]
        settings = f"{texts.above}\0{texts.below}"
        found, refused = self._live.run(recipe, settings, [step.text for step in on])
        outcomes = iter(found)
        assert self._live.first is not None
        ran = tuple(next(outcomes, None) if step.on else None for step in texts.steps)
        snapshot = Snapshot(self.stored, self._live.first, texts, recipe, ran)
        if refused is None:
            return snapshot, None
        return snapshot, refused_step(recipe.steps[refused.step], on[refused.step], refused)

    def _read(self, texts: StepTexts, path: Path | None = None) -> Recipe:
        """Read the recipe of a text, whose positions are those in `recipe_yaml`."""
        if any(step.on for step in texts.steps):
            recipe = parse(texts.whole(), path or self._path, trust=self._trust)
            if self._within is not None:
                for named in named_files(recipe):
                    if named.resolve() not in self._known:
                        self._require_within(named)
            return recipe
        return replace(parse(texts.whole((_IDLE,)), path or self._path, trust=self._trust), steps=())

    def _require_within(self, path: Path) -> None:
        """Raise UsageError for a path outside of the folder of the session, with links resolved."""
        if self._within is not None and not path.resolve().is_relative_to(self._within):
            raise UsageError(f"'{path}' is outside of the opened folder", todo=f"use files in {self._within}")

    # What can be done

    def offers(self, selection: Sequence[str]) -> list[Offer]:
        """List what can be done with nodes and tensors, given by name: every pass of surgery, those with a site first.

        An offer without a site says why not, as far as that is known; see `why`.
        """
        return self.queries.offers(self._now, selection)

    def properties(self, selection: Sequence[str]) -> list[Property]:
        """List what of nodes and tensors can be changed by `set_property`: names, attributes, weights, dims, types."""
        return self.queries.properties(self._now, selection)

    def set_property(self, selection: Sequence[str], key: str, value: str = "") -> SessionChange:
        """Add the step that gives a property a value, written as in a recipe, or that does the action of this key."""
        return self.add(self.queries.step(self._now, selection, key, value))

    def why(self, name: str, node: str, options: Mapping[str, Any] | None = None) -> Why:
        """Explain why a pass does, or does not, do anything at a node, as `surgery.explain` does."""
        return self.queries.why(self._now, name, node, options or {})

    def prepare(self) -> None:
        """Do ahead what the next step and the next question need: a replayed pipeline, and an index of the model."""
        self.replay()
        self.queries.prepare(self._now)

    @synchronized
    def replay(self) -> None:
        """Do ahead what the next step needs: a pipeline that has run the steps."""
        self._tried(self._now.texts)

    def values(self, tensor: str) -> list[np.ndarray[Any, Any]]:
        """Run the model on the inputs that steps are verified on; return the values of a tensor, one for each set."""
        found = self.tensor_values.tensor(self._now, tensor)
        if not found.is_original and found.after is None:
            raise UsageError(f"the model has no tensor '{tensor}' after the last step")
        return list((found.before if found.is_original else found.after) or ())

    # Files

    def save_recipe(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the recipe, completely or not at all. Its relative paths become absolute where they would not hold."""
        if not any(step.on for step in self._now.texts.steps):
            raise UsageError("the session has no step, and a recipe needs one", todo="add a step first")
        self._require_within(Path(path))
        target = storage.check_target(path, force=force)
        storage.write_texts({target: self._text_for(target)})
        return target

    def _text_for(self, target: Path) -> str:
        here = self._read(self._now.texts)
        try:
            is_same = resolved.data(here) == resolved.data(self._read(self._now.texts, target))
        except SurgeryError:
            is_same = False
        return self.recipe_yaml() if is_same else resolved.brief(here)

    @synchronized
    def save(self, place: str | Path, *, force: bool = False, page: ReportPage | None = None) -> SavedSession:
        """Run the whole recipe as `surgery.apply` does, and write the model, recipe, report and provenance.

        `place` is a folder, or the path of the model, next to which the others are written. Outcomes of steps that ran
        before are reused. `page` makes an HTML page of the report, which is written too. Raises ExpectationError, and
        writes nothing, if the result is not accepted.
        """
        self._require_within(Path(place))
        model, recipe, report = places(Path(place), self.stored.path)
        sidecar = Sidecar()
        html = model.with_suffix(".report.html") if page is not None else None
        for path in filter(None, (model, report, html, model.with_name(model.name + SUFFIX))):
            storage.check_target(path, force=force)
        before = recipe.read_bytes() if recipe.is_file() else None
        self.save_recipe(recipe, force=force)
        try:
            result = self._applied(recipe, model, sidecar, page, force=force)
        except BaseException:
            restore(recipe, before)
            raise
        texts = {report: json.dumps(result.to_json(), indent=2) + "\n"}
        if page is not None and html is not None:
            texts[html] = page.html(result, recipe)
        storage.write_texts(texts)
        self._draft.remove()
        return SavedSession(result, model, recipe, report, sidecar.target(model), html)

    def _applied(self, recipe: Path, model: Path, sidecar: Sidecar, page: ReportPage | None, *, force: bool) -> Result:
        self._live.close()
        cache = Steps(CacheFolder(self._draft.outcomes, lambda text: None))
        history = page.recorder if page is not None else None
        options = runner.RunOptions(observer=self.watchers, cache=cache, provenance=sidecar, history=history)
        loaded = read(recipe, trust=self._trust)
        result = runner.apply(self.stored, loaded, output=model, force=force, options=options)
        if not result.ok:
            raise ExpectationError(why_not_ok(result), todo="nothing was written; change the step, or switch it off")
        return result


def _text_of(given: Given, loaded: Recipe) -> StepTexts:
    """Return the text of a recipe, as it was written if it is known."""
    if loaded.path is not None:
        return split(loaded.path.read_text(encoding="utf-8"))
    return split(given if isinstance(given, str) else resolved.brief(loaded))
