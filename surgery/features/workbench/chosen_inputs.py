"""Inputs of one's own choice to look at values with: files, images, or numbers of tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.errors import RecipeError, UsageError
from surgery.engine.recipe.loader import parse
from surgery.engine.recipe.writer import written
from surgery.features.workbench.named_files import named_files
from surgery.features.workbench.snapshot import Snapshot
from surgery.verification.inputs import given, images
from surgery.verification.inputs.feed_plan import read_ports
from surgery.verification.inputs.spec import DataSpec, InputsSpec

if TYPE_CHECKING:
    from surgery.verification.inputs import input_port

_MOST_LISTED = 200
_MOST_TOKENS = 1 << 16
_STEPS = {"steps": ["drop-dead"]}
_INPUTS = re.compile(r"^inputs\s*:", re.MULTILINE)


@dataclass(frozen=True)
class ChosenInputs:
    """Inputs that were chosen, with a title. `section` is what a recipe says of them; empty if it cannot."""

    title: str
    spec: InputsSpec
    section: str = ""

    def written_into(self, snapshot: Snapshot) -> str:
        """Return the text of the recipe of a snapshot, with these inputs as those that steps are verified on."""
        texts = snapshot.texts
        if not self.section:
            raise UsageError(f"a recipe cannot have {self.title}", todo="put the inputs into an .npz file")
        if not texts.steps:
            raise UsageError("the recipe has no step, and a recipe needs one", todo="add a step first")
        if _INPUTS.search(texts.above) or _INPUTS.search(texts.below):
            what = "the recipe has a section 'inputs' already"
            raise UsageError(what, todo=f"edit it there: {' '.join(self.section.split())}")
        above = "\n".join(part for part in (texts.above, self.section.rstrip("\n")) if part)
        return replace(texts, above=above).whole()


def from_file(snapshot: Snapshot, folder: Path, path: str, options: Mapping[str, Any] | None = None) -> ChosenInputs:
    """Return the inputs in a file or folder: an .npz, test sets, or images, which are read with some options.

    Raises UsageError, with one line, if it lies outside of the opened folder, or does not fit the original.
    """
    _require_inside(folder, folder / path)
    if not (folder / path).exists():
        raise UsageError(f"there is no file or folder '{path}' in the opened folder", todo=f"use files in {folder}")
    item: Any = {"images": path, **(options or {})} if options or images.is_image(Path(path)) else path
    text = written({**_STEPS, "inputs": {"data": [item], "only_given": True}})
    try:
        recipe = parse(text, folder / "inputs.yaml")
    except RecipeError as error:
        raise UsageError(f"'{path}' cannot be used: {'; '.join(one.message for one in error.problems)}") from error
    for named in named_files(recipe):
        _require_inside(folder, named)
    # A mistake is one of the file, not of a line of a recipe.
    data = tuple(replace(one, place=None) for one in recipe.inputs.data)
    given.check(snapshot.first.data, data)
    return ChosenInputs(path, replace(recipe.inputs, data=data), _section(snapshot, folder, item))


def _require_inside(folder: Path, path: Path) -> None:
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"'{path}' is outside of the opened folder", todo=f"use files in {folder}")


def from_tokens(snapshot: Snapshot, text: str) -> ChosenInputs:
    """Return numbers of tokens as the inputs of a model of text: masks are 1, types 0, and positions count up.

    There is no tokenizer here, so tokens are given as numbers. Raises UsageError if the model takes no tokens.
    """
    parts = re.split(r"[\s,;]+", text.strip(" \t\r\n[]"))
    if not text.strip() or not all(re.fullmatch(r"-?\d{1,18}", part) for part in parts) or len(parts) > _MOST_TOKENS:
        raise UsageError("tokens are whole numbers such as '101 7592 102'", todo="a tokenizer makes them of a text")
    import onnx

    numbers = [int(part) for part in parts]
    ports = read_ports(onnx.load_model_from_string(snapshot.first.data))
    arrays = {port.name: _of_tokens(port, numbers) for port in ports}
    data = (DataSpec(Path(f"tokens {' '.join(parts)}"), arrays),)
    given.check(snapshot.first.data, data)
    return ChosenInputs(f"{len(numbers)} tokens", InputsSpec(data=data, only_given=True))


def _of_tokens(port: input_port.InputPort, numbers: Sequence[int]) -> np.ndarray[Any, Any]:
    if port.kind != "tensor" or port.dtype is None or port.dtype.kind not in "iub" or len(port.dims) not in (1, 2):
        shape = ", ".join(map(str, port.dims))
        raise UsageError(f"the input '{port.name}' {port.dtype} [{shape}] takes no tokens", todo="choose a file")
    name, count = port.name.lower(), len(numbers)
    if "mask" in name:
        row = np.ones(count, port.dtype)
    elif "type" in name or "segment" in name:
        row = np.zeros(count, port.dtype)
    else:
        row = np.arange(count, dtype=port.dtype) if "position" in name else np.array(numbers, port.dtype)
    batch = port.dims[0] if len(port.dims) == 2 and isinstance(port.dims[0], int) else 1
    return row if len(port.dims) == 1 else np.tile(row, (batch, 1))


def _section(snapshot: Snapshot, folder: Path, item: Any) -> str:
    """Return the section of the recipe; its paths are relative to the folder of the recipe."""
    own = snapshot.recipe.path
    if own is None or own.resolve().parent != folder.resolve():
        named = item["images"] if isinstance(item, dict) else item
        whole = str((folder / named).resolve())
        item = {**item, "images": whole} if isinstance(item, dict) else whole
    return written({"inputs": {"data": [item]}})


def candidates(folder: Path) -> list[str]:
    """List what may be inputs in a folder and in the folders in it: .npz files, images, and test sets."""
    return [str(path.relative_to(folder)) for path, _ in zip(_candidates(folder), range(_MOST_LISTED))]


def _candidates(folder: Path) -> Iterator[Path]:
    inner = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.is_symlink():
            continue
        if path.is_dir():
            inner.append(path)
        elif path.suffix == ".npz" or images.is_image(path):
            yield path
    for path in inner:
        names = [one.name for one in path.iterdir()]
        if any(name.endswith((".pb", ".npz")) or images.is_image(Path(name)) for name in names):
            yield path
