"""Branches of a module that depend on tensor values at run time: `if x.sum() > 0`, `int(x.max())`.

Tracing treats such a value as a constant, so an exported model contains only one of the branches. Each time a tensor is
converted to a Python number or truth value, the line and the value are recorded.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST = 2000
_OURS = str(Path(__file__).parent)


@contextmanager
def recorded() -> Iterator[list[dict[str, Any]]]:
    """Record the decisions of the code that runs in the block: file, line, text of the line, value. Needs torch."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[dict[str, Any]] = []
    home = str(Path(torch.__file__).parent)
    reading = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default}

    class Recording(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            value = function(*args, **(kwargs or {}))
            if function in reading and len(found) < MOST:
                found.append({**_place(home), "value": value if isinstance(value, bool | int | float) else str(value)})
            return value

    with Recording():
        yield found


def _place(home: str) -> dict[str, Any]:
    """Return the line of the user's code that reads a value."""
    frame = sys._getframe(2)
    while frame is not None and (frame.f_code.co_filename.startswith((home, _OURS, "<"))):
        if frame.f_back is None:
            break
        frame = frame.f_back
    file, line = frame.f_code.co_filename, frame.f_lineno
    return {"file": file, "line": line, "text": linecache.getline(file, line).strip()}
