"""The result of one tool on one model, and the folder that stores such results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ORIGINAL = "original"


@dataclass
class Record:
    """A row of the table. `failure` says why there is no model; `wrong` what is wrong with the model."""

    model: str
    tool: str
    key: Mapping[str, str]
    failure: str = ""
    seconds: float | None = None
    cpu: float | None = None
    private: int | None = None
    nodes: int | None = None
    outside: int = 0
    bytes: int | None = None
    signature: str = ""
    signature_note: str = ""
    error: float | None = None
    wrong: str = ""
    latency: dict[str, Any] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        """Whether the model computes the same under each binding and can replace the original."""
        return not self.failure and not self.wrong and self.error is not None and self.signature != "changed"

    @property
    def valid(self) -> bool:
        """Whether the model is right and has standard operators only."""
        return self.right and not self.outside

    @property
    def notes(self) -> str:
        """All problems of the row in words; empty if there are none."""
        changed = f"signature: {self.signature_note}" if self.signature == "changed" else ""
        return "; ".join(filter(None, (self.failure, self.wrong, changed, str(self.latency.get("failure", "")))))


class Folder:
    """Records stored as JSON, one file each, optionally with the model next to it."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.path.mkdir(parents=True, exist_ok=True)

    def model(self, model: str, tool: str) -> Path:
        """Return the path of the model that a tool wrote, in a separate folder with room for external weights."""
        return self.path / _stem(model, tool) / "model.onnx"

    def load(self, model: str, tool: str, key: Mapping[str, str]) -> Record | None:
        """Return the stored record of a tool on a model, if it has the same key."""
        path = self.path / f"{_stem(model, tool)}.json"
        if not path.is_file():
            return None
        record = Record(**json.loads(path.read_text()))
        return record if record.key == dict(key) else None

    def save(self, record: Record) -> None:
        """Store a record; an interrupted write leaves the previous one intact."""
        path = self.path / f"{_stem(record.model, record.tool)}.json"
        fresh = path.with_suffix(".fresh")
        fresh.write_text(json.dumps(asdict(record), indent=1) + "\n")
        fresh.replace(path)


def _stem(model: str, tool: str) -> str:
    return f"{model}--{tool}".replace(" ", "-").replace(":", "-").replace("/", "-")
