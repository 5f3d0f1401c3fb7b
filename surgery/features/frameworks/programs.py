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

from surgery.base.errors import ModelFileError
from surgery.model.checkpoints.pickle_reader import PickleError, read_pickle

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


_DOCUMENTS: Final = re.compile(
    r"models/model\.json|data/(?:weights|constants)/model_(?:weights|constants)_config\.json"
)
_SAMPLE: Final = "data/sample_inputs/model.pt"
# Elements, unless `use_pickle` is set in the description, which is refused; and texts.
_PLAIN: Final = re.compile(
    r"data/weights/weight_[0-9]+|data/constants/tensor_[0-9]+|archive_format|archive_version|byteorder|version"
    r"|\.data/version|\.data/serialization_id|extra/[A-Za-z0-9_.-]+"
)
_IN_SAMPLE: Final = re.compile(
    r"data\.pkl|data/[0-9]+|byteorder|version|\.format_version|\.storage_alignment|\.data/serialization_id"
)


def find_code(path: Path) -> str | None:
    """Return the code that loading a program would run, if any. ModelFileError if it is not a program."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            names = [info.filename for info in archive.infolist()]
            if not any(name.endswith("models/model.json") for name in names):
                todo = "name a file of torch.export.save"
                raise ModelFileError("this is not a program of torch.export", where=str(path), todo=todo)
            return _in_layout(archive) or _in_members(archive)
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelFileError(f"cannot be read as a program: {reason}", where=str(path)) from error


def _in_layout(archive: zipfile.ZipFile) -> str | None:
    """Return why torch might read other members than Python; both read a plain archive alike.

    torch looks names up regardless of case, and knows a file of torch.save by its first bytes.
    """
    members = archive.infolist()
    names = [info.filename.lower() for info in members]
    if len(set(names)) < len(names):
        return "it lists a member twice"
    if len({name.partition("/")[0] for name in names}) > 1:
        return "it has members in several folders"
    if archive.comment or min((info.header_offset for info in members), default=0):
        return "it has bytes that are not part of any member"
    for info in members:
        if info.compress_type != zipfile.ZIP_STORED:
            return f"'{info.filename}' is compressed, which torch.export.save never does"
    return None


def _in_members(archive: zipfile.ZipFile) -> str | None:
    """Check each file of the archive, according to its name; torch loads each model that it finds by name."""
    for info in archive.infolist():
        name, inside = info.filename, info.filename.partition("/")[2]
        if _DOCUMENTS.fullmatch(inside):
            if info.file_size > _LARGEST:
                return f"'{name}' is too large to check"
            found = _in_document(name, archive.read(name))
        elif inside == _SAMPLE:
            found = _in_sample(name, archive.read(name)) if info.file_size else None
        else:
            found = None if _PLAIN.fullmatch(inside) else f"'{name}', which may hold code"
        if found:
            return found
    return None


def _in_sample(name: str, data: bytes) -> str | None:
    """Check a file of torch.save within the program."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as inner:
            if not data.startswith(b"PK\x03\x04"):
                return f"'{name}' was not written by torch.save"
            if found := _in_layout(inner):
                return f"'{name}': {found}"
            for info in inner.infolist():
                inside = info.filename.partition("/")[2]
                if not _IN_SAMPLE.fullmatch(inside):
                    return f"'{name}': '{info.filename}', which may hold code"
                if inside == "data.pkl":
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
