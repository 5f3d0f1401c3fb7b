"""Manifests: lists of models as plain text, JSON lines or CSV.

Relative paths are relative to the folder of the manifest.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from surgery.base.errors import UsageError
from surgery.engine.batching import folders
from surgery.engine.batching.model_entry import Entry
from surgery.engine.batching.output_folder import absolute, named_recipe, placed
from surgery.model.remote import urls
from surgery.model.wire.globs import did_you_mean

SUFFIXES: Final = (".txt", ".jsonl", ".ndjson", ".csv")
_KEYS: Final = ("model", "recipe", "output", "inputs", "skip")


def read(path: Path, recipe: str) -> list[Entry]:
    """Return the entries of a manifest; `recipe` is for entries without one. UsageError for an invalid manifest.

    A text file has one model per line; empty lines and lines that begin with `#` are ignored. JSON lines and CSV have
    the keys `model` (a path or a URL) and optionally `recipe`, `output` (below the output folder), `inputs` (a file or
    folder of input sets, or a list of them) and `skip` (the reason why the model is skipped). Without `output`, the
    output has the path of the model relative to the manifest, or the last name in a URL.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"the manifest is not UTF-8: {error.reason}", where=str(path)) from error
    except OSError as error:
        raise UsageError(f"the manifest cannot be read: {error.strerror}", where=str(path)) from error
    items = {".txt": _lines, ".csv": _table}.get(path.suffix.lower(), _objects)(text, str(path))
    return [_entry(item, where, path.parent, recipe) for where, item in items]


def _lines(text: str, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield f"{path}:{number}", {"model": line.strip()}


def _objects(text: str, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            item = json.loads(line)
        except ValueError as error:
            raise UsageError(f"this line is not JSON: {error}", where=where) from error
        if not isinstance(item, dict):
            raise UsageError('a line must be an object such as {"model": "a.onnx"}', where=where)
        yield where, item


def _table(text: str, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    rows = csv.DictReader(io.StringIO(text, newline=""), restkey="")
    for item in rows:
        where = f"{path}:{rows.line_num}"
        if "" in item:
            raise UsageError("the line has more values than the header has columns", where=where)
        found = {key: value for key, value in item.items() if value}
        if "inputs" in found:
            found["inputs"] = found["inputs"].split(";")
        yield where, found


def _entry(item: Mapping[str, Any], where: str, folder: Path, recipe: str) -> Entry:
    for key in item:
        if key not in _KEYS:
            todo = did_you_mean(key, _KEYS) or f"the keys are {', '.join(_KEYS)}"
            raise UsageError(f"a manifest has no key '{key}'", where=where, todo=todo)
    sets = item.get("inputs") or []
    texts = [item.get(key, "") for key in ("model", "recipe", "output", "skip")]
    listed = [sets] if isinstance(sets, str) else sets
    if not isinstance(listed, list) or not all(isinstance(text, str) for text in (*texts, *listed)):
        raise UsageError("values are strings; 'inputs' may be a list of strings", where=where)
    model, own, output, skip = texts
    if not model:
        raise UsageError("the key 'model' is missing", where=where)
    path = placed(model, folder)
    inputs = tuple(placed(text, folder) for text in listed)
    _check_files(path, inputs, skip, where)
    return Entry(
        output or _output(path, folder, where),
        path,
        named_recipe(own, folder) if own else recipe,
        inputs,
        skip,
        where,
    )


def _check_files(model: str, inputs: Sequence[str], skip: str, where: str) -> None:
    """Raise UsageError for a missing file of a model that is not skipped, and for inputs at a URL."""
    for given in filter(urls.is_url, inputs):
        raise UsageError(
            f"inputs must be local files, not '{urls.shown(given)}'", where=where, todo="copy them, and name the copies"
        )
    for given in (model, *inputs):
        if skip or urls.is_url(given):
            continue
        if why := folders.why_unusable(given):
            raise UsageError(f"'{given}': {why}", where=where)


def _output(model: str, folder: Path, where: str) -> str:
    """Return the path of a model relative to the manifest, or the last name in a URL."""
    if urls.is_url(model):
        return urls.name_of(model)
    found = Path(os.path.relpath(model, absolute(folder)))
    if ".." in found.parts:
        raise UsageError(
            f"'{model}' is not below the folder of the manifest", where=where, todo="name an 'output' for it"
        )
    return found.as_posix()
