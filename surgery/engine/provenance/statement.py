"""Create a provenance statement and store it in a model.

A statement has the in-toto format (https://in-toto.io/Statement/v1) with the SLSA predicate
(https://slsa.dev/provenance/v1). It depends on the input, the recipe, surgery and the packages, and on nothing else: no
paths, times or measurements. So the same run produces the same bytes.

The statement in a model is short. It has the digest of the whole, and for each part of the model two bytes of its
digest, which show where a model was changed. The statement in a separate file has the same content, and adds the
digests of files, of each tensor of the input and the output, and of the source of each pass.

Fields named `surgery_...` are extension fields as defined by SLSA.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from surgery.engine.provenance import code_digests, packages
from surgery.engine.provenance.model_digests import ALGORITHM, ModelIdentity
from surgery.engine.provenance.recipe_closure import closure_of, passes_of, settings_of
from surgery.model.wire.digests import STATEMENT_KEY, file_digest

if TYPE_CHECKING:
    import onnx

    from surgery.engine.recipe.schema import Recipe

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://slsa.dev/provenance/v1"
BUILD_TYPE: Final = "urn:onnx-surgery:apply:1"
BUILDER: Final = "urn:onnx-surgery"
MODEL: Final = "model"
"""The name of the whole model among the subjects; its digest does not depend on the file layout."""
INPUT: Final = "input"
RECIPE: Final = "recipe:"
"""The prefix of the names of recipe files among the dependencies."""
SEAL: Final = "surgery_seal"
INDEX: Final = "surgery_index"
STEPS: Final = "surgery_steps"

_SHORT: Final = 2
"""Number of bytes of each digest in an index."""


@dataclass(frozen=True)
class Origin:
    """The origin of a model: the recipe with all effective settings, the digests of the input, and the steps.

    `statement` is the digest of the statement that the input carried, if any. `steps` are plain values.
    """

    recipe: Recipe
    input: ModelIdentity
    steps: Sequence[Mapping[str, Any]]
    end: str | None = None
    statement: str | None = None
    times: Mapping[str, str] = field(default_factory=dict)


def brief(origin: Origin, output: ModelIdentity) -> dict[str, Any]:
    """Return the statement that is stored in a model."""
    closure = closure_of(origin.recipe)
    given = {"name": INPUT, "digest": {ALGORITHM: origin.input.whole}}
    if origin.statement is not None:
        given["annotations"] = {"surgery_statement": origin.statement}
    dependencies = [
        given,
        *({"name": f"{RECIPE}{label}", "digest": {"sha256": digest}} for label, digest in closure.files.items()),
        {"name": "surgery", "digest": {"sha256": code_digests.engine()}},
        {"name": "passes", "digest": {"sha256": code_digests.combined(passes_of(origin.recipe))}},
        *(
            {"uri": f"pkg:pypi/{name}@{version}"}
            for name, version in packages.packages().items()
            if version != packages.MISSING
        ),
    ]
    predicate: dict[str, Any] = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"recipe": origin.recipe.name, **settings_of(origin.recipe)},
            "internalParameters": {},
            "resolvedDependencies": dependencies,
        },
        "runDetails": {
            "builder": {"id": BUILDER, "version": {"onnx-surgery": packages.version_of("onnx-surgery")}},
            **({"metadata": dict(origin.times)} if origin.times else {}),
        },
        STEPS: [dict(step) for step in origin.steps],
        **({"surgery_end": origin.end} if origin.end is not None else {}),
        INDEX: index(part.digest for part in output.parts),
    }
    return sealed(_statement([{"name": MODEL, "digest": {ALGORITHM: output.whole}}], predicate))


def full(origin: Origin, output: ModelIdentity, files: Sequence[Path]) -> dict[str, Any]:
    """Return the statement for a separate file; `files` are those of the model as written. Raises OSError."""
    found = brief(origin, output)
    predicate = {name: value for name, value in found["predicate"].items() if name != SEAL}
    definition = dict(predicate["buildDefinition"])
    definition["internalParameters"] = {"python": packages.python(), "processor": packages.processor()}
    definition["resolvedDependencies"] = [
        *definition["resolvedDependencies"],
        *_tensors(f"{INPUT}#", origin.input),
        *(
            {"name": f"pass:{name}", "digest": {"sha256": one.digest}, "annotations": {"origin": Path(one.origin).name}}
            for name, one in code_digests.sources(passes_of(origin.recipe)).items()
        ),
    ]
    subjects = [
        *found["subject"],
        *({"name": path.name, "digest": {"sha256": file_digest(path)}} for path in files),
        *_tensors(f"{MODEL}#", output),
    ]
    return sealed(_statement(subjects, {**predicate, "buildDefinition": definition}))


def embed(model: onnx.ModelProto, statement: Mapping[str, Any] | None) -> onnx.ModelProto:
    """Return a copy of a model that carries the given statement instead of its own; None for no statement."""
    copy = type(model)()
    copy.CopyFrom(model)
    for entry in [entry for entry in copy.metadata_props if entry.key == STATEMENT_KEY]:
        copy.metadata_props.remove(entry)
    if statement is not None:
        copy.metadata_props.add(key=STATEMENT_KEY, value=text_of(statement))
    return copy


def carried(model: onnx.ModelProto) -> str | None:
    """Return the text of the statement that a model carries, if any."""
    return next((entry.value for entry in model.metadata_props if entry.key == STATEMENT_KEY), None)


def repeats(text: str, statement: Mapping[str, Any]) -> bool:
    """Return whether a carried statement is intact, about the same model, and of the same build but for its input."""
    try:
        found = json.loads(text)
        return text == text_of(sealed(found)) and _build(found) == _build(statement)
    except (ValueError, TypeError, KeyError, AttributeError):
        return False


def _build(statement: Mapping[str, Any]) -> tuple[Any, ...]:
    definition = statement["predicate"]["buildDefinition"]
    others = [one for one in definition["resolvedDependencies"] if one.get("name") != INPUT]
    return statement["subject"], {**definition, "resolvedDependencies": others}


def text_of(statement: Mapping[str, Any]) -> str:
    """Return a statement as JSON in a canonical form."""
    return json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest_of_text(text: str) -> str:
    """Return the digest of a statement as a model carries it."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def index(digests: Iterable[str]) -> str:
    """Return the first bytes of digests, in base64."""
    return base64.b64encode(b"".join(bytes.fromhex(digest[: 2 * _SHORT]) for digest in digests)).decode()


def entries(text: str) -> list[str]:
    """Return the digest prefixes in an index, in hexadecimal. Raises ValueError."""
    found = base64.b64decode(text, validate=True).hex()
    return [found[start : start + 2 * _SHORT] for start in range(0, len(found), 2 * _SHORT)]


def sealed(statement: Mapping[str, Any]) -> dict[str, Any]:
    """Return a statement with its seal: the digest of all fields together, and a digest prefix of each field."""
    predicate = {name: value for name, value in statement["predicate"].items() if name != SEAL}
    plain = {**statement, "predicate": predicate}
    fields = index(digest_of_text(text_of({"at": place, "is": value})) for place, value in leaves(plain))
    return {**plain, "predicate": {**predicate, SEAL: {"sha256": digest_of_text(text_of(plain)), "fields": fields}}}


def leaves(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the places and values of all leaf fields, sorted by name."""
    pending = [("", value)]
    while pending:
        place, one = pending.pop()
        inner: list[tuple[str, Any]] = []
        if isinstance(one, Mapping):
            inner = [(f"{place}.{name}" if place else str(name), one[name]) for name in sorted(one)]
        elif isinstance(one, list):
            inner = [(f"{place}[{number}]", item) for number, item in enumerate(one)]
        if inner:
            pending += reversed(inner)
        else:
            yield place, one


def _statement(subjects: list[dict[str, Any]], predicate: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "_type": STATEMENT_TYPE,
        "subject": subjects,
        "predicateType": PREDICATE_TYPE,
        "predicate": dict(predicate),
    }


def _tensors(prefix: str, model: ModelIdentity) -> Iterator[dict[str, Any]]:
    for place, digest in model.tensors.items():
        yield {"name": f"{prefix}{place}", "digest": {"sha256": digest}}
