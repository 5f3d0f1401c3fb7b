"""The page of a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.batches import row
from support.html_pages import checked

from surgery.engine.batching.batch import BatchResult
from surgery.engine.batching.ledger import LedgerRow
from surgery.interface.pages import batches

EVIL = "</script><b>\u202e"


def page(*rows: LedgerRow) -> Any:
    found = BatchResult(rows, (), Path("ledger.sqlite"), 12.5)
    return checked(batches.report(found.to_json(), f"{EVIL} on {len(rows)} models"))


def dots(found: Any) -> list[Any]:
    return [one for one in found.all("circle") if one.attributes.get("class") == "dot"]


def test_models_and_failures() -> None:
    found = page(
        row("a.onnx", verdict="close", nodes_before=100, nodes_after=20, bytes_before=2000),
        row(f"b{EVIL}.onnx", verdict="equal", nodes_before=100, nodes_after=90, bytes_before=2000),
        *(
            row(f"c{number}.onnx", state="failed", kind="crash", reason=f"{EVIL} crashed at {number}", nodes_after=None)
            for number in range(3)
        ),
        row("d.onnx", state="skipped", reason="known", nodes_before=None, nodes_after=None),
    )
    assert "3 models of 6 failed." in found.text
    assert "2 done, 3 failed, 1 skipped" in found.text and "1 close, 1 equal" in found.text
    assert "3 models: crash" in found.text and "crashed at N" in found.text
    assert "\u202e" not in found.text and "\\u202e" in found.text
    rows = [one.text for one in found.all("tr") if one.inside("tbody") and not one.inside("details")]
    assert [line.split(".onnx")[0][:2] for line in rows] == ["c0", "c1", "c2", "a", "b<", "d"]
    assert len(dots(found)) == 2


def test_all_done() -> None:
    found = page(row("a.onnx", nodes_before=4, nodes_after=4))
    assert "All models are done." in found.text and "1 unchanged" in found.text
    assert "Failures by cause" not in found.text and not dots(found)


def test_an_unfinished_batch() -> None:
    assert "1 model of 2 did not run." in page(row("a.onnx"), row("b.onnx", state="queued", nodes_after=None)).text
