"""The outcomes of the steps of a session, in the form that people and pages read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from surgery.base.json_record import Record
from surgery.engine.recipe.schema import PassStep, RepeatStep, Step
from surgery.features.workbench.live_run import EndedRun, StepRun
from surgery.features.workbench.node_changes import MOST_NODES, NodeChanges
from surgery.features.workbench.step_texts import StepText

if TYPE_CHECKING:
    import onnx

    from surgery.engine.pipeline.records import StepRecord
    from surgery.engine.pipeline.sensitivity import Sensitivity
    from surgery.verification.comparing.details import Element, Verdict

_MOST_PLACES = 40
"""Maximum number of places that a step left as they are, and of which the reason is listed."""

_MOST_REASONS = 12
_MOST_NAMES = 5
"""Maximum number of nodes that are named for one reason."""


@dataclass(frozen=True)
class LeftPlaces(Record, keys="pass=name why count nodes=first_nodes"):
    """The places that one pass of a step left as they are for one reason."""

    name: str
    why: str
    nodes: tuple[str, ...]

    @property
    def count(self) -> int:
        """The number of the nodes."""
        return len(self.nodes)

    @property
    def first_nodes(self) -> tuple[str, ...]:
        """The nodes that pages name."""
        return self.nodes[:_MOST_NAMES]


_KEYS = """
    number title text on status verdict=verdict.status region=verdict.region tolerance seconds:4 cached sites message
    nodes changed left=left_places
"""


@dataclass(frozen=True)
class SessionStep(Record, keys=_KEYS):
    """A step of a session, and its outcome.

    `status` is that of its record, "off" if the step is switched off, and "waiting" if it did not run because an
    earlier step was refused. `records` has one record for each pass that ran, and `nodes` counts those of the model
    after it.
    """

    number: int
    title: str
    text: str
    on: bool
    status: str
    records: tuple[StepRecord, ...] = field(default=(), repr=False)
    changed: NodeChanges = field(default=NodeChanges(), repr=False)
    nodes: int | None = None

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the last change that it made, if it was verified."""
        found = [record.verdict for record in self.records if record.verdict is not None]
        return found[-1] if found else None

    @property
    def seconds(self) -> float:
        """The duration of its run; a step that is replayed takes next to none."""
        return sum(record.seconds for record in self.records)

    @property
    def tolerance(self) -> float | None:
        """The largest share of the tolerance that it needed; None if nothing was compared."""
        verdicts = [record.verdict for record in self.records if record.verdict is not None]
        factors = [verdict.needed.get("factor") for verdict in verdicts if verdict.needed is not None]
        return max((factor for factor in factors if factor is not None), default=None)

    @property
    def message(self) -> str:
        """What the pass and the verdict say, one line each."""
        lines = [record.message for record in self.records if record.message]
        if self.status == "unchanged" and not lines:
            lines = [f"{one.anchor}: {one.reason}" for record in self.records for one in record.refusals[:3]]
        return "\n".join(dict.fromkeys(lines))

    @property
    def left(self) -> tuple[tuple[str, str], ...]:
        """The places that it left as they are, each a node with the reason: those that the budget spares come first."""
        spared = ((one.site.anchor, f"it needs {_share(one.use)} of the budget alone") for one in self._kept)
        refused = ((one.anchor, one.reason) for record in self.records for one in record.refusals)
        return tuple(dict.fromkeys((*spared, *refused)))

    @property
    def left_by_reason(self) -> tuple[LeftPlaces, ...]:
        """The places that it left as they are, for each pass and reason; the most frequent reason comes first."""
        found: dict[tuple[str, str], dict[str, None]] = {}
        for record in self.records:
            for kept in record.kept:
                found.setdefault((record.name, "it exceeds the accuracy budget"), {})[kept.site.anchor] = None
            for one in record.refusals:
                found.setdefault((record.name, one.reason), {})[one.anchor] = None
        groups = (LeftPlaces(name, why, tuple(nodes)) for (name, why), nodes in found.items())
        return tuple(sorted(groups, key=lambda group: -len(group.nodes)))

    @property
    def _kept(self) -> Iterable[Sensitivity]:
        return (one for record in self.records for one in record.kept)

    @property
    def left_places(self) -> Mapping[str, Any]:
        """The number of places that it left as they are, the first of them, and the most frequent reasons."""
        return {
            "count": len(self.left),
            "places": [{"node": node, "why": why} for node, why in self.left[:_MOST_PLACES]],
            "reasons": self.left_by_reason[:_MOST_REASONS],
        }

    @property
    def cached(self) -> bool:
        """Whether its records are all from the cache."""
        return bool(self.records) and all(record.cached for record in self.records)

    @property
    def sites(self) -> int:
        """The number of places that it changed."""
        return sum(record.sites for record in self.records)


@dataclass(frozen=True)
class RefusedStep(Record, keys="title text message line value nodes=first_nodes"):
    """Why a step was refused, and where: `value` is the offending one, if it was compared, and `nodes` where it lies.

    `line` is the line of the step in the recipe.
    """

    title: str
    text: str
    message: str
    line: int
    value: Element | None = None
    nodes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.title}: {self.message}"

    @property
    def first_nodes(self) -> tuple[str, ...]:
        """The nodes that pages name."""
        return self.nodes[:MOST_NODES]


def title_of(step: Step | None, text: StepText) -> str:
    """Return the name of the pass of a step, or what else it does; of a step that is off, as far as its text says."""
    if step is None:
        line = next(line for line in text.text.split("\n") if line.startswith("-"))
        return line.removeprefix("-").removeprefix(" pass:").strip(" :'\"")
    if isinstance(step, PassStep):
        return step.name
    if isinstance(step, RepeatStep):
        return f"repeat {step.times if step.times is not None else 'until-stable'}"
    return f"use {step.recipe.name}"


def outcome(number: int, step: Step | None, text: StepText, ran: StepRun | None) -> SessionStep:
    """Return a step with its outcome; one that did not run is off, or waits for an earlier one."""
    if ran is None:
        return SessionStep(number, title_of(step, text), text.text, text.on, "waiting" if text.on else "off")
    return SessionStep(
        number,
        title_of(step, text),
        text.text,
        text.on,
        _status(ran.records),
        ran.records,
        ran.changed,
        ran.after.nodes,
    )


def refused_step(step: Step, text: StepText, refused: EndedRun) -> RefusedStep:
    """Return why a step was refused."""
    failed = refused.records[-1]
    details = failed.verdict.details if failed.verdict is not None else None
    value = None
    if details is not None:
        gaps = [one.first for one in (details.nan, details.infinite) if one is not None]
        value = details.worst if details.worst is not None else next(iter(gaps), None)
    changed = NodeChanges.between(refused.before, refused.wrong or refused.before)
    anchors = [site.anchor for site in failed.applied] + [one.anchor for one in failed.refusals]
    makers = [] if value is None else _makers(refused.before, value.output)
    found = (*changed.altered, *changed.removed, *anchors, *makers)
    nodes = tuple(dict.fromkeys(name for name in found if name))
    return RefusedStep(title_of(step, text), text.text, failed.message, step.line, value, nodes)


def _status(records: Sequence[StepRecord]) -> str:
    """Return one status for all passes that a step ran: a change counts more than none, and an undone one most."""
    found = [record.status for record in records]
    return next((one for one in ("failed", "rolled_back", "committed", "unchanged") if one in found), "skipped")


def _makers(proto: onnx.ModelProto, value: str) -> Iterable[str]:
    return (node.name or node.output[0] for node in proto.graph.node if value in node.output)


def _share(use: float) -> str:
    """Return a share of the budget in words."""
    return f"{use:.0f} times" if use >= 2 else f"{use:.0%}"
