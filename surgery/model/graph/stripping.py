"""Stripping: removing what describes the parts of a model and computes nothing, wherever it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

from surgery.base.errors import UsageError
from surgery.base.operators.subgraphs import nodes
from surgery.model import storage
from surgery.model.graph.state import GraphState, Site
from surgery.model.wire.descriptions import ENTRIES, PRODUCER, described
from surgery.model.wire.globs import Globs, did_you_mean

_OWN = "surgery."
"""The beginning of the keys that surgery writes."""
READ_BY_RUNTIMES = ("ort_config", "layer_ann")
"""Keys of entries that change a run: ONNX Runtime reads session options and the device of a node from them."""


def strip_descriptions(
    graph: GraphState, *, keep: Sequence[str], docs: bool, producer: bool, node_names: bool, provenance: bool
) -> None:
    """Remove metadata entries, doc strings, the producer and names of nodes, as the only site of a pass.

    `keep` has the keys of entries to keep, as names or globs; a name that no entry has raises UsageError. Entries of
    surgery go only with `provenance`. All parts of the model are searched except training information, which no pass
    changes.
    """
    with storage.Weights() as own:
        weights = graph.weights if graph.weights is not None else own
        model = storage.proto_from_ir(graph.ir, weights)
        holders = list(described(model))
        _check(keep, {entry.key for holder in holders for entry in getattr(holder, ENTRIES, ())})
        kept = Globs((*keep, *READ_BY_RUNTIMES, *(() if provenance else (f"{_OWN}*",))))
        fields = chain(
            ((holder, "doc_string") for holder in holders if docs),
            ((model, name) for name in PRODUCER if producer),
            ((node, "name") for node in nodes(model) if node_names),
        )
        # Each list is complete before the first change.
        changed = [_cleared(fields), *[_left(holder, kept.fit) for holder in holders]]
        if not any(changed):
            return
        skipped = 1 in graph.skip
        graph.sites.append(Site(1, "", (), (), skipped=skipped))
        if not skipped:
            graph.adopt(storage.ir_from_proto(model, weights))


def _check(keep: Sequence[str], known: Iterable[str]) -> None:
    """Raise UsageError for a key that no entry has: a misspelt one would lose what it was to keep."""
    there = set(known)
    missing = next((key for key in keep if key not in there and not {*"*?"} & {*key}), None)
    if missing is not None:
        hint = did_you_mean(missing, sorted(there)) or f"write '{missing}*' if only some models have it"
        raise UsageError(f"no metadata has the key '{missing}' that is to be kept", todo=hint)


def _cleared(fields: Iterable[tuple[Any, str]]) -> bool:
    """Clear fields of messages, and return whether one was set."""
    found = [(message, name) for message, name in fields if getattr(message, name)]
    for message, name in found:
        message.ClearField(name)
    return bool(found)


def _left(holder: Any, keeps: Callable[[str], bool]) -> bool:
    """Remove the entries of a message that are not kept, and return whether there were any."""
    entries: Any = getattr(holder, ENTRIES, ())
    staying = [(entry.key, entry.value) for entry in entries if keeps(entry.key)]
    if len(staying) == len(entries):
        return False
    del entries[:]
    for key, value in staying:
        entries.add(key=key, value=value)
    return True
