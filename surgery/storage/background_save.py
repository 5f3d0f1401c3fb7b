"""Save a model in parallel with other work, before it is sure that it is wanted."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.storage.saving import Layout, Saving
from surgery.storage.weights import Weights

if TYPE_CHECKING:
    import onnx


class BackgroundSave:
    """Writes a model in a thread from the start; `keep` puts it in place, and without that nothing is left of it.

    Takes what `save` takes. What goes wrong is raised by `keep`.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        path: str | os.PathLike[str],
        weights: Weights,
        *,
        layout: Layout = "keep",
        force: bool = False,
    ) -> None:
        self._saving: Saving | None = None
        self._error: Exception | None = None
        self._dropped = False

        def write() -> None:
            try:
                self._saving = Saving(proto, path, weights, layout=layout, force=force)
                if not self._dropped:
                    self._saving.write()
            except Exception as error:
                self._error = error

        self._thread = threading.Thread(target=write, daemon=True)
        self._thread.start()

    def keep(self) -> list[Path]:
        """Put the model in place, and return its files. Raises as `save` does."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._saving is not None
        return self._saving.keep()

    def drop(self) -> None:
        """Remove what was not kept; what is still being written is not written to its end."""
        self._dropped = True
        if self._saving is not None:
            self._saving.stop()
        self._thread.join()
        if self._saving is not None:
            self._saving.drop()
