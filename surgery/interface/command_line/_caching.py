"""The flags of the step cache, and its messages."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import UsageError
from surgery.interface.command_line import _output

if TYPE_CHECKING:
    from surgery.engine.caching.cache_folder import CacheFolder
    from surgery.engine.caching.step_cache import Steps
    from surgery.engine.pipeline.agenda import Agenda
    from surgery.engine.pipeline.records import Observer, StepRecord


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the cache."""
    group = parser.add_argument_group("cache")
    group.add_argument(
        "--cache",
        action=argparse.BooleanOptionalAction,
        help="reuse the cached outcomes of unchanged steps, and cache those of the others (default: off)",
    )
    add_folder(group)
    group.add_argument(
        "--resume", action="store_true", help="continue an interrupted run that used --cache or --resume"
    )


def add_folder(parser: argparse._ActionsContainer) -> None:
    """Add the flag for the folder of the cache."""
    parser.add_argument(
        "--cache-dir",
        metavar="DIR",
        help="the folder of the cache (default: $SURGERY_CACHE_DIR, else ~/.cache/surgery)",
    )


def folder(arguments: argparse.Namespace, *, create: bool = True) -> CacheFolder:
    """Open the folder of the cache; damage is reported on stderr.

    Without `create`, nothing is created, and UsageError if --cache-dir names a missing folder.
    """
    from surgery.engine.caching import housekeeping
    from surgery.engine.caching.cache_folder import CacheFolder, default_folder

    housekeeping.limit()  # report problems with the limit before the run
    path = Path(arguments.cache_dir) if arguments.cache_dir else default_folder()
    if arguments.cache_dir and not create and not path.exists():
        raise UsageError("there is no such folder", where=str(path), todo="name the folder of a cache with --cache-dir")
    return CacheFolder(path, lambda text: _output.say(f"surgery: warning: {text}"), create=create)


def asked(arguments: argparse.Namespace) -> CacheFolder | None:
    """Return the cache folder that the flags select, or None."""
    if arguments.cache is False and arguments.resume:
        raise UsageError("--no-cache does not go with --resume", todo="omit one of them")
    if arguments.cache is False or not (arguments.cache or arguments.cache_dir or arguments.resume):
        return None
    return folder(arguments)


def steps(found: CacheFolder | None) -> Steps | None:
    """Return the step cache in a folder. It is imported only if needed, because that is slow."""
    if found is None:
        return None
    from surgery.engine.caching.step_cache import Steps

    return Steps(found)


class Resuming:
    """An observer that reports at which step a run resumes, and forwards all events."""

    def __init__(self, observer: Observer, cache: Steps, agenda: Agenda) -> None:
        self._observer, self._cache, self._agenda = observer, cache, agenda
        self._taken = 0
        self._said = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._observer, name)

    def stage(self, step: str, stage: str) -> None:
        """Report the resumption when the first step runs."""
        if not self._said:
            self._said = True
            number, total = self._agenda.done + 1, self._agenda.total
            where = f"step {number} of {total}" if number <= total else "the end"
            if self._taken:
                text = f"resumed at {where}"
            else:
                why = self._cache.refusal or "no step of this run is cached"
                text = f"nothing to resume: {why}; starting at step 1 of {total}"
            _output.messages().print(text, soft_wrap=True)
        self._observer.stage(step, stage)

    def done(self, record: StepRecord) -> None:
        """Count a step."""
        self._taken += record.cached
        self._agenda.note(record.name, record.where)
        self._observer.done(record)
