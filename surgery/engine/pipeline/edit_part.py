"""A part of an edit by hand as a step of a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from surgery.base.promises import Change, Parity
from surgery.engine.recipe.schema import PassStep
from surgery.engine.registry.passes import Pass
from surgery.model import storage
from surgery.model.graph.graph import Graph

if TYPE_CHECKING:
    import onnx

    from surgery.model.graph.signature_mappings import SignatureMapping
    from surgery.model.graph.state import Site

NAME = "edit"
"""The name of the steps, which the lineage of new nodes has too."""


@dataclass(frozen=True)
class EditPart:
    """The edits up to some place of the body: the model that they made, and what the engine needs to judge it."""

    proto: onnx.ModelProto
    promise: Parity
    changes: frozenset[Change]
    sites: tuple[Site, ...]
    renamed: Mapping[str, str]
    accounts: tuple[SignatureMapping, ...]

    def step(self) -> PassStep:
        """Return the step that makes this model of the one before."""

        def adopt(graph: Graph) -> None:
            assert graph.weights is not None
            graph.adopt(storage.ir_from_proto(self.proto, graph.weights))
            graph.sites, graph.renamed, graph.accounts = list(self.sites), dict(self.renamed), list(self.accounts)

        adopt.__doc__ = "Edits by hand."
        made = Pass(NAME, self.promise, "graph", adopt, changes=self.changes)
        return PassStep(NAME, on_failure="abort", declared=made)
