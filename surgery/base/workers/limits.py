"""The memory limit of a process, and its end with its parent."""

from __future__ import annotations

import ctypes
import resource
import signal

_PR_SET_PDEATHSIG = 1


def limit_memory(size: int) -> None:
    """Limit the writable private memory of this process, and of processes that it starts, in bytes.

    The address space is not limited, because mapped weights and reserved arenas cost nothing. An inherited limit is
    never raised.
    """
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    size = size if most == resource.RLIM_INFINITY else min(size, most)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, whatever way it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
