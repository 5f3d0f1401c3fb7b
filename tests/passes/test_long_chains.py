"""What is done for each node of a long chain does not grow with the length of the chain."""

from pathlib import Path
from typing import Any

import onnx
import pytest
from surgery.passes.weights import _region
from surgery.passes.weights.fold_scales import fold_scales

from surgery.base.operators.thresholds import sizes
from surgery.base.operators.use import Index, TypedIndex
from surgery.interface import commands as cli
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import Graph


def chain(nodes: int) -> onnx.ModelProto:
    """Multiply and add by turns, until everything overflows."""
    names = ["x", *(f"a{number}" for number in range(1, nodes)), "y"]
    steps = [f"{names[n + 1]} = {('Mul', 'Add')[n % 2]}({names[n]}, k)" for n in range(nodes)]
    return text.parse("g (float[2] x) => (float[2] y) <float[1] k = {3}> {" + "\n".join(steps) + "}")


def test_a_failed_search_for_a_factor_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[object] = []
    search = _region._search

    def counting(*what: Any) -> Any:
        looked_at.append(what)
        return search(*what)

    monkeypatch.setattr(_region, "_search", counting)
    stored = storage.from_proto(chain(600))
    fold_scales(Graph(storage.ir_from_proto(stored.proto, stored.weights)))
    assert len(looked_at) < 6 * 600


def test_each_constant_is_read_once_for_the_epsilons_of_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    model = chain(600)
    view = TypedIndex(Index(model), {})
    read: list[str] = []
    constant = TypedIndex.constant

    def counting(self: TypedIndex, name: str, depth: int = 4) -> Any:
        read.append(name)
        return constant(self, name, depth)

    monkeypatch.setattr(TypedIndex, "constant", counting)
    sizes(model.graph.node, view)
    assert read.count("k") == 1 and len(read) < 4 * 600


def test_an_overflowing_chain_is_optimized(tmp_path: Path) -> None:
    onnx.save(chain(1000), tmp_path / "m.onnx")
    assert cli.main(["apply", "default", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "o.onnx")]) == 0
