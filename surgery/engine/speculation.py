"""Running ahead: the next pass works on what the last one made, while that is still being judged.

To judge is work for other processes, and to run a pass is work for this one. A change that turns out wrong is taken
back, with everything that was made of it, and the steps after it run again on what is left.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import onnx

    from surgery.engine.records import StepRecord
    from surgery.recipe.schema import PassStep

F = TypeVar("F")
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True)
class State:
    """A committed model without weights: as a message, serialized, and its operators counted."""

    proto: onnx.ModelProto
    data: bytes
    ops: dict[str, int]

    @property
    def nodes(self) -> int:
        """The number of its nodes."""
        return sum(self.ops.values())


class Judging(Generic[F, T]):
    """A judgement in a thread of its own, which does not outlive this process.

    It begins with what is to `find` out of the change alone. What it takes to `compare` the change with what it was
    made of comes next, one change after the other. While the `previous` judgement is on, it may `anticipate` what else
    its own takes; it goes on when that one has come to a good end, and else it is called off.
    """

    def __init__(
        self,
        find: Callable[[], F],
        compare: Callable[[F], None],
        anticipate: Callable[[F], None],
        judge: Callable[[F], T],
        accepts: Callable[[T], bool],
        previous: Judging[F, T] | None,
    ) -> None:
        self.seconds = 0.0
        self._find, self._compare, self._anticipate, self._judge = find, compare, anticipate, judge
        self._accepts = accepts
        self._previous: Judging[F, T] | None = previous
        self._answer: list[T] = []
        self._error: Exception | None = None
        self._good = self._called_off = False
        self._compared, self._begun = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            found = self._timed(self._find)
            if self._previous is None or self._previous._has_compared():
                self._timed(self._compare, found)
            self._compared.set()
            if self._previous is not None:
                if self._previous._has_begun():
                    self._timed(self._anticipate, found)
                if not self._previous._ends_well():
                    return
                self._previous = None
            if not self._called_off:
                self._begun.set()
                self._answer.append(self._timed(self._judge, found))
                self._good = self._accepts(self._answer[0])
        except Exception as error:
            self._error = error
        finally:
            self._compared.set()
            self._begun.set()

    def _timed(self, work: Callable[..., R], *arguments: object) -> R:
        started = time.perf_counter()
        try:
            return work(*arguments)
        finally:
            self.seconds += time.perf_counter() - started

    def _has_compared(self) -> bool:
        """Wait until it has compared its change; return whether that may still be kept."""
        self._compared.wait()
        return not self._called_off and (self._good or not self.done)

    def _has_begun(self) -> bool:
        """Wait until it judges; return whether it does still."""
        self._begun.wait()
        return not self.done

    def _ends_well(self) -> bool:
        self._thread.join()
        return self._good

    @property
    def done(self) -> bool:
        """Whether there is a result."""
        return not self._thread.is_alive()

    def call_off(self) -> None:
        """Do not begin any more."""
        self._called_off = True

    def wait(self, seconds: float) -> None:
        """Wait so long at most for the end."""
        self._thread.join(seconds)

    def result(self) -> T:
        """Wait for the judgement; raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._answer[0]


@dataclass
class Ahead(Generic[F, T]):
    """A change that is taken for granted until it is judged.

    `before` is what it was made of in `seconds`. `later` are the steps up to the next change, none of which changed
    anything, with what is to be recorded of them.
    """

    step: PassStep
    before: State
    after: State
    seconds: float
    judging: Judging[F, T]
    later: list[tuple[PassStep, StepRecord]] = field(default_factory=list)

    @property
    def steps(self) -> list[PassStep]:
        """The step that made the change, and those since."""
        return [self.step, *(step for step, _ in self.later)]
