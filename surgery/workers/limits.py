"""The memory limit of a process."""

from __future__ import annotations

import resource


def limit_memory(size: int) -> None:
    """Bound the writable private memory of this process and of those it starts, in bytes.

    Not the address space: mapped weights and reserved arenas cost nothing. A process that was started within a limit
    has no more than that.
    """
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    size = size if most == resource.RLIM_INFINITY else min(size, most)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))
