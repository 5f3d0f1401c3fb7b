"""Lineage: which passes made a node, and from which nodes of the original model.

It is stored in the metadata of a node or an initializer, under two keys:

    surgery.pass   fuse-conv-bn, fuse-relu     the passes, each once, the latest one last
    surgery.from   ["conv1","bn1",12]          the nodes, as a JSON list; a number means at least this many more

The nodes are those of the original model. A node made from a node that has a lineage itself inherits the origins and
passes of that lineage, so a chain of passes leads back to the original model. A node without a name is identified by
its operator and outputs, "Relu -> y". A Constant is not an origin, because it computes nothing. Unknown facts are left
out: without `surgery.from`, the origin of a node is unknown.

The names of one list have at most `MOST_LETTERS` letters in total, so the metadata grows linearly with the number of
nodes, however many nodes a pass makes from however many.

ONNX has the metadata fields since IR version 10. The checker and ONNX Runtime ignore them in models of lower versions
(tested from 3 on), so the IR version of a model need not be raised for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from itertools import zip_longest

PASS_KEY = "surgery.pass"
FROM_KEY = "surgery.from"
KEYS = (PASS_KEY, FROM_KEY)
MOST_LETTERS = 400

_BETWEEN = ", "
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Lineage:
    """The passes that made a node, in order, and the original nodes that it comes from.

    Besides `origins` there are at least `more` others, which are not listed.
    """

    passes: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    more: int = 0

    def write(self, metadata: MutableMapping[str, str]) -> None:
        """Write the lineage to the metadata of a node or a tensor, replacing any previous one."""
        strip(metadata)
        if self.passes:
            metadata[PASS_KEY] = _BETWEEN.join(self.passes)
        if self.origins or self.more:
            metadata[FROM_KEY] = _encode([*self.origins, self.more] if self.more else self.origins)


def strip(metadata: MutableMapping[str, str]) -> None:
    """Remove the lineage from the metadata of a node or a tensor, and nothing else."""
    for key in KEYS:
        metadata.pop(key, None)


def read(metadata: Mapping[str, str]) -> Lineage | None:
    """Return the lineage in the metadata, or None."""
    if PASS_KEY not in metadata and FROM_KEY not in metadata:
        return None
    passes = tuple(name for name in metadata.get(PASS_KEY, "").split(_BETWEEN) if name)
    origins, more = _origins(metadata.get(FROM_KEY, ""))
    return Lineage(passes, origins, more)


def _origins(text: str) -> tuple[tuple[str, ...], int]:
    """Read a list of origins. Text in any other format is taken as the name of one node."""
    try:
        items = json.loads(text) if text else []
    except (ValueError, RecursionError):
        items = None
    if not isinstance(items, list):
        return (text,), 0
    names = tuple(item for item in items if isinstance(item, str))
    return names, max((item for item in items if type(item) is int and item > 0), default=0)


def derive(parents: Iterable[Lineage], by: str) -> Lineage:
    """Return the lineage of a node that the pass `by` makes from the parents."""
    known = list(parents)
    passes = dict.fromkeys(name for parent in known for name in parent.passes if name != by)
    # The first origins of all parents precede any second origin, because they matter most.
    turns = zip_longest(*(parent.origins for parent in known))
    names = dict.fromkeys(name for turn in turns for name in turn if name is not None)
    # Parents may share unlisted origins, so only the largest number is certain.
    total = max((len(names), *(len(parent.origins) + parent.more for parent in known)))
    listed = _fitting(names)
    return Lineage((*passes, by) if by else tuple(passes), listed, total - len(listed))


def _fitting(names: Iterable[str]) -> tuple[str, ...]:
    """Return the longest prefix of the names that fits in `MOST_LETTERS` letters."""
    listed = tuple(names)
    room = MOST_LETTERS
    for position, name in enumerate(listed):
        room -= len(name)
        if room < 0:
            return listed[:position]
    return listed
