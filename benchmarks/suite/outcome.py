"""The result of one tool on one trained model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import onnx

from suite import facts

_OVERRIDABLE_SINCE = 4
_NONE = ("unchanged", "skipped")
_CHANGED = ("committed", "rolled back", "failed")
_WEAKEST = ("different", "unverified", "close", "equal")
_MOST_GROWTH = 0.01
_ALWAYS_ALLOWED = 1 << 14
"""Bytes by which a file of any size may grow; fold-constants allows the same."""


@dataclass
class Outcome:
    """A row. `failure` says why there is no model, `wrong` what is wrong with it, `refused` lists steps not kept.

    `private` is the peak private memory in bytes. `again` says what the same recipe changes in its own result.
    """

    model: str
    tool: str
    key: Mapping[str, str]
    nodes_before: int = 0
    bytes_before: int = 0
    sets: int = 0
    seconds: float | None = None
    cpu: float | None = None
    private: int | None = None
    failure: str = ""
    verdict: str = ""
    refused: list[str] = field(default_factory=list)
    nodes: int | None = None
    bytes: int | None = None
    signature: str = ""
    note: str = ""
    wrong: str = ""
    error: float | None = None
    noise: float | None = None
    again: str = ""

    @property
    def right(self) -> bool:
        """Whether there is a model that computes the same as the original and has the same or a refined signature."""
        return not self.failure and not self.wrong and self.nodes is not None and self.signature != "changed"

    @property
    def grows(self) -> bool:
        """Whether the file is larger than the original by more than 1 % and 16 KiB."""
        return (self.bytes or 0) - self.bytes_before > max(_MOST_GROWTH * self.bytes_before, _ALWAYS_ALLOWED)

    @property
    def complaint(self) -> str:
        """The problems of a row in words; empty if it is right."""
        changed = f"signature: {self.note}" if self.signature == "changed" else ""
        return "; ".join(filter(None, (self.failure, self.wrong, changed)))

    @property
    def line(self) -> str:
        """The row as one line of progress."""
        words = self.complaint or f"{self.nodes_before} -> {self.nodes} nodes {self.verdict}".rstrip()
        left = f", refused: {'; '.join(self.refused)}" if self.refused else ""
        again = f", the second run: {self.again}" if self.again else ""
        cost = f"{self.seconds or 0:.1f} s ({self.cpu or 0:.1f} of CPU), {(self.private or 0) >> 20} MiB"
        return f"{self.tool}: {cost}, {words}{left}{again}"


def read(path: Path) -> list[Outcome]:
    """Read rows, one JSON object per line."""
    return [Outcome(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def write(path: Path, rows: Iterable[Outcome]) -> None:
    """Write rows, without fields that say nothing, and times to the millisecond."""
    lines = []
    for row in rows:
        kept = {name: value for name, value in asdict(row).items() if value not in ("", [], None)}
        kept |= {name: round(kept[name], 3) for name in ("seconds", "cpu") if name in kept}
        lines.append(json.dumps(kept, ensure_ascii=False) + "\n")
    path.write_text("".join(lines), encoding="utf-8")


def read_account(row: Outcome, printed: str) -> None:
    """Set the verdict and the refused steps of a row from the output of `surgery apply --format json`."""
    try:
        account = json.loads(printed)
    except ValueError:
        return
    verdicts = set()
    for step in account["steps"]:
        if step["status"] == "committed":
            verdicts.add(step["verdict"])
        elif step["status"] not in _NONE:
            reason = step["message"] or step["reason"] or step["verdict"] or ""
            row.refused.append(" ".join(f"{step['pass']} {step['status']}: {reason}".split())[:300])
    row.verdict = next((verdict for verdict in _WEAKEST if verdict in verdicts), "unchanged")
    if not account["ok"]:
        row.failure = row.refused[-1] if row.refused else "not ok"


def changing(printed: str) -> list[str]:
    """Return the passes that changed something or failed, from the output of `surgery apply --format json`."""
    return list(dict.fromkeys(step["pass"] for step in json.loads(printed)["steps"] if step["status"] in _CHANGED))


def interface(path: Path) -> dict[str, Any]:
    """Return the outputs, and the inputs without those that IR versions before 4 required for each initializer."""
    model = onnx.load(path, load_external_data=False)
    found = facts.signature(model)
    if model.ir_version < _OVERRIDABLE_SINCE:
        given = {tensor.name for tensor in model.graph.initializer}
        found["inputs"] = [value for value in found["inputs"] if value[0] not in given]
    return found


def compare_interfaces(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, str]:
    """Return whether an interface is kept, refined or changed, and the first difference; for tools of any kind.

    Refined: it accepts everything the original accepts; an unnamed dim got a name, or an output dim got a size.
    Changed: other names, types, order or ranks, an open input dim that got a size, or two input dims that became one.
    """
    if before == after:
        return "kept", ""
    new_names: dict[str, Any] = {}
    for side in ("inputs", "outputs"):
        if [value[0] for value in before[side]] != [value[0] for value in after[side]]:
            return "changed", f"other {side}: {', '.join(str(value[0]) for value in after[side])}"
        for (name, kind, dims), (_, other_kind, other_dims) in zip(before[side], after[side]):
            if (dims is None) != (other_dims is None) or (dims is not None and kind != other_kind):
                return "changed", f"{side[:-1]} {name} was {kind}{dims}, is {other_kind}{other_dims}"
            if dims is not None and not _takes(dims, other_dims, side == "inputs"):
                return "changed", f"{side[:-1]} {name} was {dims}, is {other_dims}"
            if dims is not None and side == "inputs" and (tied := _tied(name, dims, other_dims, new_names)):
                return "changed", tied
    return "refined", ""


def _takes(old: list[Any], new: list[Any], is_input: bool) -> bool:
    """Return whether each new dim alone allows all sizes that the old one allows."""
    if len(old) != len(new):
        return False
    for a, b in zip(old, new):
        is_fixed = isinstance(a, int) and a > 0
        if (is_fixed and a != b) or (is_input and not is_fixed and not isinstance(b, str)):
            return False
    return True


def _tied(name: str, old: list[Any], new: list[Any], names: dict[str, Any]) -> str:
    """Return which two dims have one name now but were independent; `names` maps each new name to the old dim."""
    for position, (a, b) in enumerate(zip(old, new)):
        if isinstance(b, str) and b != "?":
            stands_for = a if isinstance(a, str) and a != "?" else (name, position)
            other = names.setdefault(b, stands_for)
            if other != stands_for:
                one, two = (
                    dim if isinstance(dim, str) else f"an unnamed one of {dim[0]}" for dim in (other, stands_for)
                )
                return f"two independent dims of the inputs, {one} and {two}, are both {b} now"
    return ""
