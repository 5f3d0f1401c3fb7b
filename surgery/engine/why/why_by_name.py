"""Explain a pass by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from surgery.engine.registry.catalog import catalog
from surgery.engine.why import explain as explaining
from surgery.model import storage

if TYPE_CHECKING:
    from surgery.model.storage.loading import Model


def explain(name: str, model: Model, *, at: str | None = None, **options: Any) -> explaining.Why:
    """Explain where the pass `name` fires in a model and why it does not fire elsewhere; `at` selects a single node.

    Raises UsageError if the pass or the node does not exist or an option is invalid, and ModelFileError or
    TransferError if the model cannot be read.
    """
    stored = storage.opened(model)
    return explaining.explain(catalog.find(name), stored.proto, stored.weights, options, at=at)
