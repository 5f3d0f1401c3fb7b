"""Split a model into files that run in sequence, verified against the whole model before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import UsageError, counted
from surgery.base.json_record import Record
from surgery.base.views import view
from surgery.features.splitting.cut_choice import Balance, balanced_cuts, named_cuts
from surgery.features.splitting.cutting import Piece, SourceModel, pieces
from surgery.features.splitting.piece_writing import check_folder, write
from surgery.features.splitting.sequence import verify
from surgery.features.splitting.types import Types
from surgery.model import storage
from surgery.model.storage.summary import summarize
from surgery.verification.comparing.details import Verdict
from surgery.verification.inputs.given import with_found_sets
from surgery.verification.inputs.spec import InputsSpec, VerifySpec

if TYPE_CHECKING:
    import onnx

__all__ = ["Balance", "Part", "Split", "split"]

_UNVERIFIED_OK = "accept"


@dataclass(frozen=True)
class Part(Record):
    """One piece: its file, the sources of its inputs, its outputs, and its size.

    `inputs` maps each input to the number of the piece that produces it, from 1, or to 0 for an input of the whole
    model. `defaults` are inputs with a value in the file, which a caller may override.
    """

    file: str
    inputs: dict[str, int]
    defaults: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: int
    weights: int


@dataclass(frozen=True)
class Split(Record, keys="verdict files"):
    """The pieces of a model in execution order, and the verdict on them. `files` are the written files."""

    model: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parts: tuple[Part, ...]
    verdict: Verdict
    ok: bool
    files: tuple[Path, ...] = ()
    protos: tuple[onnx.ModelProto, ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        """Return a line for a prompt."""
        parts = counted(len(self.parts), "part")
        return f"<Split of {Path(self.model).name!r}: {'ok' if self.ok else 'not ok'}, {parts}, {self.verdict.status}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        rows = [
            (part.file, str(part.nodes), f"{part.weights / 1e6:.1f}", ", ".join(part.inputs), ", ".join(part.outputs))
            for part in self.parts
        ]
        remarks = [self.verdict.message] if self.verdict.message else []
        head = "File", "Nodes", "Weights in MB", "Inputs", "Outputs"
        return view("listed")(repr(self)[1:-1], "ok" if self.ok else "bad", remarks, head, rows, "parts")

    def plan(self) -> dict[str, Any]:
        """Return how the pieces connect: each is fed by name with inputs of the model and outputs of earlier pieces."""
        return {
            "model": self.model,
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "pieces": [part.to_json() for part in self.parts],
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain values: the plan, the verdict and the files."""
        return {"ok": self.ok, **self.plan(), **super().to_json()}


def split(
    model: str | Path | onnx.ModelProto,
    folder: str | Path | None = None,
    *,
    at: Sequence[str | Sequence[str]] = (),
    parts: int | None = None,
    balance: Balance = "weights",
    layout: storage.Layout = "keep",
    force: bool = False,
    inputs: InputsSpec | None = None,
    spec: VerifySpec | None = None,
) -> Split:
    """Cut a model into pieces, run them in sequence, and write them to `folder` if they match the whole model.

    `at` has names or globs of tensors of the main graph: each is a cut, and so is a list of them. Alternatively,
    `parts` is a number of pieces of similar size by `balance`, cut where little crosses. Each piece has the weights
    that it reads. Tensors keep their names, so a piece is fed by name with inputs of the model and outputs of earlier
    pieces. A plan of these connections, `<model>.pieces.json`, is written next to the pieces. Without a folder, nothing
    is written.

    Raises UsageError for cuts or a number of parts that the model does not have, ModelFileError if it cannot be read,
    and OutputError if a file exists and is not to be replaced by `force`. A negative verdict raises no error: look at
    `Split.ok`.
    """
    if bool(at) == (parts is not None):
        raise UsageError("a split needs either tensors to cut at or a number of parts", todo="pass one of them")
    stored = storage.opened(model)
    source, types = SourceModel(stored.proto), Types(stored)
    cuts = named_cuts(source, at) if parts is None else balanced_cuts(source, parts, balance, types.shapes())
    found = pieces(source, cuts, types)
    if len(found) < 2:
        raise UsageError("the cuts do not divide the model: all nodes are on one side", todo="choose other tensors")
    stem = stored.path.stem if stored.path is not None else "model"
    described = _described(stem, found)
    if folder is not None:
        check_folder(Path(folder), stem, [part.file for part in described], stored.weights, force=force)
    spec = spec or VerifySpec()
    verdict = verify(stored.proto, found, with_found_sets(inputs or InputsSpec(), stored.path), spec)
    ok = verdict.passed or (spec.unverified == _UNVERIFIED_OK and verdict.is_unverified)
    result = Split(
        stored.path.name if stored.path is not None else "",
        tuple(source.given),
        tuple(source.flow.outputs),
        tuple(described),
        verdict,
        ok,
        protos=tuple(piece.proto for piece in found),
    )
    if folder is None or not ok:
        return result
    models = {part.file: piece.proto for part, piece in zip(described, found, strict=True)}
    files = write(Path(folder), stem, models, result.plan(), stored.weights, layout=layout)
    return replace(result, files=tuple(files))


def _described(stem: str, found: Sequence[Piece]) -> list[Part]:
    """Return the description of each piece, with its file name and the sources of its inputs."""
    digits = len(str(len(found)))
    makers = {name: number for number, piece in enumerate(found, start=1) for name in piece.outputs}
    described = []
    for number, piece in enumerate(found, start=1):
        described.append(
            Part(
                f"{stem}.{number:0{digits}}.onnx",
                {name: makers[name] if makers.get(name, number) < number else 0 for name in piece.inputs},
                piece.defaults,
                piece.outputs,
                summarize(piece.proto).nodes,
                storage.weight_bytes(piece.proto),
            )
        )
    return described
