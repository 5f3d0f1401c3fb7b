"""Resolve the arguments of a batch to models: files, folders, globs, manifests."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

from surgery.batching import manifest
from surgery.batching.entry import Entry
from surgery.batching.places import DATA_SUFFIX, absolute, named_recipe, placed, storable
from surgery.errors import UsageError
from surgery.storage import listing, urls

SUFFIX: Final = ".onnx"
_WILD: Final = frozenset("*?[")


@dataclass(frozen=True)
class Choice:
    """The selection of files in folders and globs.

    Selected are relative paths that match one of `include`, if any, and none of `exclude`. Files in `output`, the local
    output folder, are not selected.
    """

    recipe: str
    output: Path | None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def takes(self, path: str) -> bool:
        """Return whether a file is selected, given its path relative to the folder."""
        fits = [fnmatch.fnmatchcase(path, text) for text in self.include]
        return (any(fits) or not fits) and not any(fnmatch.fnmatchcase(path, text) for text in self.exclude)


def entries(sources: Sequence[str], choice: Choice) -> list[Entry]:
    """Return the models that the sources name, sorted by name. UsageError for an invalid source.

    Result paths are relative to the given folder, to the part of a glob without wildcards, or to the common folder of
    single files. A file that is named twice, even through a link, is `skipped` the second time.
    """
    choice = replace(choice, recipe=named_recipe(choice.recipe))
    sources = [placed(source) if urls.is_url(source) else source for source in sources]
    found: list[Entry] = []
    single = [Path(source) for source in sources if _is_single(source)]
    shared = _shared(single)
    for source in sources:
        if urls.is_url(source):
            found += _objects(source, choice)
        elif Path(source).suffix.lower() in manifest.SUFFIXES:
            found += manifest.read(Path(source), choice.recipe)
        elif _is_single(source):
            found.append(_entry(Path(source), shared, choice))
        else:
            found += _listed(source, choice)
    if not found:
        raise UsageError("the sources name no model", todo="name .onnx files, folders with such files, or a manifest")
    found = [_with_checked_name(entry) for entry in found]
    _refuse_clashes(found)
    _refuse_overlaps(found)
    if choice.output is not None:
        _spare_models(found, choice.output)
    return sorted(_skipping_repeats(found), key=lambda entry: entry.name)


def _is_single(source: str) -> bool:
    """Return whether a source is the path of one file: it is neither a folder, a manifest, a URL nor a glob."""
    path = Path(source)
    if urls.is_url(source):
        return False
    return not path.is_dir() and path.suffix.lower() not in manifest.SUFFIXES and not _is_glob(source)


def _is_glob(source: str) -> bool:
    return bool(_WILD.intersection(source)) and not Path(source).exists()


def _shared(paths: Sequence[Path]) -> Path:
    """Return the deepest common folder of all paths."""
    return Path(os.path.commonpath([absolute(path).parent for path in paths])) if paths else Path()


def _entry(path: Path, folder: Path, choice: Choice) -> Entry:
    if not path.exists():
        raise UsageError("no such file or folder", where=str(path))
    name = absolute(path).relative_to(folder).as_posix()
    return Entry(name if name.endswith(SUFFIX) else f"{name}{SUFFIX}", str(absolute(path)), choice.recipe)


def _listed(source: str, choice: Choice) -> list[Entry]:
    """Return the models of a folder, recursively, or of a glob, in which `**` matches any folders."""
    folder, paths = (Path(source), _below(Path(source))) if Path(source).is_dir() else _matches(source)
    own = choice.output.resolve() if choice.output is not None else None
    # If the output folder contains the source, its other contents are not results.
    holds_source = own is None or folder.resolve().is_relative_to(own)
    found = []
    for path in paths:
        name = PurePosixPath(os.path.relpath(path, folder))
        if choice.takes(str(name)) and (own is None or holds_source or not path.resolve().is_relative_to(own)):
            found.append(Entry(str(name), str(absolute(path)), choice.recipe))
    if not found:
        some = " after --include and --exclude" if choice.include or choice.exclude else ""
        raise UsageError(f"there is no {SUFFIX} file{some}", where=source, todo="name another folder, or a manifest")
    return found


def _objects(source: str, choice: Choice) -> list[Entry]:
    """Return the models at the URL of an object, a folder or a glob."""
    found = []
    base = _base(source)
    for listed in listing.list_files(source):
        path = listed.url.split("::")[0]
        name = path[len(base) :].lstrip("/") if path.startswith(base) else ""
        name = name or urls.name_of(listed.url)
        if choice.takes(name) and (name.endswith(SUFFIX) or listed.url == source):
            name = name if name.endswith(SUFFIX) else f"{name}{SUFFIX}"
            found.append(Entry(name, listed.url, choice.recipe, version=listed.version))
    if not found:
        raise UsageError(f"there is no {SUFFIX} file", where=urls.shown(source), todo="name another folder")
    return found


def _base(url: str) -> str:
    """Return the folder that names are relative to: the part before wildcards, or the URL itself."""
    head, mark, path = url.split("::")[0].partition("://")
    kept = []
    for part in path.split("/"):
        if _WILD.intersection(part):
            break
        kept.append(part)
    return f"{head}{mark}{'/'.join(kept).rstrip('/')}"


def _below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob(f"*{SUFFIX}") if path.is_file())


def _matches(source: str) -> tuple[Path, list[Path]]:
    """Return the base folder of a glob, and the matching files, including the models in matching folders."""
    parts = Path(source).parts
    number = next(number for number, part in enumerate(parts) if _WILD.intersection(part))
    folder = Path(*parts[:number])
    found: list[Path] = []
    for path in sorted(folder.glob(str(Path(*parts[number:])))):
        found += _below(path) if path.is_dir() and "**" not in source else [path] if path.suffix == SUFFIX else []
    return folder, found


def _refuse_clashes(found: Sequence[Entry]) -> None:
    """Raise UsageError if two models would be written to the same file."""
    places: dict[str, Entry] = {}
    for entry in found:
        other = places.setdefault(entry.name, entry)
        if other is not entry and (other.model, other.recipe, other.inputs) != (
            entry.model,
            entry.recipe,
            entry.inputs,
        ):
            first, second = (urls.shown(one.model) if urls.is_url(one.model) else one.model for one in (other, entry))
            raise UsageError(
                f"'{first}' and '{second}' would both be written to '{entry.name}'",
                where=entry.where or None,
                todo="name their common folder, or name the outputs in a manifest",
            )


def _refuse_overlaps(found: Sequence[Entry]) -> None:
    """Raise UsageError if the result of a model would also be the folder or the external data of another result."""
    written = {entry.name: entry for entry in found if not entry.skip}
    for name, entry in written.items():
        holder = next((str(one) for one in PurePosixPath(name).parents if str(one) in written), None)
        if holder is not None:
            what = f"'{holder}' would be both an output and the folder of '{name}'"
        elif name.endswith(DATA_SUFFIX) and name.removesuffix(DATA_SUFFIX) in written:
            what = f"'{name}' would be both an output and the external data of '{name.removesuffix(DATA_SUFFIX)}'"
        else:
            continue
        raise UsageError(what, where=entry.where or None, todo="name other outputs in a manifest")


def _spare_models(found: Sequence[Entry], output: Path) -> None:
    """Raise UsageError if a result would overwrite one of the models."""
    models = {os.path.realpath(entry.model) for entry in found if not urls.is_url(entry.model)}
    for entry in found:
        if not entry.skip and os.path.realpath(output / entry.name) in models:
            raise UsageError(
                f"the result of '{entry.model}' would be written over a model", todo="name another folder with --out"
            )


def _with_checked_name(entry: Entry) -> Entry:
    """Return an entry with its output path in normal form, in which equal paths are equal texts.

    UsageError for a path outside of the output folder or of a folder, and for names that no ledger can store.
    """
    for text in (entry.model, entry.name, entry.recipe, entry.skip, *entry.inputs):
        if text != storable(text):
            raise UsageError(
                f"the name '{storable(text)}' is not UTF-8",
                where=entry.where or None,
                todo="rename the file, or leave it out with --exclude",
            )
    path = PurePosixPath(entry.name)
    if path.is_absolute() or ".." in path.parts or not path.name or "\0" in entry.name or entry.name.endswith("/"):
        raise UsageError(
            f"the output '{entry.name}' is not a path of a file inside of the output folder",
            where=entry.where or None,
            todo="name a path relative to --out",
        )
    return replace(entry, name=str(path))


def _skipping_repeats(found: Sequence[Entry]) -> Iterator[Entry]:
    """Yield each output once; a model named before with the same recipe and inputs is marked as skipped."""
    names: set[str] = set()
    seen: dict[tuple[object, ...], str] = {}
    for entry in found:
        if entry.name in names:
            continue
        names.add(entry.name)
        if entry.skip:
            yield entry
            continue
        file = entry.model if urls.is_url(entry.model) else os.path.realpath(entry.model)
        same = file, entry.recipe, entry.inputs
        first = seen.setdefault(same, entry.name)
        yield entry if first == entry.name else replace(entry, skip=f"the same file as '{first}'")
