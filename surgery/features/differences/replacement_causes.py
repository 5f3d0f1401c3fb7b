"""Causes: why nodes exist in one model only, and what replaces them in the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from surgery.base.operators.traits import RANDOM
from surgery.features.differences.alterations import altered
from surgery.features.differences.compared_model import Side, Value
from surgery.features.differences.matching import Matching, instead
from surgery.features.differences.node_differences import Cause, Correspondence, Lone, ReplacedNodes
from surgery.model.proto.lineage_entries import CONSTANT, LineageEntry

_FAR = 64
"""Maximum number of removed nodes upstream of a removed node that are searched for the value read instead of it."""


def correspondence(matching: Matching) -> Correspondence:
    """Return the correspondence of the nodes, with a cause for each node that exists in one model only.

    The cause of an added node is found as if it were removed on the way back from the second model to the first.
    """
    gone = _Causes(matching, matching.before, matching.after)
    come = _Causes(matching, matching.after, matching.before)
    groups = (
        replace(group, dropped=tuple(gone.dropped[group]), brought=tuple(come.dropped[group]))
        for group in matching.groups
    )
    return Correspondence(altered(matching), tuple(groups), gone.found(), come.found())


_MOST_HEADS = 4
"""Maximum number of changes that are recorded as having needed a node."""

Head = ReplacedNodes | LineageEntry
"""A change that removes other nodes too: a group, a node removed for its own cause, or a node that lost an operand."""


class _Causes:
    """The causes of the open nodes of one side, which are described as removed nodes.

    `dropped` lists, for each change, the nodes that only this change needed. A change is a group, a node that is in
    both models, or a node that was removed for its own cause.
    """

    def __init__(self, matching: Matching, side: Side, other: Side) -> None:
        self.side, self.other, self.matching = side, other, matching
        self.lone = dict.fromkeys(entry for entry in side.open if entry.op != CONSTANT)
        self.instead = instead(matching, side, other)
        self.needed = _needed(side)
        self.kept = {matching.computed[e]: e for e in matching.computed if e in matching.twins and e in side.reads}
        self.causes: dict[LineageEntry, Cause] = {}
        # For a node removed together with its readers: the changes that the readers belong to.
        self.heads: dict[LineageEntry, tuple[Head, ...]] = {}
        self.dropped: dict[Head, list[LineageEntry]] = defaultdict(list)
        self._judge_all()

    def found(self) -> tuple[Lone, ...]:
        """List the nodes in order, without those removed as part of another change."""
        return tuple(
            Lone(entry, self.causes[entry], self._told(entry), tuple(self.dropped[entry]), self._needed_by(entry))
            for entry in self.lone
            if not self._goes_along(entry)
        )

    def _judge_all(self) -> None:
        """Find the causes; readers are visited before the nodes they read, and bodies after their owners."""
        inside = []
        for entry in reversed(self.lone):
            around = self._around(entry)
            if around is not None:
                inside.append((entry, around))
            else:
                self.causes[entry] = self._cause(entry)
                if self.causes[entry] == "unneeded":
                    found = dict.fromkeys(head for user in self._users(entry) for head in self._heads(user))
                    self.heads[entry] = tuple(islice(found, _MOST_HEADS))
        for entry, around in inside:
            self.causes[entry], self.heads[entry] = "unneeded", self._heads(around)
        for entry in self.lone:
            if self._goes_along(entry):
                self.dropped[self.heads[entry][0]].append(entry)

    def _goes_along(self, entry: LineageEntry) -> bool:
        """Return whether a node was needed by exactly one change and is removed with it."""
        heads = self.heads.get(entry, ())
        return len(heads) == 1 and heads[0] not in self.matching.twins

    def _heads(self, user: LineageEntry) -> tuple[Head, ...]:
        """Return the changes that a node belongs to."""
        if user in self.lone:
            return self.heads.get(user, (user,))
        return (self.matching.group_of.get(user, user),)

    def _needed_by(self, entry: LineageEntry) -> tuple[str, ...]:
        """Name the changes that needed a node that is unneeded now."""
        return tuple(str(head) if isinstance(head, LineageEntry) else head.kind for head in self.heads.get(entry, ()))

    def _around(self, entry: LineageEntry) -> LineageEntry | None:
        """Return the outermost enclosing node that is not in both models, if any."""
        found, scope = None, entry.scope
        while scope in self.side.owners:
            owner = self.side.owners[scope]
            found, scope = found if owner in self.matching.twins else owner, owner.scope
        return found

    def _users(self, entry: LineageEntry) -> Iterator[LineageEntry]:
        return (self._around(user) or user for user in self.side.using(entry))

    def _cause(self, entry: LineageEntry) -> Cause:
        if entry not in self.needed:
            return "dead"
        now = self._now(entry)
        if now is not None and self.other.is_constant(now):
            return "constant"
        if entry.op not in RANDOM and entry not in self.side.bearers and self.matching.computed[entry] in self.kept:
            return "duplicate"
        if now is not None:
            return "bypassed" if self._is_above(entry, now) else "replaced"
        if self._is_in_lost_function(entry):
            return "unneeded"
        unknown = self.side.given_back(entry) or any(self.causes.get(user) == "other" for user in self._users(entry))
        return "other" if unknown else "unneeded"

    def _is_in_lost_function(self, entry: LineageEntry) -> bool:
        root = entry.scope
        while root in self.side.owners:
            root = self.side.owners[root].scope
        return root not in self.other.scopes

    def _is_above(self, entry: LineageEntry, now: Value) -> bool:
        """Return whether a value replaces an operand of a node, or of removed nodes upstream of it."""
        maker, _ = self.other.makers.get(now, (None, 0))
        group = self.matching.group_of.get(maker) if maker is not None else None
        pending, seen = [entry], {entry}
        while pending and len(seen) < _FAR:
            for value in self.side.reads[pending.pop()]:
                if value is None:
                    continue
                above, _ = self.side.makers.get(value, (None, 0))
                if self._counterpart(value) == now:
                    return True
                if above is not None and group is not None and self.matching.group_of.get(above) is group:
                    return True
                if above in self.lone and above not in seen:
                    seen.add(above)
                    pending.append(above)
        return False

    def _now(self, entry: LineageEntry) -> Value | None:
        """Return the counterpart of the first result of a node that has one."""
        found = (self._counterpart(value) for value in self.side.outputs[entry] if value is not None)
        return next((value for value in found if value is not None), None)

    def _counterpart(self, value: Value) -> Value | None:
        """Return the value of the other model that takes the position of this one."""
        if value in self.side.makers:
            maker, number = self.side.makers[value]
            twin = self.matching.twins.get(maker)
            if twin is not None and number < len(self.other.outputs[twin]):
                return self.other.outputs[twin][number]
        same = self._scoped(value)
        if same in self.other.makers or same in self.other.initializers or same in self.other.inputs:
            return same
        return self.instead.get(value)

    def _scoped(self, value: Value) -> Value:
        return self.matching.scope_between(self.side, value[0]), value[1]

    def _told(self, entry: LineageEntry) -> str:
        """Name the replacement of a node."""
        if self.causes[entry] == "duplicate":
            twin = self.matching.twins[self.kept[self.matching.computed[entry]]]
            return str(twin)
        value = self._now(entry)
        if value is None:
            return ""
        maker, _ = self.other.makers.get(value, (None, 0))
        if maker is not None and maker.op != CONSTANT:
            return str(maker)
        kind = "constant" if self.other.is_constant(value) else "input" if value in self.other.inputs else "value"
        return f"{kind} '{value[1]}'"


def _needed(side: Side) -> set[LineageEntry]:
    """Return the nodes that contribute to an output of the model or of one of its functions."""
    pending = [
        side.makers[value][0]
        for value, given in side.results.items()
        if value in side.makers and any(scope not in side.owners for scope, _ in given)
    ]
    given: dict[LineageEntry, list[Value]] = {}
    for value, places in side.results.items():
        for scope, _ in places:
            if scope in side.owners:
                given.setdefault(side.owners[scope], []).append(value)
    found = set(pending)
    while pending:
        entry = pending.pop()
        for value in (*side.reads[entry], *given.get(entry, ())):
            maker, _ = side.makers.get(value, (None, 0)) if value is not None else (None, 0)
            if maker is not None and maker not in found:
                found.add(maker)
                pending.append(maker)
    return found
