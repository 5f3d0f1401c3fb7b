"""Lineage: which passes made a node, and from which nodes of the original model.

It is in the metadata of a node, or of an initializer, under two keys:

    surgery.pass   fuse-conv-bn, fuse-relu     the passes, each once, the latest one last
    surgery.from   ["conv1","bn1",12]          the nodes, as a JSON list; a number: at least so many more

The nodes are those of the original model. What comes from a node that has a lineage itself takes over the origins and
the passes of that one, so that a chain of passes leads back to where it began. A node without a name is called by
what it computes, "Relu -> y". A Constant is no origin, for it computes nothing. What is not known is left out: without
`surgery.from` nothing is said of where a node comes from.

The names of one list have at most `MOST_LETTERS` letters together, so that the metadata grow with the number of the
nodes and no faster, however many nodes one pass makes of however many.

ONNX has the fields since IR version 10. The checker and ONNX Runtime read past them in a model of a lower version
(tried from 3 on), so that no model must be raised for them.
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
    """The passes that a node went through, in order, and the original nodes that it stands for.

    Next to `origins` there are at least `more` others, which are not listed.
    """

    passes: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    more: int = 0

    def write(self, metadata: MutableMapping[str, str]) -> None:
        """Put it into the metadata of a node or a tensor, in place of what was there."""
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
    """Return the lineage that metadata tell, None when they tell none."""
    if PASS_KEY not in metadata and FROM_KEY not in metadata:
        return None
    passes = tuple(name for name in metadata.get(PASS_KEY, "").split(_BETWEEN) if name)
    origins, more = _origins(metadata.get(FROM_KEY, ""))
    return Lineage(passes, origins, more)


def _origins(text: str) -> tuple[tuple[str, ...], int]:
    """Read a list of origins. Text that somebody else wrote there is taken for the name of one node."""
    try:
        items = json.loads(text) if text else []
    except (ValueError, RecursionError):
        items = None
    if not isinstance(items, list):
        return (text,), 0
    names = tuple(item for item in items if isinstance(item, str))
    return names, max((item for item in items if type(item) is int and item > 0), default=0)


def derive(parents: Iterable[Lineage], by: str) -> Lineage:
    """Return the lineage of what the pass `by` makes of the parents."""
    known = list(parents)
    passes = dict.fromkeys(name for parent in known for name in parent.passes if name != by)
    # The first origin of each parent goes before the second of any: it is the one that matters most.
    turns = zip_longest(*(parent.origins for parent in known))
    names = dict.fromkeys(name for turn in turns for name in turn if name is not None)
    # Parents may have in common what they do not list, so that only the largest number is certain.
    total = max((len(names), *(len(parent.origins) + parent.more for parent in known)))
    listed = _fitting(names)
    return Lineage((*passes, by) if by else tuple(passes), listed, total - len(listed))


def _fitting(names: Iterable[str]) -> tuple[str, ...]:
    """Take as many names, from the first on, as there is room for."""
    listed = tuple(names)
    room = MOST_LETTERS
    for position, name in enumerate(listed):
        room -= len(name)
        if room < 0:
            return listed[:position]
    return listed
