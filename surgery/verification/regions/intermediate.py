"""Evidence from intermediate values when outputs prove nothing.

An output that is saturated, vanishing or constant agrees whatever happens before it. Then values inside the two models
are compared: those downstream of each changed node that have the same name in both models, the nearest first. A value
that is itself vacuous shows nothing, so others further downstream are tried.

A value that differs is a difference of the models if a vacuous output depends on it, with two exceptions. A later value
may agree that would differ in the original if the original had the changed model's value: then the changed model
compensates for the difference. Or the name may now refer to something else: a tool that fuses two nodes may give the
result the name of the first. Then the changed model's value is one of the next values of the original.

What is left open is tried by `upstream` on generated values. Every changed or removed node that a vacuous output
depends on must lie upstream of a value that agrees and is not vacuous; for any other such node, the result is that
nothing is shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from surgery.model.proto.dataflow import Flow
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.fingerprint import ModelRelation, trace
from surgery.verification.regions.inner_values import InnerComparison, Inside
from surgery.verification.regions.upstream import RegionTrials, UpstreamRegion

if TYPE_CHECKING:
    import onnx

ROUNDS = (1, 3, 9, 27)
"""Number of values downstream of a node that are tried in each round, until one shows something."""

MOST = 32
"""Maximum number of values compared in a round. If more sites are changed, the values are spread evenly over them;
sites left without a value get the next rounds."""

HEIRS = 8
"""Number of values of the original that a name may refer to after a rewrite: the nearest after its former value."""


@dataclass(frozen=True)
class InnerEvidence:
    """The evidence from inside two models.

    `agreeing` are the intermediate values that agree and are not vacuous, `drawn` the outputs that agree when the nodes
    upstream of them are given other values; `needed` is the smallest tolerance that covers all of them, None if all
    bits agree. `differing` is the verdict on a value that differs. `open` names the nodes that no conclusive value
    depends on.
    """

    empty: str
    changed: bool = True
    agreeing: tuple[str, ...] = ()
    drawn: tuple[str, ...] = ()
    needed: Mapping[str, float] | None = None
    differing: Verdict | None = None
    open: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether all changes are shown to compute the same."""
        return self.differing is None and not self.open

    def amend(self, verdict: Verdict) -> Verdict:
        """Return the verdict on the models, given the verdict on their outputs."""
        if self.differing is not None:
            message = f"the outputs prove nothing ({self.empty}), but {self.differing.message}"
            return replace(self.differing, message=message)
        if self.open:
            message = f"the outputs do not depend on {_some(self.open)}: {self.empty}"
            return replace(verdict, status=Status.UNVERIFIED, reason="vacuous", needed=None, message=message)
        message = f"{verdict.message}; the outputs prove nothing ({self.empty}); {self._evidence()}"
        if self.needed is None:
            return replace(verdict, message=message)
        return replace(verdict, status=Status.CLOSE, needed=_largest([verdict.needed, self.needed]), message=message)

    def _evidence(self) -> str:
        found = []
        if self.agreeing:
            one = len(self.agreeing) == 1
            found.append(f"{len(self.agreeing)} intermediate value{'' if one else 's'} at the changed nodes ")
            found[-1] += "agrees" if one else "agree"
        if self.drawn:
            agree = "agrees" if len(self.drawn) == 1 else "agree"
            found.append(f"{_some([repr(name) for name in self.drawn])} {agree} for other values before the change")
        return " and ".join(found) if self.changed else "they do not depend on changed nodes"


def examine(original: bytes, candidate: bytes, setting: InnerComparison) -> InnerEvidence:
    """Compare the values inside two models whose outputs agree, although some of these prove nothing."""
    import onnx

    models = onnx.load_model_from_string(original), onnx.load_model_from_string(candidate)
    return _Examination(*models, setting).run()


class _Examination:
    def __init__(self, original: onnx.ModelProto, candidate: onnx.ModelProto, setting: InnerComparison) -> None:
        self.models = (original, candidate)
        self.setting = setting
        self.agreeing: dict[str, Verdict] = {}
        self.differing: dict[str, Verdict] = {}
        self.renamed: dict[str, str] = {}
        self.clearing: set[str] = set()
        self.regions: list[UpstreamRegion] = []
        self._trace()

    def _trace(self) -> None:
        self.lineage: ModelRelation = trace(*self.models, self.renamed)
        self.before, self.after = self.lineage.before, self.lineage.after
        self.changed = self.lineage.changed & self.after.above(self.setting.vacuous)
        self.removed = self.lineage.removed & self.before.above(self.setting.vacuous)

    def run(self) -> InnerEvidence:
        if self.changed or self.removed:
            self.inside = Inside(*self.models, set(self.before.producers), self.setting)
            self.left = (self.inside.eligible & self.lineage.common) - set(self.before.outputs)
            for count in ROUNDS:
                wrong, wanted = self._wrong(), self._wanted(count)
                self._compare(wanted)
                if not wanted or set(wrong) & set(self._wrong()):
                    # Nothing is left to try, or the next values have not cleared one that differs.
                    break
            self._rename()
            targets = self._downstream_of_open()
            if targets and not self._wrong():
                self.regions = RegionTrials(self.models, self.lineage, set(self.agreeing), self.inside).find(targets)
        return self._result()

    def _compare(self, names: Sequence[str]) -> None:
        if not names:
            return
        self.left -= set(names)
        found = self.inside.compare(names)
        self.agreeing |= {name: verdict for name, verdict in found.items() if verdict.passed}
        self.differing |= {name: verdict for name, verdict in found.items() if not verdict.passed}
        below = self.after.below(self.differing)
        later = [name for name in self.agreeing if self.after.producers[name] in below]
        if later:
            self.clearing = self.inside.clearing(list(self.differing), later)

    def _rename(self) -> None:
        """Find the original values that differing names now refer to, in the order of the changed model."""
        for name in sorted(self._wrong(), key=self.after.producers.__getitem__):
            later = _downstream(self.before, self.before.readers[name], self.inside.eligible, HEIRS)
            heir = self.inside.heir(name, later)
            if heir is None:
                break
            self.renamed[name] = heir
        if self.renamed:
            self._trace()

    def _wanted(self, count: int) -> list[str]:
        """Return the values to compare next: the nearest downstream of open nodes and of differing values."""
        new, gone = (self.changed, self.removed) if count == 1 else self._open()
        starts = [(self.after, [number]) for number in _spread(sorted(new))]
        starts += [(self.before, [number]) for number in _spread(sorted(gone))]
        starts += [(self.after, self.after.readers[name]) for name in self._wrong()]
        found = {name for flow, numbers in starts for name in _downstream(flow, numbers, self.left, count)}
        return _spread(sorted(found, key=self.after.producers.__getitem__))

    def _open(self) -> tuple[set[int], set[int]]:
        """Return the changed and the removed nodes that no conclusive value depends on."""
        sound = {name for name in self.after.outputs if name not in self.setting.vacuous} | set(self.agreeing)
        new = self.changed - self.after.above(sound | set(self.renamed))
        gone = self.removed - self.before.above(sound | set(self.renamed.values()))
        for region in self.regions:
            new -= region.after
            gone -= region.before
        return new, gone

    def _downstream_of_open(self) -> set[str]:
        """Return the vacuous outputs that depend on open nodes."""
        new, gone = self._open()
        found = {t for t in self.setting.vacuous if self.after.above([t]) & new}
        return found | {t for t in self.setting.vacuous if self.before.above([t]) & gone}

    def _wrong(self) -> list[str]:
        """Return the differing values that a vacuous output depends on, other than through a value that clears them."""
        reaching = self.after.above(self.setting.vacuous, stop=self.clearing | set(self.renamed))
        return [n for n in self.differing if n not in self.renamed and self.after.producers[n] in reaching]

    def _is_doubtful(self, name: str) -> bool:
        """Return whether a value differs but all values computed from it agree: a Relu may make its sign irrelevant."""
        made = [self.after.makes(number) for number in self.after.readers[name]]
        return all(any(value in self.agreeing for value in values) for values in made)

    def _result(self) -> InnerEvidence:
        new, gone = self._open()
        wrong = self._wrong()
        sure = [name for name in wrong if self.lineage.related and not self._is_doubtful(name)]
        close = [verdict.needed for verdict in self.agreeing.values() if verdict.status is Status.CLOSE]
        return InnerEvidence(
            "; ".join(f"'{name}' {why}" for name, why in sorted(self.setting.vacuous.items())),
            changed=bool(self.changed or self.removed),
            agreeing=(*self.agreeing, *self.renamed),
            drawn=tuple(sorted({name for region in self.regions for name in region.outputs})),
            needed=_largest([*close, *(region.needed for region in self.regions)]),
            differing=self.differing[sure[0]] if sure else None,
            open=(
                *(_label(self.after, number) for number in sorted(new)),
                *(f"the removed {_label(self.before, number)}" for number in sorted(gone)),
                *(f"'{name}', which differs" for name in wrong),
            ),
        )


def _downstream(flow: Flow, starts: Iterable[int], wanted: Container[str], count: int) -> list[str]:
    """Return up to `count` of the wanted values that nodes influence, the nearest first."""
    pending = deque(starts)
    seen = set(pending)
    found: list[str] = []
    while pending and len(found) < count:
        made = flow.makes(pending.popleft())
        found += [name for name in made if name in wanted]
        further = [number for name in made for number in flow.readers.get(name, []) if number not in seen]
        seen.update(further)
        pending.extend(dict.fromkeys(further))
    return found


def _largest(tolerances: Iterable[Mapping[str, float] | None]) -> Mapping[str, float] | None:
    """Return the smallest tolerance that covers all tolerances; None if there are none."""
    known = [tolerance for tolerance in tolerances if tolerance is not None]
    return {name: max(tolerance[name] for tolerance in known) for name in known[0]} if known else None


def _spread(items: list[Any]) -> list[Any]:
    """Thin out a list evenly, keeping the last item."""
    if len(items) <= MOST:
        return items
    return [items[round(i * (len(items) - 1) / (MOST - 1))] for i in range(MOST)]


def _label(flow: Flow, number: int) -> str:
    node = flow.nodes[number]
    op = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    return f"'{node.name}' ({op})" if node.name else f"{op} '{next(iter(flow.makes(number)), '')}'"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
