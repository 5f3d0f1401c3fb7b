"""Write pieces: first all of them under temporary names, then renamed into place, the list of pieces last."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import OutputError
from surgery.model import storage
from surgery.model.wire.leftovers import passing_folder

if TYPE_CHECKING:
    import onnx


def plan_name(stem: str) -> str:
    """Return the name of the file that describes how the pieces of a model connect."""
    return f"{stem}.pieces.json"


def check_folder(
    folder: Path, stem: str, files: Sequence[str], weights: storage.Weights, *, force: bool = False
) -> None:
    """Raise OutputError if pieces cannot be written to a folder; called before they exist.

    The folder may be missing, but not its parent. Files that contain the input itself are never replaced.
    """
    if not os.path.lexists(folder):
        storage.check_target(folder)
        return
    if not folder.is_dir():
        raise OutputError("this is not a folder", where=str(folder), todo="name a folder to write into")
    for name in (plan_name(stem), *(text for file in files for text in (file, f"{file}.data"))):
        target = storage.check_target(folder / name, force=force)
        if weights.uses(target):
            raise OutputError("the input is stored in this file", where=str(folder / name), todo="name another folder")


def write(
    folder: Path,
    stem: str,
    models: Mapping[str, onnx.ModelProto],
    plan: Mapping[str, Any],
    weights: storage.Weights,
    *,
    layout: storage.Layout,
) -> list[Path]:
    """Write models, their weights and the plan; return the files. Raises OutputError.

    If the plan exists, all of its pieces exist: an old plan is removed first, and the new one is written last.
    """
    text = f"{json.dumps(plan, indent=2, ensure_ascii=False)}\n"
    if not os.path.lexists(folder):
        with _passing(folder.parent, folder.name) as made:
            names = _fill(made, models, weights, layout)
            storage.write_texts({made / plan_name(stem): text})
            with storage.output_errors(folder):
                made.replace(folder)
        return [folder / name for name in (*names, plan_name(stem))]
    with _passing(folder, stem) as made:
        names = _fill(made, models, weights, layout)
        with storage.output_errors(folder):
            (folder / plan_name(stem)).unlink(missing_ok=True)
            for name in reversed(names):
                (made / name).replace(folder / name)
    storage.write_texts({folder / plan_name(stem): text})
    return [folder / name for name in (*names, plan_name(stem))]


def _fill(
    folder: Path, models: Mapping[str, onnx.ModelProto], weights: storage.Weights, layout: storage.Layout
) -> list[str]:
    """Save all models to a folder, and return the names of the files, each model followed by its weight file."""
    saved = (storage.save(model, folder / name, weights, layout=layout) for name, model in models.items())
    return [path.name for paths in saved for path in paths]


@contextmanager
def _passing(parent: Path, name: str) -> Iterator[Path]:
    """Create a temporary folder, which is removed at the end with all remaining content."""
    with ExitStack() as stack:
        with storage.output_errors(parent):
            folder = stack.enter_context(passing_folder(parent, name))
        yield folder
