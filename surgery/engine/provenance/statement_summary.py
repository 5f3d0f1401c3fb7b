"""What a provenance statement says, as plain values that people read: the recipe, the steps, the packages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from surgery.engine.provenance.model_digests import ALGORITHM
from surgery.engine.provenance.statement import BUILDER, INPUT, RECIPE, STEPS

_PACKAGE: Final = "pkg:pypi/"


def read_summary(text: str) -> dict[str, Any] | None:
    """Return the summary of the text of a statement, or None if it is no statement of surgery."""
    try:
        statement = json.loads(text)
        is_own = statement["predicate"]["runDetails"]["builder"]["id"] == BUILDER
        return summary(statement) if is_own else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def summary(statement: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a statement as plain values."""
    predicate = statement["predicate"]
    definition, details = predicate["buildDefinition"], predicate["runDetails"]
    versions = details["builder"].get("version")
    times = details.get("metadata")
    dependencies = definition["resolvedDependencies"]
    digests = {one.get("name"): one.get("digest") or {} for one in dependencies}
    recipes = [name for name in digests if isinstance(name, str) and name.startswith(RECIPE)]
    return {
        "recipe": definition["externalParameters"].get("recipe"),
        "surgery": versions.get("onnx-surgery") if isinstance(versions, Mapping) else versions,
        "steps": [{key: _word(step.get(key)) for key in ("pass", "status", "verdict")} for step in predicate[STEPS]],
        "end": _word(predicate.get("surgery_end")),
        "input": digests.get(INPUT, {}).get(ALGORITHM),
        "recipes": {name.removeprefix(RECIPE): digests[name].get("sha256") for name in recipes},
        "packages": [one["uri"].removeprefix(_PACKAGE) for one in dependencies if "uri" in one],
        "written": times.get("finishedOn") if isinstance(times, Mapping) else None,
    }


def _word(value: object) -> str | None:
    return None if value is None else str(value)
