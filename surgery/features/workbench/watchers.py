"""Those who watch a session: each receives the progress of steps, and is notified of changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import Observer, StepRecord


class Watchers:
    """An observer of steps that passes everything on to others, which may come and go."""

    def __init__(self, first: Observer) -> None:
        self._observers: tuple[Observer, ...] = (first,)
        self._notified: dict[Observer, Callable[[int], object]] = {}

    def add(self, observer: Observer, notified: Callable[[int], object]) -> None:
        """Add an observer; `notified` is called with the version of the session after each change."""
        self._observers = (*self._observers, observer)
        self._notified = {**self._notified, observer: notified}

    def remove(self, observer: Observer) -> None:
        """Remove an observer."""
        self._observers = tuple(one for one in self._observers if one is not observer)
        self._notified = {one: notified for one, notified in self._notified.items() if one is not observer}

    def stage(self, step: str, stage: str) -> None:
        """Pass it on."""
        for one in self._observers:
            one.stage(step, stage)

    def said(self, step: str, text: str) -> None:
        """Pass it on."""
        for one in self._observers:
            one.said(step, text)

    def done(self, record: StepRecord) -> None:
        """Pass it on."""
        for one in self._observers:
            one.done(record)

    def changed(self, version: int) -> None:
        """Notify all of a change."""
        for notified in self._notified.values():
            notified(version)
