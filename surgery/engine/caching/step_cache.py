"""The step cache of a run: lookups and updates for the pipeline.

The name of an entry has two parts. The first is the digest of the model before the step and of the step itself. The
second is the digest of everything committed or refused before, from the original on, because later steps are compared
with the result. Steps without changes do not count, so an outcome is still found after such a step is inserted before
it. The folder of an entry stands for the settings of the whole run, see `keys`.

A separate thread stores the entries. It reads and writes new tensors while the pipeline continues.
"""

from __future__ import annotations

import queue
import threading
import zlib
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from surgery.base.errors import PassError, SurgeryError
from surgery.engine.caching import housekeeping, keys, outcome_text
from surgery.engine.caching.cache_folder import CacheFolder, key_of
from surgery.engine.caching.tensor_data_names import MissingTensorError, TensorDataNames, digest
from surgery.engine.pipeline.candidate import Candidate, State
from surgery.engine.pipeline.step_cache_interface import EndFacts, Judged, RunStart
from surgery.verification.comparing.deployment import Deployed
from surgery.verification.comparing.details import Verdict

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import StepRecord
    from surgery.engine.recipe.schema import PassStep
    from surgery.model import storage

_PLAIN: Final = (
    *("changed", "sites", "refusals", "verdict", "complaint", "exit_code", "final"),
    *("renamed", "accounts", "remarks"),
)
"""The stored fields of a candidate; its model is stored separately."""
_BESIDES: Final = ("refused", "guilty", "kept")
_STATES: Final = 8  # number of models whose portable form is kept
_FAST: Final = 1


class Steps:
    """The outcomes of steps in a cache folder. `found` and `missed` count the requested entries.

    `refusal` is the reason why a run is not cached, empty if it is.
    """

    def __init__(self, folder: CacheFolder) -> None:
        self.folder = folder
        self.refusal = ""
        self.found = self.missed = 0
        self._counted = 0, 0
        self._known: frozenset[str] = frozenset()
        self._begun: frozenset[str] = frozenset()
        self._steps: dict[int, tuple[PassStep, str | None]] = {}
        self._run = ""

    # Interface for the pipeline

    def expects(self, stored: storage.StoredModel) -> bool:
        """Return whether an earlier run used this model."""
        return self.folder.expects(stored.weights.files())

    def begin(self, run: RunStart) -> None:
        """Start a run."""
        self._stop()
        self._run, self._known = "", frozenset()
        self.refusal = keys.refusal(run)
        if self.refusal:
            return
        self._names = TensorDataNames(run.stored.weights, self.folder)
        self._portable: dict[bytes, tuple[bytes, str]] = {}
        self._lock = threading.Lock()
        self._history: str | None = ""
        try:
            original = self._digest(run.first)
            self._run = keys.run_key(run, original, self.folder)
        except (MissingTensorError, SurgeryError, OSError) as error:
            self.refusal = str(error)
            return
        self._known = self.folder.names(self._run)
        self._begun = frozenset(name.partition(".")[0] for name in self._known)
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def may_know(self, step: PassStep, before: State) -> bool:
        """Return whether an outcome of this step on this model exists, regardless of the steps before."""
        if not self._known:
            return False
        name = self._name(step, before)
        return name in self._begun

    def find(self, step: PassStep, before: State) -> Judged | None:
        """Return the outcome of a step; None if it is unknown, pruned or damaged."""
        self._waiting.join()
        name = self._name(step, before)
        judged: Judged | None = self._look(name, lambda held, model: self._judged(step, before, held, model))
        return judged

    def note(self, step: PassStep, judged: Judged, record: StepRecord, before: State, after: State) -> None:
        """Record the outcome of a step."""
        if self._run:
            self._waiting.put(lambda: self._take(step, judged, record, before, after))

    def find_whole(self, name: str, state: State) -> Verdict | None:
        """Return the verdict on a committed model as a whole, if known."""
        verdict: Verdict | None = self._find_value(f"whole {name}", state, Verdict)
        return verdict

    def note_whole(self, name: str, state: State, verdict: Verdict) -> None:
        """Record the verdict on a committed model as a whole, if it accepts the model."""
        if verdict.status.accepted:
            self._note_value(f"whole {name}", state, verdict)

    def find_deployed(self, state: State) -> Deployed | None:
        """Return the result of running a committed model as deployed, if known."""
        deployed: Deployed | None = self._find_value("deployed", state, Deployed)
        return deployed

    def note_deployed(self, state: State, deployed: Deployed) -> None:
        """Record the result of running a committed model as deployed, if it accepts the model."""
        if deployed.verdict.status.accepted:
            self._note_value("deployed", state, deployed)

    def find_end(self, state: State) -> EndFacts | None:
        """Return the facts about the original for the report, if known."""
        facts: EndFacts | None = self._find_value("end", state, EndFacts)
        return facts

    def note_end(self, state: State, facts: EndFacts) -> None:
        """Record the facts about the original for the report."""
        self._note_value("end", state, facts)

    def finish(self) -> None:
        """Wait until all recorded entries are stored."""
        if self._run:
            self._stop()
            found, missed = self._counted
            self.folder.used(self.found - found, self.missed - missed)
            self._counted = self.found, self.missed
            # The limit may be lower than that of earlier runs, so a run that adds nothing also removes entries.
            housekeeping.bound(self.folder)
            self._run, self._known = "", frozenset()

    def _stop(self) -> None:
        if self._run:
            self._waiting.put(None)
            self._writer.join()

    # Names

    def _digest(self, state: State) -> str:
        """Return the digest of the portable form of a model. Raises MissingTensorError."""
        return self._form(state)[1]

    def _form(self, state: State) -> tuple[bytes, str]:
        with self._lock:
            known = self._portable.get(state.data)
            if known is None:
                data = self._names.portable(state.proto)
                known = self._portable[state.data] = data, digest(data)
                for old in list(self._portable)[:-_STATES]:
                    del self._portable[old]
            return known

    def _step_key(self, step: PassStep) -> str | None:
        known = self._steps.get(id(step))
        if known is None:
            # Keep the step with its key, so that no other step gets the same id.
            known = self._steps[id(step)] = step, keys.step_key(step)
        return known[1]

    def _name(self, step: PassStep, before: State) -> str | None:
        """Return the first part of the name of an entry."""
        key = self._step_key(step)
        if key is None:
            return None
        try:
            return key_of("step", key, self._digest(before))[:40]
        except MissingTensorError:
            return None

    def _entry(self, name: str) -> str:
        return f"{name}.{key_of(self._history)[:24]}"

    # Reading

    def _look(self, name: str | None, read: Callable[[Any, bytes], Any]) -> Any:
        """Return the result of `read` for an entry; None if the entry is missing or damaged."""
        entry = self._entry(name) if name is not None and self._history is not None else ""
        made = self._read(entry, read) if entry in self._known else None
        self.found += made is not None
        return made

    def _read(self, entry: str, read: Callable[[Any, bytes], Any]) -> Any:
        body = self.folder.read(self._run, entry)
        if body is None:
            return None
        try:
            size, rest = int.from_bytes(body[:4], "big"), body[4:]
            held = outcome_text.load(zlib.decompress(rest[:size]))
            if held["entry"] != f"{self._run}/{entry}":
                raise ValueError("an entry of another name")
            return read(held, zlib.decompress(rest[size:]) if len(rest) > size else b"")
        except MissingTensorError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError, zlib.error):
            self.folder.drop(self.folder.runs / self._run / entry)
            return None

    def _judged(self, step: PassStep, before: State, held: dict[str, Any], model: bytes) -> Judged:
        candidate = Candidate(step, **{name: held[name] for name in _PLAIN})
        if model:
            proto = self._names.restored(model)
            data = proto.SerializeToString(deterministic=True)
            with self._lock:
                self._portable[data] = model, digest(model)
            candidate = replace(candidate, proto=proto, data=data)
        else:
            candidate = replace(candidate, proto=before.proto, data=before.data)
        return Judged(candidate, cached=True, **{name: held[name] for name in _BESIDES})

    def _find_value(self, what: str, state: State, kind: type) -> Any:
        if not self._run:
            return None
        self._waiting.join()
        name = self._value_name(what, state)

        def read(held: Any, model: bytes) -> Any:
            if not isinstance(held["value"], kind):
                raise TypeError(what)
            return held["value"]

        return self._look(name, read) if self._known else None

    def _value_name(self, what: str, state: State) -> str | None:
        try:
            return key_of(what, self._digest(state))[:40]
        except MissingTensorError:
            return None

    # Writing, in a separate thread

    def _write(self) -> None:
        while True:
            work = self._waiting.get()
            try:
                if work is None:
                    return
                work()
            except Exception as error:
                # A failing cache must not end the run.
                self._history = None
                self.folder.stop_writing(f"{type(error).__name__}: {error}")
            finally:
                self._waiting.task_done()

    def _take(self, step: PassStep, judged: Judged, record: StepRecord, before: State, after: State) -> None:
        if self._history is None:
            return
        name = self._name(step, before)
        self.missed += not judged.cached
        if name is not None and not judged.cached and _is_lasting(judged, record):
            self._store(self._entry(name), judged)
        if record.status not in ("unchanged", "skipped") or judged.refused:
            self._history = self._continued(step, judged, record, after)

    def _continued(self, step: PassStep, judged: Judged, record: StepRecord, after: State) -> str | None:
        """Return the digest of everything committed or refused so far; None if unknown."""
        candidate, verdict = judged.candidate, judged.candidate.verdict
        try:
            said = outcome_text.dump((dict(candidate.renamed), candidate.accounts, judged.guilty))
            model = self._digest(after)
        except (TypeError, MissingTensorError):
            return None
        status = verdict.status.value if verdict is not None else ""
        is_open = verdict is not None and verdict.leaves_open
        # The pass and its options determine which sites are avoided from now on.
        guilty = (step.name, repr(step.options)) if judged.guilty else ""
        return key_of(self._history, guilty, record.status, candidate.promise.value, status, is_open, model, said)

    def _store(self, entry: str, judged: Judged) -> None:
        candidate = judged.candidate
        try:
            model = b""
            if candidate.changed and candidate.proto is not None:
                model = self._form(State(candidate.proto, candidate.data, {}))[0]
            held = {name: getattr(candidate, name) for name in _PLAIN}
            held |= {name: getattr(judged, name) for name in _BESIDES}
            self._put(entry, held, model)
        except (TypeError, MissingTensorError):
            return  # such as the account of another model that was merged into this one

    def _put(self, entry: str, held: dict[str, Any], model: bytes = b"") -> None:
        text = zlib.compress(outcome_text.dump({"entry": f"{self._run}/{entry}", **held}), _FAST)
        body = len(text).to_bytes(4, "big") + text + (zlib.compress(model, _FAST) if model else b"")
        self.folder.write(self._run, entry, body)

    def _note_value(self, what: str, state: State, value: Any) -> None:
        def store() -> None:
            name = self._value_name(what, state)
            if name is not None and self._history is not None:
                try:
                    self._put(self._entry(name), {"value": value})
                except TypeError:
                    return

        if self._run and not getattr(value, "cached", False):
            self._waiting.put(store)


def _is_lasting(judged: Judged, record: StepRecord) -> bool:
    """Return whether another run would have the same outcome: no limit and no failure of ours affected it."""
    candidate = judged.candidate
    broke = bool(candidate.defects) or record.exit_code == PassError.exit_code
    return candidate.proto is not None and not judged.cut_short and candidate.is_certain and not broke


assert set(_PLAIN) <= {one.name for one in fields(Candidate)}
assert set(_BESIDES) <= {one.name for one in fields(Judged)}
