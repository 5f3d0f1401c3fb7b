"""Check a model against its provenance statement: recompute each digest, and list mismatches.

Without a signature, a statement reveals only accidental changes, or changes by somebody who did not adapt the
statement: anyone can seal a modified statement.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from surgery.base.errors import UsageError
from surgery.base.json_record import Record
from surgery.engine.provenance import signing
from surgery.engine.provenance.model_digests import ALGORITHM, ModelIdentity, ModelPart, identity_of
from surgery.engine.provenance.recipe_closure import closure_of
from surgery.engine.provenance.statement import (
    BUILD_TYPE,
    INDEX,
    INPUT,
    MODEL,
    RECIPE,
    SEAL,
    STEPS,
    carried,
    entries,
    index,
    leaves,
    sealed,
)
from surgery.model.storage.summary import data_files
from surgery.model.wire.digests import STATEMENT_KEY, file_digest

if TYPE_CHECKING:
    import onnx

    from surgery.engine.recipe.schema import Recipe
    from surgery.model import storage

_MOST: Final = 5000
"""Maximum number of parts that are aligned to find inserted and deleted ones."""


@dataclass(frozen=True)
class Mismatch(Record):
    """A mismatch: what it concerns, and the problem."""

    what: str
    problem: str

    def __str__(self) -> str:
        return f"{self.what}: {self.problem}"


@dataclass
class Checked(Record, keys="findings checked remarks statement"):
    """The result of a check: mismatches, remarks on unchecked items, and checked items."""

    statement: Mapping[str, Any]
    findings: list[Mismatch] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)

    def found(self, what: str, problem: str) -> None:
        """Record a mismatch."""
        self.findings.append(Mismatch(what, problem))

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the JSON report."""
        return {"ok": not self.findings, **super().to_json()}


@dataclass(frozen=True)
class SignedStatement:
    """A statement: its fields, and the envelope around it, if any."""

    statement: Mapping[str, Any]
    envelope: Any = None


def read(path: Path) -> SignedStatement:
    """Read a statement from a file, signed or not. Raises UsageError."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(
            "there is no statement", where=str(path), todo="write one: surgery apply --provenance"
        ) from error
    except OSError as error:
        raise UsageError(f"the statement cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"this is not a provenance statement: {error}", where=str(path)) from error
    if not signing.is_envelope(value):
        return SignedStatement(_stated(value, str(path)))
    envelope = signing.opened(value, path)
    return SignedStatement(_stated(_parsed(envelope.payload, str(path)), str(path)), envelope)


def check(
    stored: storage.StoredModel,
    sidecar: SignedStatement | None = None,
    *,
    source: storage.StoredModel | None = None,
    recipe: Recipe | None = None,
    keys: Sequence[Path] = (),
) -> Checked:
    """Check a model against the statement that it carries, and one in a separate file.

    `source` is the input model, and `recipe` the recipe; both are compared with the statement. Raises UsageError if
    there is no statement.
    """
    own = _carried(stored.proto)
    if sidecar is None and own is None:
        raise UsageError(
            "the model carries no provenance statement", where=str(stored.path), todo="name one with --statement"
        )
    found = identity_of(stored)
    is_stale = sidecar is not None and own is not None and _is_stale(sidecar.statement, own, found)
    statement = sidecar.statement if sidecar is not None and not is_stale else own
    assert statement is not None
    result = Checked(statement)
    if is_stale:
        result.found("separate statement", "it describes another model; the statement in the model describes this one")
    elif sidecar is not None:
        _signature(sidecar, keys, result)
    elif keys:
        raise UsageError("the statement in a model is not signed", todo="name a signed one with --statement")
    _copies(stored.proto, result)
    for name, one in (("statement", statement), ("statement in the model", own)):
        if one is not None and (one is not statement or name == "statement"):
            _seal(name, one, result)
    if sidecar is not None and own is not None and not is_stale:
        _agreement(own, sidecar.statement, result)
    elif own is None:
        result.remarks.append("the model itself carries no statement")
    _model(statement, own, found, stored, result)
    _input(statement, source, result)
    _recipe(statement, recipe, result)
    return result


def _carried(model: onnx.ModelProto) -> Mapping[str, Any] | None:
    """Return the statement that a model carries, if any. Raises UsageError."""
    text, where = carried(model), f"metadata '{STATEMENT_KEY}'"
    return None if text is None else _stated(_parsed(text, where), where)


def _copies(model: onnx.ModelProto, result: Checked) -> None:
    copies = sum(entry.key == STATEMENT_KEY for entry in model.metadata_props)
    if copies > 1:
        result.found(f"metadata '{STATEMENT_KEY}'", f"it occurs {copies} times, so readers may find another statement")


def _is_stale(other: Mapping[str, Any], own: Mapping[str, Any], found: ModelIdentity) -> bool:
    """Return whether an intact statement in a file is about another model than this one and its own statement."""
    if other["predicate"].get(SEAL) != sealed(other)["predicate"][SEAL]:
        return False
    return _of_content(own["subject"], MODEL) == found.whole != _of_content(other["subject"], MODEL)


def _parsed(text: str | bytes, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the provenance statement is not JSON: {error}", where=where) from error


def _stated(value: Any, where: str) -> Mapping[str, Any]:
    """Return a statement after checking its structure. Raises UsageError."""
    wrong = UsageError("this is not a provenance statement by surgery", where=where)
    try:
        predicate = value["predicate"]
        definition, details = predicate["buildDefinition"], predicate["runDetails"]
        described = [*value["subject"], *definition["resolvedDependencies"]]
        texts = [one for item in described for one in (item.get("name", ""), item.get("uri", ""))]
        texts += [item["name"] for item in value["subject"]]
        texts += [digest for item in described for digest in item.get("digest", {}).values()]
        tables = [definition["externalParameters"], details["builder"], *predicate[STEPS], *described]
        tables += [item["digest"] for item in value["subject"]]
        lists = [value["subject"], definition["resolvedDependencies"], predicate[STEPS]]
    except (KeyError, TypeError, AttributeError) as error:
        raise wrong from error
    if definition["buildType"] != BUILD_TYPE:
        raise UsageError("this is a statement of another tool", where=where)
    is_sound = all(isinstance(one, list) for one in lists) and all(isinstance(one, dict) for one in tables)
    if not is_sound or not all(isinstance(one, str) for one in texts):
        raise wrong
    return dict(value)


def _signature(sidecar: SignedStatement, keys: Sequence[Path], result: Checked) -> None:
    if sidecar.envelope is None:
        if keys:
            result.found("signature", "the statement is not signed")
        return
    for key in keys:
        problem = signing.fault(sidecar.envelope, key)
        if problem:
            result.found("signature", problem)
        else:
            result.checked.append(f"signature with {key}")
    if not keys:
        result.remarks.append("the signature was not checked; name the public key with --key")


def _seal(name: str, statement: Mapping[str, Any], result: Checked) -> None:
    """Compare a statement with its seal, and name the changed fields."""
    seal = statement["predicate"].get(SEAL)
    expected = sealed(statement)["predicate"][SEAL]
    if seal == expected:
        result.checked.append(name)
        return
    plain = {**statement, "predicate": {key: one for key, one in statement["predicate"].items() if key != SEAL}}
    places = [place for place, _ in leaves(plain)]
    try:
        old, new = entries(seal["fields"]), entries(expected["fields"])
    except (KeyError, TypeError, ValueError):
        result.found(name, "its checksum is missing or damaged")
        return
    found = [*_differing(old, new, places)]
    for place, problem in found:
        result.found(f"{name}, field '{place}'", problem)
    if not found:
        result.found(name, "it does not match its checksum")


def _agreement(own: Mapping[str, Any], other: Mapping[str, Any], result: Checked) -> None:
    """Compare the statement in a model with the longer one in a file, which contains the same fields."""
    theirs = dict(leaves(other))
    for place, value in leaves(own):
        if SEAL in place or value in ({}, []):
            continue
        if theirs.get(place) != value:
            result.found(f"statement, field '{place}'", "it differs in the model")


def _differing(old: Sequence[str], new: Sequence[str], names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the names of changed entries and the kind of change. `names` are those of `new`."""
    first = next((at for at, (a, b) in enumerate(zip(old, new)) if a != b), min(len(old), len(new)))
    rest = min(len(old), len(new)) - first
    last = next((at for at in range(rest) if old[-1 - at] != new[-1 - at]), rest)
    a, b = old[first : len(old) - last], new[first : len(new) - last]
    if len(a) == len(b) or max(len(a), len(b)) > _MOST:
        yield from ((names[first + at], "it was changed") for at in range(len(b)) if a[at : at + 1] != b[at : at + 1])
        return
    for tag, low, high, start, stop in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        at = first + start
        if tag == "delete":
            where = f"after {names[at - 1]}" if at else "at the beginning"
            yield where, f"{_count(high - low)} gone"
        elif tag != "equal":
            for position in range(start, stop):
                yield names[first + position], "it was changed" if tag == "replace" else "it was added"
            if high - low > stop - start:
                yield f"after {names[first + stop - 1]}", f"{_count(high - low - stop + start)} gone"


def _count(parts: int) -> str:
    return f"{parts} parts are" if parts > 1 else "a part is"


def _model(
    statement: Mapping[str, Any],
    own: Mapping[str, Any] | None,
    found: ModelIdentity,
    stored: storage.StoredModel,
    result: Checked,
) -> None:
    subjects = {one["name"]: one["digest"] for one in statement["subject"]}
    if _of_content(statement["subject"], MODEL) == found.whole:
        result.checked.append(f"{len(found.parts)} parts of the model, {len(found.tensors)} tensors")
        _files(statement, stored, result)
        return
    problems = dict(_tensors(f"{MODEL}#", subjects, found))
    for one in (statement, own):
        if one is not None:
            problems = {**problems, **dict(_changed(one["predicate"].get(INDEX), found.parts))}
    for place, problem in problems.items():
        result.found(place, problem)
    if not problems:
        result.found("model", "it is not the model of the statement")


def _of_content(described: Any, name: str) -> str | None:
    """Return the digest of a whole model among the described items; a file may have the same name."""
    found = (one.get("digest", {}).get(ALGORITHM) for one in described if one.get("name") == name)
    return next(filter(None, found), None)


def _changed(text: Any, parts: Sequence[ModelPart]) -> Iterator[tuple[str, str]]:
    try:
        old = entries(text)
    except (TypeError, ValueError, base64.binascii.Error):  # type: ignore[attr-defined]
        return
    yield from _differing(old, entries(index(part.digest for part in parts)), [part.place for part in parts])


def _tensors(prefix: str, digests: Mapping[str, Any], found: ModelIdentity) -> Iterator[tuple[str, str]]:
    """Yield the tensors that differ from the longer statement."""
    known = {name.removeprefix(prefix): one.get("sha256") for name, one in digests.items() if name.startswith(prefix)}
    if not known:
        return
    for place in {**known, **found.tensors}:
        if place not in found.tensors:
            yield place, "it is gone"
        elif place not in known:
            yield place, "it was added"
        elif known[place] != found.tensors[place]:
            yield place, "it was changed"


def _files(statement: Mapping[str, Any], stored: storage.StoredModel, result: Checked) -> None:
    """Compare the bytes of files with the longer statement; another layout of the same model is only a remark."""
    named = [one for one in statement["subject"] if not one["name"].startswith(f"{MODEL}#")]
    listed = [one["digest"].get("sha256") for one in named]
    wanted = [digest for digest in listed if digest is not None]
    if not wanted or stored.path is None:
        return
    files = data_files(stored)
    if sorted(file_digest(path) for path in files) == sorted(wanted):
        result.checked.append(f"the bytes of {len(files)} {'file' if len(files) == 1 else 'files'}")
    else:
        result.remarks.append("the model is the same, but its bytes differ from the written ones")


def _input(statement: Mapping[str, Any], source: storage.StoredModel | None, result: Checked) -> None:
    if source is None:
        result.remarks.append("the input was not checked; name it with --input")
        return
    listed = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    digests = {one["name"]: one["digest"] for one in listed if "name" in one and "digest" in one}
    found = identity_of(source)
    if _of_content(listed, INPUT) == found.whole:
        result.checked.append("the input")
        return
    changed = [*_tensors(f"{INPUT}#", digests, found)]
    for place, problem in changed:
        result.found(f"input, {place}", problem)
    if not changed:
        result.found("input", f"{source.path} is not the input of this model")


def _recipe(statement: Mapping[str, Any], recipe: Recipe | None, result: Checked) -> None:
    if recipe is None:
        result.remarks.append("the recipe was not checked; name it with --recipe")
        return
    listed = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    known = {
        one["name"].removeprefix(RECIPE): one.get("digest", {}).get("sha256")
        for one in listed
        if str(one.get("name")).startswith(RECIPE)
    }
    found = closure_of(recipe).files
    for label in sorted({**known, **found}):
        if known.get(label) != found.get(label):
            problem = "it was changed" if label in known and label in found else _place(label in known)
            result.found(f"recipe, file '{label}'", problem)
    if known == found:
        result.checked.append(f"{len(found)} {'file' if len(found) == 1 else 'files'} of the recipe")


def _place(was: bool) -> str:
    return "it is no longer in the recipe" if was else "it is not in the statement"
