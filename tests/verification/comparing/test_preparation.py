"""Work that is done once, by whatever thread asks first."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from surgery.verification.comparing.preparation import Preparation
from surgery.verification.comparing.probing import SearchEnded


def test_all_threads_find_the_work_done() -> None:
    done: list[int] = []
    started = threading.Event()

    def work() -> None:
        started.set()
        threading.Event().wait(0.2)
        done.append(1)

    preparation = Preparation(work, lambda: None)

    def finish(second: bool) -> int:
        if second:
            started.wait()
        preparation.finish()
        return len(done)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(finish, (False, True))) == [1, 1]


def test_an_early_begin_is_waited_for() -> None:
    done: list[str] = []
    preparation = Preparation(lambda: done.append(threading.current_thread().name), lambda: None)
    preparation.begin()
    preparation.finish()
    preparation.begin()
    assert len(done) == 1 and done != [threading.current_thread().name]


def test_each_call_raises_the_error() -> None:
    preparation = Preparation(lambda: [][0], lambda: None)
    for _ in range(2):
        with pytest.raises(IndexError):
            preparation.finish()


def test_abandoned_work_is_killed_and_blames_nothing() -> None:
    killed = threading.Event()

    def work() -> None:
        assert killed.wait(10)
        raise MemoryError

    preparation = Preparation(work, killed.set)
    preparation.begin()
    preparation.abandon()
    with pytest.raises(SearchEnded):
        preparation.finish()
