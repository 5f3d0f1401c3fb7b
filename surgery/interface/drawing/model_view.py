"""The page of a model: its graph and its facts, as a value that notebooks show and that can be saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import UsageError, counted
from surgery.base.views import view as shown
from surgery.features.inspection.inspect import inspect_stored
from surgery.interface.drawing.assembling import document
from surgery.interface.drawing.history import History
from surgery.model import storage

if TYPE_CHECKING:
    from surgery.model.storage.loading import Model

_IN_MEMORY = "a model in memory"


@dataclass(frozen=True)
class ModelView:
    """The result of `surgery.view`: a page that needs no network, with the graph of a model.

    `html` is the page. `nodes` and `groups` are the numbers of nodes and groups that it draws.
    """

    title: str
    html: str = field(repr=False)
    nodes: int
    groups: int

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the page to a file, completely or not at all, and return its path.

        Raises OutputError if the file cannot be written, or exists and `force` is off.
        """
        storage.check_target(path, force=force)
        storage.write_texts({Path(path): self.html})
        return Path(path)

    def __repr__(self) -> str:
        """Return a line for a prompt."""
        name = self.title if self.title == _IN_MEMORY else repr(self.title)
        return f"<ModelView of {name}: {counted(self.nodes, 'node')}, {counted(self.groups, 'group')}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the page in a frame."""
        return shown("framed")(self.title, self.html)


def view(
    model: Model, *, costs: bool = False, profile: bool = False, dims: Mapping[str, int] | None = None
) -> ModelView:
    """Draw a model: its graph, grouped by modules, scopes, functions and repeated blocks, on a page to look into.

        surgery.view("model.onnx").save("model.html")

    A notebook shows the page itself. `costs` adds the operations and memory traffic of each operator in one run, and
    `profile` the time of each node in a run of ONNX Runtime without optimizations, on one thread and on generated
    inputs. `dims` are sizes of dynamic dims for both; without them, the costs are those of the size 1. Only constants
    of at most 16 elements are read.

    Raises UsageError for unknown dims, or if the model cannot be profiled, ModelFileError if it cannot be read, and
    TransferError if a connection breaks.
    """
    stored, sizes = storage.opened(model), dict(dims or {})
    inspected = inspect_stored(stored)
    found = {
        **inspected.to_json(),
        "provenance": inspected.provenance(),
        **_costs(stored, sizes, is_wanted=costs, is_used=costs or profile),
    }
    history = History.of(stored)
    history.title = history.title or _IN_MEMORY
    if profile:
        from surgery.verification.benchmarking.bench import profile_nodes

        history.times = profile_nodes(model if isinstance(model, str | Path) else stored, sizes)
    drawing = document(history)
    html = shown("model_page")(history.title, found, drawing)
    return ModelView(history.title, html, drawing["states"][0]["nodes"], len(drawing["groups"]["name"]))


def _costs(stored: storage.StoredModel, sizes: Mapping[str, int], *, is_wanted: bool, is_used: bool) -> dict[str, Any]:
    """Return the costs of operators, if they are wanted, in the format of the report of a run."""
    from surgery.features.inspection.bound_dims import dynamic_dims

    known = dynamic_dims(stored.proto)
    if sizes and not is_used:
        raise UsageError("dims are for costs and profile", todo="ask for one of them, or omit dims")
    unknown = next((name for name in sizes if name not in known), None)
    if unknown is not None:
        names = f"its dynamic dims are {', '.join(known)}" if known else "it has no dynamic dims"
        raise UsageError(f"the model has no dim '{unknown}'", where=str(stored.path or _IN_MEMORY), todo=names)
    if not is_wanted:
        return {}
    from surgery.features.inspection.operator_costs import operator_costs

    sizes = {**dict.fromkeys(known, 1), **sizes}
    return {"costs": {"sizes": sizes, "before": operator_costs(stored, sizes)}}
