"""The memory limit of a process."""

from __future__ import annotations

import resource


def limit_memory(size: int) -> None:
    """Limit the writable private memory of this process, and of processes that it starts, in bytes.

    The address space is not limited, because mapped weights and reserved arenas cost nothing. An inherited limit is
    never raised.
    """
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    size = size if most == resource.RLIM_INFINITY else min(size, most)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))
