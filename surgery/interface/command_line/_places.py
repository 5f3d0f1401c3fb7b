"""Arguments that may be a URL or a standard stream: commands get the paths of local copies instead.

The `type=` of an argument declares its kind. Plain paths are not changed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from surgery.base.errors import SurgeryError, UsageError
from surgery.model.remote.urls import is_url

if TYPE_CHECKING:
    from surgery.model.storage import Staging

STREAM: Final = "-"
STDIN: Final = "stdin.onnx"
"""The name of the copy of a model on standard input."""
LOCK_SUFFIX: Final = ".lock"
_RECORDS: Final = (".json", ".jsonl", ".ndjson", ".parquet", ".sqlite", ".db")
"""The endings of the names of plans, and of results and ledgers of batches."""

CODE: Final = ".py:"
"""What the place of a set of inputs contains if a function makes it, as in `FILE.py:FUNCTION`."""


class PlaceType(NamedTuple):
    """A value given instead of a path, and how to turn it into a path."""

    text: str
    localize: Callable[[str, argparse.Namespace, Staging], str]


def model(text: str) -> str | PlaceType:
    """Accept a model: a path, a URL, or `-` for standard input."""
    return PlaceType(text, _model) if is_url(text) or text == STREAM else text


def recipe(text: str) -> str | PlaceType:
    """Accept a recipe: a path, a name, a URL, or `-` for standard input."""
    return PlaceType(text, _recipe) if is_url(text) or text == STREAM else text


def opened(text: str) -> str | PlaceType:
    """Accept what `surgery open` opens: a path, a URL, or `-` for a model on standard input."""
    return PlaceType(text, _opened) if is_url(text) or text == STREAM else text


def data(text: str) -> str | PlaceType:
    """Accept a single file that is read: a path or a URL."""
    return PlaceType(text, _data) if is_url(text) else text


def output(text: str) -> str | PlaceType:
    """Accept the output path of a model: a path, a URL, or `-` for standard output; it may have fields in braces."""
    return PlaceType(_with_fields(text), _output) if is_url(text) or text == STREAM else _with_fields(text)


def outputs(text: str) -> str | PlaceType:
    """Accept the output path of one or more files: a path or a URL, not standard output, which is one file."""
    return PlaceType(_with_fields(text), _outputs) if is_url(text) or text == STREAM else _with_fields(text)


def _with_fields(text: str) -> str:
    """Return the name of an output. Raises ArgumentTypeError if it has a field that is not one of a recipe's output."""
    if "{" in text:
        from surgery.engine.recipe.output_names import field_problem

        problem = field_problem(text)
        if problem:
            raise argparse.ArgumentTypeError(f"'{text}' {problem}")
    return text


def page(text: str) -> str | PlaceType:
    """Accept the output path of an HTML page: a path, a URL, or `-` for standard output.

    Raises ArgumentTypeError for a path that promises another format.
    """
    suffix = "" if is_url(text) or text == STREAM else Path(text).suffix
    if suffix.lower() not in ("", ".html", ".htm"):
        raise argparse.ArgumentTypeError(f"{text}: a page is written as .html, not as '{suffix}'")
    return one_text(text)


def one_text(text: str) -> str | PlaceType:
    """Accept the output path of one text: a path, a URL, or `-` for standard output."""
    return PlaceType(text, _one_text) if is_url(text) or text == STREAM else text


def recipe_output(text: str) -> str | PlaceType:
    """Accept the output path of a recipe that is made from a recipe, which it may replace: like `one_text`."""
    return one_text(text)


def model_file(text: str) -> str:
    """Accept the output path of a model next to another output: a path."""
    return text


def folder(text: str) -> str | PlaceType:
    """Accept the output path of several files: a path or a URL. `send_folder` uploads what was written there."""
    return PlaceType(text, _folder) if is_url(text) or text == STREAM else text


def locked_recipe(text: str) -> str | PlaceType:
    """Accept a recipe whose lock is read and written next to it: a path, a name or a URL."""
    return PlaceType(text, _locked_recipe) if is_url(text) else text


def lock(text: str) -> str | PlaceType:
    """Accept a lock file that is read and written: a path or a URL; or `-`, to write it to standard output."""
    return PlaceType(text, _lock) if is_url(text) or text == STREAM else text


def base_of(text: str | None) -> Path:
    """Return the folder that the paths in a written text are relative to: its own, for standard output the current."""
    if text is None:
        return Path()
    from surgery.model.storage import staging

    path = Path(text)
    return Path() if staging.is_stdout(path) else path.parent


def send_folder(folder: str | Path, files: Sequence[Path]) -> None:
    """Upload the files that a command wrote to an output folder, if that is a URL. The last one lists the others."""
    from surgery.model.storage import staging

    staging.publish_folder(Path(folder), files)


@contextmanager
def fetching() -> Iterator[Staging]:
    """Yield a folder for copies of URLs that a command finds in a file; errors show the URLs."""
    from surgery.model.storage import staging

    with staging.Staging() as copies:
        try:
            yield copies
        except SurgeryError as error:
            raise staging.explained(error) from error.__cause__


@contextmanager
def localized(arguments: argparse.Namespace) -> Iterator[None]:
    """Copy the named objects, and replace the arguments by the paths of the copies, which are removed in the end.

    Errors show the given names. If a model goes to standard output, all other output goes to stderr.
    """
    _name_after_model(arguments)
    places = [place for value in vars(arguments).values() for place in _places(value)]
    if not places:
        yield
        return
    from surgery.model.storage import staging

    _require_one_reader(places)
    stdout = sys.stdout
    with staging.Staging() as copies:
        try:
            for key, value in list(vars(arguments).items()):
                setattr(arguments, key, _localized(value, arguments, copies))
            yield
        except SurgeryError as error:
            raise staging.explained(error) from error.__cause__
        finally:
            sys.stdout = stdout


def _name_after_model(arguments: argparse.Namespace) -> None:
    """Replace `{stem}` in the name of a model, if the arguments name the model; a recipe may name another one."""
    given, model = getattr(arguments, "output", None), getattr(arguments, "model", None)
    text, source = (one.text if isinstance(one, PlaceType) else one for one in (given, model))
    actions = getattr(getattr(arguments, "parser", None), "_actions", ())
    is_model = any(action.dest == "output" and action.type in (output, outputs) for action in actions)
    if source is None or text is None or not is_model or "{stem}" not in text:
        return
    from surgery.engine.recipe.output_names import with_stem
    from surgery.model.remote import urls

    named = with_stem(text, Path(urls.name_of(source) if is_url(source) else source))
    arguments.output = given._replace(text=named) if isinstance(given, PlaceType) else named


def _places(value: Any) -> list[PlaceType]:
    if isinstance(value, PlaceType):
        return [value]
    return [item for item in value if isinstance(item, PlaceType)] if isinstance(value, list) else []


def _localized(value: Any, arguments: argparse.Namespace, copies: Staging) -> Any:
    if isinstance(value, PlaceType):
        return value.localize(value.text, arguments, copies)
    return [_localized(item, arguments, copies) for item in value] if isinstance(value, list) else value


def _require_one_reader(places: list[PlaceType]) -> None:
    """Raise UsageError if two arguments are the same standard stream, or standard input is a terminal."""
    streams = [place for place in places if place.text == STREAM]
    readers = [place for place in streams if place.localize not in _WRITERS]
    if len(readers) > 1:
        raise UsageError("standard input can be read once, and two arguments are '-'", todo="name a file for one")
    if len(streams) - len(readers) > 1:
        raise UsageError("standard output takes one file, and two arguments are '-'", todo="name a file for one")
    if readers and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError("'-' reads standard input, which is a terminal", todo="pipe or redirect a file into it")


def _model(text: str, arguments: argparse.Namespace, copies: Staging) -> str:
    from surgery.model.remote import urls
    from surgery.model.storage import loading

    if text != STREAM:
        return str(urls.local_path(text) or loading.fetched(text, copies))
    path = copies.path(STDIN, "stdin")
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
    loading.require_whole(path, "standard input")
    return str(path)


def _recipe(text: str, arguments: argparse.Namespace, copies: Staging) -> str:
    # The recipe loader reads standard input itself: relative paths in it are relative to the current folder.
    from surgery.model.remote import urls

    if text != STREAM and urls.name_of(text).endswith(".onnx"):
        return _model(text, arguments, copies)
    if text == STREAM:
        return text
    needs_lock = getattr(arguments, "locked", False) and arguments.lock is None
    return _with_lock(text, arguments, copies) if needs_lock else _data(text, arguments, copies)


def _opened(text: str, arguments: argparse.Namespace, copies: Staging) -> str:
    """Copy a model with its weights, or a plan or the results of a batch, which are one object."""
    from surgery.model.remote import urls

    is_record = text != STREAM and Path(urls.name_of(text)).suffix.lower() in _RECORDS
    return (_data if is_record else _model)(text, arguments, copies)


def _with_lock(text: str, arguments: argparse.Namespace, copies: Staging) -> str:
    """Copy a recipe, and the lock next to it."""
    from surgery.model.remote import urls

    path = _data(text, arguments, copies)
    if urls.local_path(text) is None:
        lock = Path(path).with_suffix(LOCK_SUFFIX)
        copies.updated(urls.sibling(text, lock.name), lock)
    return path


def _data(text: str, arguments: argparse.Namespace, copies: Staging) -> str:
    from surgery.model.remote import urls

    return str(urls.local_path(text) or copies.copied(text))


def _output(text: str, arguments: argparse.Namespace, copies: Staging) -> str:
    from surgery.model.storage import staging

    if text != STREAM:
        return str(staging.output_path(text, copies, force=arguments.force))
    if sys.stdout.isatty():
        raise UsageError("a model is binary, and standard output is a terminal", todo="redirect it, or name a file")
    layout = getattr(arguments, "layout", None)
    if layout == "external":
        raise UsageError("standard output takes one file, and --layout external writes two", todo="name a file")
    if layout == "keep":
        arguments.layout = "single"
    return _stdout("stdout.onnx", copies)


def _stdout(name: str, copies: Staging) -> str:
    """Return a path whose file goes to standard output; all other output then goes to stderr."""
    from surgery.model.storage import staging

    path = copies.output(name, staging.Stream(sys.stdout.buffer))
    sys.stdout = sys.stderr
    return str(path)


def _outputs(text: str, arguments: argparse.Namespace, copies: Staging) -> str:
    if text == STREAM:
        raise UsageError("standard output takes one file, and this command writes several", todo="name a file")
    return _output(text, arguments, copies)


def _one_text(text: str, arguments: argparse.Namespace, copies: Staging) -> str:
    return _stdout("stdout.txt", copies) if text == STREAM else _output(text, arguments, copies)


def _folder(text: str, arguments: argparse.Namespace, copies: Staging) -> str:
    if text == STREAM:
        raise UsageError("standard output takes one file, and this command writes several", todo="name a folder")
    return str(copies.folder(text, force=arguments.force))


def _locked_recipe(text: str, arguments: argparse.Namespace, copies: Staging) -> str:
    needs_lock = arguments.output is None
    return _with_lock(text, arguments, copies) if needs_lock else _data(text, arguments, copies)


def _lock(text: str, arguments: argparse.Namespace, copies: Staging) -> str:
    from surgery.model.remote import urls

    if text == STREAM:
        if arguments.check:
            raise UsageError("a lock on standard output cannot be checked", todo="name the lock file")
        return _stdout("stdout.lock", copies)
    return str(urls.local_path(text) or copies.updated(text))


_WRITERS: Final = (_output, _outputs, _one_text, _folder, _lock)
