"""Checkpoints in several files, listed in an index next to them, as written by transformers.

`model.safetensors.index.json` and `pytorch_model.bin.index.json` have a `weight_map` from tensors to files.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from surgery.base.errors import ModelFileError
from surgery.model.checkpoints.named_tensors import DAMAGED, Checkpoint
from surgery.model.checkpoints.safetensors import unique


def read(path: Path, read_shard: Callable[[Path], Checkpoint]) -> Checkpoint:
    """Read an index and the headers of the files that it lists, which are in the same folder."""
    places = _places(path)
    shards = {name: read_shard(_next_to(path, name)) for name in dict.fromkeys(places.values())}
    for name, shard in places.items():
        if name not in shards[shard].entries:
            raise ModelFileError(
                f"'{name}' is not in {shard}, although the index lists it there", where=str(path), todo=DAMAGED
            )
    aliases = {
        name: shards[shard].aliases[name]
        for name, shard in places.items()
        if places.get(shards[shard].aliases.get(name)) == shard
    }
    weights = next(iter(shards.values())).weights if shards else None
    if weights is None:
        raise ModelFileError("the index names no files", where=str(path), todo=DAMAGED)
    entries = {name: shards[shard].entries[name] for name, shard in places.items()}
    return Checkpoint(path, entries, weights, aliases)


def names(path: Path) -> list[str]:
    """Return the names of the files that an index lists. Raises ModelFileError."""
    return sorted({_next_to(path, name).name for name in _places(path).values()})


def _places(path: Path) -> dict[Any, Any]:
    """Return the file of each tensor."""
    try:
        places = json.loads(path.read_bytes(), object_pairs_hook=lambda pairs: unique(path, pairs))["weight_map"]
        dict.fromkeys(places.values())
        return dict(places)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ModelFileError("this is not an index of safetensors or PyTorch files", where=str(path)) from error


def _next_to(path: Path, name: Any) -> Path:
    if not isinstance(name, str) or Path(name).name != name or name.endswith(".index.json"):
        raise ModelFileError(f"the shard '{name}' is not a plain file name", where=str(path), todo="do not trust it")
    if not (path.parent / name).is_file():
        raise ModelFileError(f"the shard {name} is missing", where=str(path), todo=f"put it into {path.parent}")
    return path.parent / name
