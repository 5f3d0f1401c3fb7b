"""Save a model with its provenance statement in its metadata and in a separate file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from surgery.base.errors import UsageError
from surgery.engine.provenance import signing, statement
from surgery.engine.provenance.model_digests import identify, identity_of
from surgery.model import storage
from surgery.model.storage.saving import spare_input
from surgery.model.wire.digests import digest_all

if TYPE_CHECKING:
    import onnx

    from surgery.engine.recipe.schema import Recipe

SUFFIX: Final = ".intoto.json"


@dataclass(frozen=True)
class Made:
    """A finished run: the recipe with its effective settings, the steps as plain values, the verdict on the whole."""

    recipe: Recipe
    steps: Sequence[Mapping[str, Any]]
    end: str | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no step changed the model: a step with a status was undone or failed."""
        return all("status" in step for step in self.steps)


@dataclass(frozen=True)
class Sidecar:
    """Options for the statement beyond the short one in the model.

    With `written`, the longer statement is written to `path`, by default the output path with the suffix
    `.intoto.json`. `key` is the file of a private key to sign it with. With `timestamp`, both statements record when
    the model was written, so no two runs produce the same bytes.
    """

    path: Path | None = None
    key: Path | None = None
    timestamp: bool = False
    written: bool = True

    def target(self, output: Path) -> Path:
        """Return the path of the statement about an output."""
        return self.path if self.path is not None else output.with_name(output.name + SUFFIX)

    def check(self, output: Path | None, weights: storage.Weights, *, force: bool) -> None:
        """Raise OutputError or UsageError if the statement could not be written or signed.

        `output` is the model file, if one is written, and `weights` are those of the input, which must not be
        overwritten.
        """
        if self.written:
            if output is None:
                raise UsageError("there is no output for a statement", todo="name one with -o FILE")
            target = storage.check_target(self.target(output), force=force)
            if target == output.resolve():
                raise UsageError(f"'{target.name}' is the model itself", todo="name another file for the statement")
            if storage.is_data_of(target, output):
                todo = "name another file for the statement"
                raise UsageError(f"'{target.name}' is the name of external data of the model", todo=todo)
            spare_input(target, weights)
        if self.key is not None:
            signing.read_private(self.key)


def save(
    proto: onnx.ModelProto,
    path: str | Path,
    stored: storage.StoredModel,
    made: Made | None,
    sidecar: Sidecar | None = None,
    *,
    layout: storage.Layout = "keep",
    force: bool = False,
) -> list[Path]:
    """Write a model made from `stored`, with a statement if `made` is given. Return its files.

    Raises the errors of `storage.save`, and UsageError for an unreadable key.
    """
    if made is None:
        bare = proto if statement.carried(proto) is None else statement.embed(proto, None)
        return storage.save(bare, path, stored.weights, layout=layout, force=force)
    if sidecar is not None:
        sidecar.check(Path(path), stored.weights, force=force)
    digest_weights(stored, proto)
    before = statement.carried(stored.proto)
    origin = statement.Origin(
        made.recipe,
        identity_of(stored),
        made.steps,
        made.end,
        statement.digest_of_text(before) if before is not None else None,
        {"finishedOn": _now()} if sidecar is not None and sidecar.timestamp else {},
    )
    output = identify(proto, stored.weights)
    found = statement.brief(origin, output)
    if before is not None and sidecar is None and made.is_idle and statement.repeats(before, found):
        found = json.loads(before)  # the same run on its own result: what made the model is what made it before
    model = statement.embed(proto, found)
    files = storage.save(model, path, stored.weights, layout=layout, force=force)
    written = Path(path).with_name(files[0].name) if storage.is_by_content(Path(path)) else Path(path)
    if sidecar is not None and sidecar.written:
        longer = statement.full(origin, output, files)
        text = json.dumps(longer, indent=2, ensure_ascii=True) + "\n"
        signed = text if sidecar.key is None else signing.sign(text, sidecar.key)
        storage.write_texts({sidecar.target(written): signed})
    return files


def digest_weights(stored: storage.StoredModel, proto: onnx.ModelProto) -> None:
    """Compute the digests of the weights of a model and of one made from it, so that `save` need not compute them.

    Raises ModelFileError if the weight file no longer exists.
    """
    digest_all([*storage.all_tensors(stored.proto), *storage.all_tensors(proto)], stored.weights)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
