"""Additional data for the report of a run: environment, recipes, weights and costs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import internal
from surgery.engine.provenance.environment import environment
from surgery.model.remote.urls import scrubbed

if TYPE_CHECKING:
    from surgery.model.storage import StoredModel

_MOST_BYTES = 128 * 1024
"""Maximum number of bytes quoted from a recipe."""


def circumstances(command: Sequence[str], places: Iterable[str]) -> dict[str, Any]:
    """Return how and where a run was made: `command`, `environment`, and the `recipes` that `places` point into.

    A place is a file and a line, such as "fast.yaml:12". Files that cannot be read are left out. Possible credentials
    are removed from URLs in the command.
    """
    files = dict.fromkeys(place.rpartition(":")[0] for place in places if ":" in place)
    recipes = [{"path": path, "text": text} for path in files if (text := _read(path)) is not None]
    shown = shlex.join(scrubbed(part) if "://" in part else part for part in command)
    return {"command": shown, "environment": environment(), "recipes": recipes}


def _read(path: str) -> str | None:
    try:
        with Path(path).open("rb") as file:
            return file.read(_MOST_BYTES).decode(errors="replace")
    except (OSError, ValueError):
        return None


def contents(before: StoredModel, after: StoredModel, bindings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the `weights` and `costs` of two models, and the `problems` that explain missing ones.

    The costs are those of one run with the largest sizes in `bindings`.
    """
    from surgery.features.inspection.operator_costs import operator_costs
    from surgery.features.inspection.weight_samples import compare_weights

    sizes = _largest(bindings)
    problems: list[str] = []

    def attempt(what: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        try:
            return make()
        except Exception as error:
            # An incomplete report is better than none.
            problems.append(f"{what}: {internal(error)}")
            return None

    weights = attempt("the weights could not be compared", lambda: compare_weights(before, after))
    old = attempt("the cost of the original could not be counted", lambda: operator_costs(before, sizes))
    new = attempt("the cost of the result could not be counted", lambda: operator_costs(after, sizes))
    costs = {"sizes": sizes, "before": old, "after": new} if old or new else None
    return {"weights": weights, "costs": costs, "problems": problems}


def _largest(bindings: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the largest sizes that the original accepts."""
    found = [dict(one["dims"]) for one in bindings if not one.get("refused")]
    return max(found, key=lambda sizes: sum(sizes.values()), default={})
