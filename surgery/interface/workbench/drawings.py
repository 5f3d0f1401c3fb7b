"""The drawings of the snapshots of a session: each continues the one before it where their steps are the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from surgery.interface.drawing import History, document
from surgery.interface.drawing.inferred_values import Facts

if TYPE_CHECKING:
    from surgery.features.workbench.snapshot import Snapshot

_MOST_KEPT = 4
"""Maximum number of finished drawings: what undo and redo go back to is usually among the last."""

_Drawn = tuple[int, str, bytes]
"""A state that is drawn: the number and the name of its step, and the model."""


class Drawings:
    """Makes the drawing documents of snapshots, in one thread.

    States that a snapshot shares with the one that was drawn last are not compared again, so an added step costs as
    much as the model has nodes, however many steps there are before it.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._history: History | None = None
        self._states: tuple[_Drawn, ...] = ()
        self._facts: Facts | None = None
        self._kept: dict[tuple[_Drawn, ...], str] = {}

    def of(self, now: Snapshot) -> str:
        """Return the document of a snapshot as JSON: the model after each step that changed it."""
        pairs = [(step, ran) for step, ran in zip(now.steps, now.ran) if ran is not None and step.status == "committed"]
        states = tuple((step.number, step.title, ran.after.data) for step, ran in pairs)
        text = self._kept.pop(states, None)
        if text is None:
            history = self._continued(now, states)
            for step, ran in pairs[len(self._states) :]:
                history.commit(ran.after.proto, step.records[-1], step.number)
                self._states = (*self._states, states[len(self._states)])
            text = json.dumps(document(history, self._title, self._facts), separators=(",", ":"), allow_nan=False)
        self._kept[states] = text
        while len(self._kept) > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return text

    def _continued(self, now: Snapshot, states: tuple[_Drawn, ...]) -> History:
        """Return a history with the first of these states: the last one, or a new one if that has others."""
        if self._history is None or states[: len(self._states)] != self._states:
            self._history, self._states = History(), ()
            self._history.begin(now.stored, now.model_after(-1).proto)
        if self._facts is None:
            assert self._history.first is not None
            self._facts = Facts(self._history.first)
        return self._history
