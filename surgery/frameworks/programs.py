"""Find code that `torch.export.load` would run for a .pt2 program, without loading it.

Loading unpickles constants and sample inputs, evaluates expressions of dims and guards from text, and looks up
functions by name. A program of `torch.export.save` with only tensors, ATen operators and plain expressions runs no code
of its author; any other is refused unless it is trusted.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from surgery.errors import ModelFileError
from surgery.storage.pickle_reader import PickleError, read_pickle

_TARGET: Final = re.compile(
    r"torch\.ops\.(?:aten|prims|quantized_decomposed|torchvision)\.[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)?"
    r"|_operator\.(?:add|sub|mul|floordiv|truediv|mod|pow|neg|eq|ne|lt|le|gt|ge|and_|or_|not_|getitem|pos|abs)"
    r"|math\.(?:ceil|floor|trunc|sqrt)"
    r"|torch\.(?:sym_int|sym_float|sym_ite|sym_max|sym_min|sym_not|sym_sum|_sym_sqrt)"
)
_WORDS: Final = frozenset(
    {
        *("Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Max", "Min", "Mod", "PythonMod", "FloorDiv"),
        *("CeilDiv", "CleanDiv", "ModularIndexing", "Where", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Equality"),
        *("Unequality", "StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan", "And", "Or", "Not", "Abs"),
        *("TruncToInt", "RoundToInt", "FloorToInt", "CeilToInt", "ToFloat", "IntTrueDiv", "FloatTrueDiv", "floor"),
        *("ceiling", "PowByNatural", "positive", "integer", "nonnegative", "real", "evaluate", "True", "False"),
        *("NegativeInfinity", "Infinity", "int_oo", "nan", "oo", "true", "false"),
    }
)
_SYMBOL: Final = re.compile(r"[suzf]+\d+")
_TOKEN: Final = re.compile(r"'([A-Za-z0-9_]*)'|([A-Za-z_][A-Za-z0-9_]*)|[0-9.+\-*/(), =<>!%]+")
_LARGEST: Final = 256 << 20


def find_code(path: Path) -> str | None:
    """Return the code that loading a program would run, if any. ModelFileError if it is not a program."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename: info for info in archive.infolist()}
            if len(members) < len(archive.infolist()):
                return "it lists a member twice"
            if not any(name.endswith("models/model.json") for name in members):
                todo = "name a file of torch.export.save"
                raise ModelFileError("this is not a program of torch.export", where=str(path), todo=todo)
            for name, info in members.items():
                if info.compress_type != zipfile.ZIP_STORED:
                    return f"'{name}' is compressed, which torch.export.save never does"
                found = _in_member(archive, name, info.file_size)
                if found:
                    return found
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelFileError(f"cannot be read as a program: {reason}", where=str(path)) from error
    return None


def _in_member(archive: zipfile.ZipFile, name: str, size: int) -> str | None:
    """Check one file of the archive, according to its name."""
    inside = name.partition("/")[2]
    if inside.startswith(("data/weights/weight_", "data/constants/tensor_")):
        return None  # elements, unless `use_pickle` is set, which is refused
    if inside.endswith(".json"):
        return _in_document(name, archive.read(name)) if size <= _LARGEST else f"'{name}' is too large to check"
    if inside.startswith("data/sample_inputs/"):
        return _in_pickles(name, archive.read(name)) if size else None
    plain = ("archive_format", "archive_version", "byteorder", ".data/version", ".data/serialization_id", "version")
    return None if inside in plain else f"'{name}', which may hold code"


def _in_pickles(name: str, data: bytes) -> str | None:
    """Check a file of torch.save within the program."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as inner:
            for info in inner.infolist():
                if info.filename.endswith(".pkl"):
                    if info.compress_type != zipfile.ZIP_STORED:
                        return f"'{name}' has a compressed pickle"
                    read_pickle(io.BytesIO(inner.read(info)))
    except (zipfile.BadZipFile, EOFError, NotImplementedError):
        return f"'{name}' was not written by torch.save"
    except PickleError as error:
        return f"'{name}': {error}"
    return None


def _in_document(name: str, data: bytes) -> str | None:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return f"'{name}' is not recognized"
    for key, value in _entries(document):
        found = _in_entry(key, value)
        if found:
            return f"'{name}': {found}"
    return None


def _in_entry(key: str, value: Any) -> str | None:
    """Check one entry of the description of a program."""
    if key == "target" and isinstance(value, str) and ("." in value or value.startswith("#")):
        return None if _TARGET.fullmatch(value) else f"it would call {value[:80]}"
    if key == "expr_str" and not _is_plain(str(value)):
        return f"it would evaluate {str(value)[:80]!r}"
    if key == "guards_code" and not all(_is_guard(str(one)) for one in value or ()):
        return f"it would evaluate the guard {str(value)[:80]!r}"
    if key in ("as_custom_obj", "custom_obj") and value:
        return "it has objects of custom classes"
    if key == "use_pickle" and value:
        return "it has pickled constants"
    return None


def _entries(document: Any) -> Iterator[tuple[str, Any]]:
    waiting = [document]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            yield from ((str(key), value) for key, value in here.items())
            waiting.extend(here.values())
        elif isinstance(here, list):
            waiting.extend(here)


def _is_plain(text: str) -> bool:
    """Return whether an expression has only numbers, symbols of dims and functions of them."""
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            return False
        word = found.group(2)
        if word and word not in _WORDS and not _SYMBOL.fullmatch(word):
            return False
        at = found.end()
    return True


_GUARD: Final = re.compile(
    r"L\['[A-Za-z0-9_]+'\]|\.size\(\)|\.shape|\[[0-9]+\]|(?:and|or|not)(?= )|[0-9]+|==|!=|<=|>=|[<>+\-*/%() ]"
)


def _is_guard(text: str) -> bool:
    """Return whether a guard only compares sizes of inputs."""
    at = 0
    while at < len(text):
        found = _GUARD.match(text, at)
        if found is None:
            return False
        at = found.end()
    return True
