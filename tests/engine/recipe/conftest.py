"""Passes and shipped recipes of their own for the tests of recipes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from surgery import Graph
from surgery.engine.recipe import recipe_lookup
from surgery.engine.registry.catalog import catalog
from surgery.engine.registry.declare import graph_pass
from surgery.engine.registry.options import Size


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only these passes exist during a test."""
    monkeypatch.setattr(catalog, "_passes", {})
    monkeypatch.setattr(catalog, "_is_complete", True)

    @graph_pass("drop-dropout")
    def drop_dropout(graph: Graph) -> None:
        """Drop."""

    @graph_pass("fold-constants")
    def fold_constants(graph: Graph, *, max_growth: Size = 0, rounds: int = 1, deep: bool = False) -> None:
        """Fold."""

    @graph_pass("fuse-attention")
    def fuse_attention(graph: Graph, *, heads: int, target: Literal["onnx", "onnxruntime"] = "onnx") -> None:
        """Fuse."""

    @graph_pass("pin-dims")
    def pin_dims(graph: Graph, *, dims: dict[str, list[int]]) -> None:
        """Pin."""

    yield


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of shipped recipes in place of the real one."""
    folder = tmp_path_factory.mktemp("shelf")
    (folder / "tidy.yaml").write_text("recipe: tidy\nsteps: [drop-dropout]\nexpect: {ops: {Dropout: 0}}\n")
    (folder / "bert.yaml").write_text("steps:\n  - use: tidy\n")
    monkeypatch.setattr(recipe_lookup, "folder", lambda: folder)
    return folder
