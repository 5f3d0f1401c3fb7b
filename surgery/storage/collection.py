"""A pause of Python's garbage collection, for code that creates many long-lived objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause garbage collection: a third of the time would go into looking at a graph that is being built.

    It is for a `with` statement or a decorator. What is given back by counting references is so all the time.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
