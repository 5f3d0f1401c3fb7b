"""One thing at a time: a session may be used by a notebook and by its page at once, in different threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])


def synchronized(method: Method) -> Method:
    """Let a method wait until no other one runs in another thread; its object has the attribute `lock`."""

    @wraps(method)
    def waiting(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.lock:
            return method(self, *args, **kwargs)

    return cast("Method", waiting)
