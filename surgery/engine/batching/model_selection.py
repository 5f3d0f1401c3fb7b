"""Resolve the arguments of a batch to models: files, folders, globs, manifests."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from surgery.base.errors import UsageError
from surgery.engine.batching import folders, manifest
from surgery.engine.batching.folders import SUFFIX, OnError
from surgery.engine.batching.model_entry import Entry
from surgery.engine.batching.output_folder import absolute, named_recipe, placed, storable
from surgery.model.remote import listing, urls
from surgery.model.storage.saving import DATA_SUFFIX


@dataclass(frozen=True)
class ModelSelection:
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
        return (any(fits) or not fits) and not self.leaves_out(path)

    def leaves_out(self, path: str) -> bool:
        """Return whether a file is excluded. The path of a folder ends in a slash."""
        return any(fnmatch.fnmatchcase(path, text) for text in self.exclude)


def entries(sources: Sequence[str], choice: ModelSelection) -> list[Entry]:
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
    if urls.is_url(source) or Path(source).suffix.lower() in manifest.SUFFIXES:
        return False
    return not folders.is_folder(source) and not folders.is_glob(source)


def _shared(paths: Sequence[Path]) -> Path:
    """Return the deepest common folder of all paths."""
    return Path(os.path.commonpath([absolute(path).parent for path in paths])) if paths else Path()


def _entry(path: Path, folder: Path, choice: ModelSelection) -> Entry:
    if why := folders.why_unusable(path):
        raise UsageError(why, where=str(path))
    name = absolute(path).relative_to(folder).as_posix()
    return Entry(name if name.endswith(SUFFIX) else f"{name}{SUFFIX}", str(absolute(path)), choice.recipe)


def _listed(source: str, choice: ModelSelection) -> list[Entry]:
    """Return the models of a folder, recursively, or of a glob, in which `**` matches any folders."""
    is_folder = folders.is_folder(source)
    folder, parts = (Path(source), ()) if is_folder else folders.split_glob(source)
    own = choice.output.resolve() if choice.output is not None else None
    if own is not None and folder.resolve().is_relative_to(own):
        # If the output folder contains the source, its other contents are not results.
        own = None
    refuse = _refusing(folder, choice, own)
    found = []
    for path in folders.below(folder, refuse) if is_folder else folders.matches(folder, parts, refuse):
        name = PurePosixPath(os.path.relpath(path, folder))
        if choice.takes(str(name)) and not _is_within(path, own):
            found.append(Entry(str(name), str(absolute(path)), choice.recipe))
    if not found:
        some = " after --include and --exclude" if choice.include or choice.exclude else ""
        raise UsageError(f"there is no {SUFFIX} file{some}", where=source, todo="name another folder, or a manifest")
    return found


def _is_within(path: Path, folder: Path | None) -> bool:
    return folder is not None and path.resolve().is_relative_to(folder)


def _refusing(base: Path, choice: ModelSelection, own: Path | None) -> OnError:
    """Return a function that raises UsageError for what cannot be read, unless it is excluded or in the output folder.

    The models in an unreadable folder are not known, so that a batch without them would seem to be complete.
    """

    def refuse(error: OSError) -> None:
        path = Path(error.filename)
        name = os.path.relpath(path, base)
        if choice.leaves_out(name) or choice.leaves_out(f"{name}/") or _is_within(path, own):
            return
        ending = "" if path.suffix == SUFFIX else "/*"
        remedy = "change its permissions" if isinstance(error, PermissionError) else "check its file system"
        other = f", or leave it out with --exclude '{glob.escape(name)}{ending}'" if name != "." else ""
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path), todo=f"{remedy}{other}") from error

    return refuse


def _objects(source: str, choice: ModelSelection) -> list[Entry]:
    """Return the models at the URL of an object, a folder or a glob."""
    found = []
    base = _base(source)
    for listed in listing.list_files(source):
        path = listed.url.split("::")[0]
        # The name of the object itself has no query, which may contain credentials.
        name = path[len(base) :].lstrip("/") if path.startswith(base) and listed.url != source else ""
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
        if folders.is_wild(part):
            break
        kept.append(part)
    return f"{head}{mark}{'/'.join(kept).rstrip('/')}"


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
