"""The draft of a session: its recipe as it is, in the user's state folder, so that a killed process loses nothing."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from surgery.base.errors import counted
from surgery.features.workbench.step_texts import StepText, StepTexts
from surgery.model import storage
from surgery.model.storage.summary import data_files

if TYPE_CHECKING:
    from surgery.model.storage import StoredModel

_VERSION: Final = 1


def state_folder() -> Path:
    """Return `surgery` in $XDG_STATE_HOME, which defaults to ~/.local/state."""
    given = os.environ.get("XDG_STATE_HOME", "")
    # According to the specification, relative paths are ignored.
    return (Path(given) if given.startswith("/") else Path.home() / ".local" / "state") / "surgery"


class DraftFile:
    """The draft of the edits of one model that began with one recipe, or with none."""

    def __init__(self, stored: StoredModel, begun: str) -> None:
        self.folder = state_folder() / "drafts" / _key(stored, begun)
        self._path = self.folder / "draft.json"
        self._model = storage.shown(str(stored.path.absolute())) if stored.path is not None else None
        self._lock: int | None = None

    @property
    def outcomes(self) -> Path:
        """The folder with the outcomes of the steps."""
        return self.folder / "outcomes"

    def read(self) -> StepTexts | None:
        """Return the recipe of the draft; None if there is none, or if it is damaged."""
        try:
            held = json.loads(self._path.read_text(encoding="utf-8"))
            if held["version"] != _VERSION:
                return None
            steps = tuple(StepText(str(one["text"]), bool(one["on"])) for one in held["steps"])
            return StepTexts(steps, str(held["above"]), str(held["below"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, texts: StepTexts) -> None:
        """Write the draft, completely or not at all. Raises OutputError."""
        held: dict[str, Any] = {
            "version": _VERSION,
            "model": self._model,
            "about": f"{counted(len(texts.steps), 'step')} of 'surgery open'",
            "above": texts.above,
            "steps": [{"text": step.text, "on": step.on} for step in texts.steps],
            "below": texts.below,
        }
        with storage.output_errors(self._path):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        storage.write_texts({self._path: json.dumps(held, indent=1) + "\n"})

    def claim(self) -> int | None:
        """Mark the draft as in use until `release`, and return the process of another session that uses it, or None.

        Nothing is refused: the mark is for a message, and is not set where files cannot be locked. It goes with the
        process, however that ends.
        """
        with suppress(OSError, ValueError):
            self._mark.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            mark = os.open(self._mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(mark, 0)
                os.write(mark, str(os.getpid()).encode())
                self._lock, mark = mark, -1
            except BlockingIOError:
                return int(os.read(mark, 20))
            finally:
                if mark >= 0:
                    os.close(mark)
        return None

    def release(self) -> None:
        """Remove the mark of this session, if it has set one."""
        if self._lock is not None:
            self._mark.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    @property
    def _mark(self) -> Path:
        return self.folder.with_suffix(".lock")

    def remove(self) -> None:
        """Remove the draft and the outcomes of its steps."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _key(stored: StoredModel, begun: str) -> str:
    """Return a digest of the path and the contents of a model, and of the recipe that the session began with.

    Of external data and large weights, which may take long to read, sizes and times count.
    """
    found = hashlib.sha256(begun.encode())
    # The copy of a model at a URL has another path and time each time.
    found.update(storage.shown(str(stored.path.absolute())).encode() if stored.path is not None else b"")
    found.update(stored.proto.SerializeToString(deterministic=True))
    is_copy = stored.path is not None and storage.is_copy(stored.path)
    for path in data_files(stored):
        stat = path.stat()
        changed = 0 if is_copy else stat.st_mtime_ns
        found.update(f"{path.name} {stat.st_size} {changed}\n".encode())
    return found.hexdigest()[:24]
