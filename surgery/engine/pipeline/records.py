"""The records of a run: the outcome of each step and of the expectations, and the result."""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from surgery.base.errors import PassError
from surgery.base.json_record import Record
from surgery.base.operators.empties import REFUSING_EMPTY, refusing_more
from surgery.base.views import view
from surgery.engine.pipeline.shortfall import Shortfall, of_broken
from surgery.model import storage
from surgery.model.graph.state import Defect, Refused, Site
from surgery.model.remote import urls
from surgery.model.storage.summary import Summary, summarize
from surgery.model.targets import STANDARD
from surgery.verification.comparing.details import NOTHING_HELPS, Status, Verdict

if TYPE_CHECKING:
    import onnx

    from surgery.engine.pipeline.sensitivity import Sensitivity
    from surgery.engine.provenance.statement_writing import Made, Sidecar
    from surgery.engine.recipe.schema import Recipe
    from surgery.engine.why.explain import Why
    from surgery.verification.comparing.deployment import Deployed
    from surgery.verification.verdict.validity import Validity

StepStatus = Literal["committed", "unchanged", "rolled_back", "skipped", "failed"]


END = "(end)"
"""The name of the record that says whether the result verifies as a whole."""

DEPLOYED = "(deployed)"
"""The name of the record that says whether the result is right with the default options of ONNX Runtime."""

_NO_VERDICT = {
    "verdict": None,
    "reason": None,
    "needed": NOTHING_HELPS,
    "details": None,
    "region": None,
    "together": None,
}
"""The fields of the report for a step that was not verified."""


_MOST_SITES = 200
"""Maximum number of sites that the report of a step lists; `sites` counts all of them."""

_MOST_NAMES = 40
"""Maximum number of removed and of added nodes that the report lists for a site."""


def _site_json(site: Site) -> dict[str, Any]:
    """Return a site in the form of the report."""
    names = {"removed": list(site.removed[:_MOST_NAMES]), "added": list(site.added[:_MOST_NAMES])}
    return {"site": site.number, "anchor": site.anchor, **names}


def _declined(refusals: Sequence[Refused]) -> list[dict[str, Any]]:
    """Count the places that a pass declined, by reason, the most frequent first, each with one of the places."""
    anchors: dict[str, str] = {}
    for one in refusals:
        anchors.setdefault(one.reason, one.anchor)
    counts = Counter(one.reason for one in refusals).most_common()
    return [{"reason": reason, "count": count, "anchor": anchors[reason]} for reason, count in counts]


@dataclass(frozen=True)
class RefusedSite(Record, keys="site=number anchor why"):
    """A site that was left out of a step because the step fails with it; `why` gives the failure."""

    number: int
    anchor: str
    why: str

    def __str__(self) -> str:
        place = f" at '{self.anchor}'" if self.anchor else ""
        return f"refused site {self.number}{place}: {self.why}"


@dataclass(frozen=True)
class StepRecord(
    Record,
    keys="nodes_before nodes_after seconds:4 cached message refused_sites kept defects why where?",
):
    """The outcome of one step."""

    name: str
    status: StepStatus
    nodes_before: int
    nodes_after: int
    sites: int = 0
    verdict: Verdict | None = None
    seconds: float = 0.0
    message: str = ""
    where: str = ""
    exit_code: int = 0
    refusals: tuple[Refused, ...] = field(default=(), repr=False)
    refused_sites: tuple[RefusedSite, ...] = ()
    kept: tuple[Sensitivity, ...] = ()
    """The sites of a LOSSY step that exceed the budget, the most sensitive first."""
    applied: tuple[Site, ...] = field(default=(), repr=False)
    """The sites that were rewritten."""
    why: Why | None = field(default=None, repr=False)
    """Why the pass has fewer sites than the recipe expects."""
    cached: bool = False
    """Whether its outcome comes from an earlier run."""
    defects: tuple[Defect, ...] = ()
    """The sites that a standard pass lost to an exception."""
    is_foreign: bool = False
    """Whether a pass of the user's, or a tool that it runs, failed, rather than a part of surgery."""

    @property
    def place(self) -> str:
        """Where the step is written, for messages: `path:line`, or `NAME:line` in a shipped recipe."""
        from surgery.engine.recipe import recipe_lookup

        path, _, line = self.where.rpartition(":")
        return f"{Path(path).stem}:{line}" if path and recipe_lookup.is_shipped(Path(path)) else self.where

    @property
    def broke(self) -> bool:
        """Whether it was undone because something broke, such as a crash, and not because its result was refused."""
        return self.status == "rolled_back" and self.exit_code == PassError.exit_code

    def finding(self, apart: Collection[str] = ()) -> str:
        """Return why the pass left most places as they were, `apart` from some reasons; empty if it refused none."""
        reasons = Counter(one.reason for one in self.refusals if one.reason not in apart)
        if not reasons:
            return ""
        reason, count = reasons.most_common(1)[0]
        more = f" ({count} of {reasons.total()} places)" if reasons.total() > 1 else ""
        return f"'{self.name}' found that {reason}{more}"

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the JSON report."""
        verdict = self.verdict.to_json() if self.verdict is not None else _NO_VERDICT
        return {
            "pass": self.name,
            "status": self.status,
            "sites": self.sites,
            **{key: verdict[key] for key in _NO_VERDICT},
            **super().to_json(),
            "applied": [_site_json(site) for site in self.applied[:_MOST_SITES]],
            "declined": _declined(self.refusals),
        }

    def stated(self) -> dict[str, Any]:
        """Return the step's entry in a statement of provenance: nothing that another run would measure differently."""
        found = {
            "pass": self.name,
            "sites": self.sites,
            "verdict": self.verdict.status.value if self.verdict is not None else None,
            "status": self.status if self.status != "committed" else None,
            "refused_sites": len(self.refused_sites) or None,
        }
        return {name: value for name, value in found.items() if value is not None}


def last_loss(steps: Sequence[StepRecord]) -> Verdict | None:
    """Return the verdict on the last committed lossy step, which includes the loss of those before it, or None."""
    found = (one.verdict for one in reversed(steps) if one.status == "committed" and one.verdict is not None)
    return next((verdict for verdict in found if verdict.status is Status.LOSSY), None)


@dataclass(frozen=True)
class Expectation(Record, keys="what ok"):
    """One expectation of the recipe, whether it holds, and its place in the recipe: `path:line:column`.

    `target` is the runtime that it expects to run the whole model, if any.
    """

    what: str
    ok: bool
    where: str = field(default="", compare=False)
    target: str = field(default="", compare=False)


@dataclass(frozen=True)
class Figures(Record):
    """The figures compared with the last release. `bytes` is the size of the files without statement of provenance.

    `tolerance` is the largest share of the tolerance that a step or the whole model needed; `speed` is relative to the
    original. A figure that is not known is None.
    """

    nodes: int | None = None
    bytes: int | None = None
    tolerance: float | None = None
    speed: float | None = None


@dataclass(frozen=True)
class Result(
    Record,
    keys="input output steps expectations end deployed cached figures bindings providers seconds:4 strict"
    " original=validity unverifiable? misfits=misfits.words shortfall=shortfall.words shortfalls",
):
    """The outcome of a recipe."""

    recipe: str
    """The name of the recipe."""
    input: Summary
    """The figures of the original."""
    output: Summary
    """The figures of the resulting model, whether it was written or not."""
    steps: tuple[StepRecord, ...]
    """The outcome of each step, in order."""
    expectations: tuple[Expectation, ...]
    """The expectations of the recipe, and whether each holds."""
    bindings: tuple[Mapping[str, Any], ...]
    """The sets of inputs that the models ran on."""
    seconds: float
    """The duration of the run."""
    proto: onnx.ModelProto = field(repr=False)
    """The resulting model without weights."""
    stored: storage.StoredModel = field(repr=False)
    """The original, which has the weights."""
    strict: bool = False
    """Whether every step must hold, not only the committed ones."""
    end: Verdict | None = None
    """The verdict on the whole model at the end, if steps were verified in the region of their change or were lossy."""
    deployed: Deployed | None = None
    """The result of running the whole model as deployed; None if it is unchanged or that is switched off."""
    validity: Validity | None = None
    """The validity of the original, unless verification is off."""
    target: str = STANDARD.name
    """The name of the runtime that the model is made for."""
    unverifiable: str = ""
    """Why the original cannot be run, if nothing could be verified and the recipe does not accept that."""
    shortfall: Shortfall | None = None
    """Why a recipe that is to change the precision did not, if so."""
    misfits: Shortfall | None = None
    """Why the profile of the target does not cover the result, if it does not, and no expectation says so."""
    providers: tuple[str, ...] = ()
    """The execution providers that ran the models; none means the CPU."""
    figures: Figures = Figures()
    """The figures that a later run can be compared with, see `baseline` in a recipe."""
    history: Recorder | None = field(default=None, repr=False, compare=False)
    """The recorder that received each committed step, if one was given."""
    made_by: Recipe | None = field(default=None, repr=False, compare=False)
    """The recipe with the settings in effect, for the statement of provenance."""

    @property
    def is_targeted(self) -> bool:
        """Whether the model is made for a particular runtime."""
        return self.target != STANDARD.name

    @property
    def fails_on_target(self) -> bool:
        """Whether the runtime of the target did not run the result, as it did not run the original."""
        from surgery.verification.comparing.output_judge import NOT_RUN

        found = self.deployed
        return found is not None and found.is_elsewhere and found.verdict.reason == NOT_RUN

    @property
    def has_frozen_weights(self) -> bool:
        """Whether a step made constants of weights that were also inputs."""
        from surgery.verification.verdict.validity import FREEZING

        return any(step.name == FREEZING and step.status == "committed" for step in self.steps)

    @property
    def failure(self) -> StepRecord | None:
        """The step that ended the run, if one did."""
        return next((step for step in self.steps if step.status == "failed"), None)

    @property
    def refused(self) -> tuple[StepRecord, ...]:
        """The steps that were rolled back or lost sites, with each complaint once."""
        found = [step for step in self.steps if step.status == "rolled_back" or step.refused_sites]
        return tuple({(step.name, step.where, step.message): step for step in found}.values())

    @property
    def broken(self) -> tuple[StepRecord, ...]:
        """The steps that were undone because something broke."""
        return tuple(step for step in self.refused if step.broke)

    @property
    def shortfalls(self) -> tuple[Shortfall, ...]:
        """What was not reached: steps that broke, another precision, a result that the target runs."""
        found = [one for one in (self.shortfall, self.misfits) if one is not None]
        if self.broken and not any(one.exit_code == PassError.exit_code for one in found):
            found.insert(0, of_broken([step.name for step in self.broken], [step.is_foreign for step in self.broken]))
        return tuple(found)

    @property
    def unmet(self) -> tuple[Shortfall, ...]:
        """The shortfalls that the exit code shows: if `strict`, also a precision that gains nothing."""
        return tuple(one for one in self.shortfalls if not one.is_met or (self.strict and one is self.shortfall))

    @property
    def defects(self) -> tuple[tuple[str, Defect], ...]:
        """The sites that standard passes lost to exceptions, each once, with the name of the step."""
        return tuple(dict.fromkeys((step.name, defect) for step in self.steps for defect in step.defects))

    @property
    def loss(self) -> Verdict | None:
        """The verdict with the loss of the result, if a step was lossy."""
        is_measured = self.end is not None and self.end.status is Status.LOSSY
        return self.end if is_measured else last_loss(self.steps)

    @property
    def lost_empty(self) -> str:
        """What is lost if the result has operators that take no empty batch, which the original had not."""
        found = refusing_more(self.input.ops, self.output.ops)
        what = ", ".join(f"{name} {REFUSING_EMPTY[name]}" for name in found)
        advice = "'expect: {empty: allowed}' avoids that"
        return f"an empty batch or sequence is no longer taken: {what}; {advice}" if found else ""

    @property
    def cached(self) -> tuple[int, bool]:
        """The number of steps whose outcomes are from an earlier run, and whether the verdict on the whole is."""
        return sum(step.cached for step in self.steps), self.end is not None and self.end.cached

    @property
    def ok(self) -> bool:
        """Whether no step ended the run, every expectation holds, and the model can be run.

        If `strict`, also whether nothing was refused, and the purpose is met: another precision, a target.
        """
        holds = self.failure is None and all(expectation.ok for expectation in self.expectations)
        return holds and not self.unverifiable and not (self.strict and (self.refused or self.unmet))

    @property
    def exit_code(self) -> int:
        """The exit code: 0 if ok, 3 if a pass broke, 1 if a verdict or an expectation is negative.

        A standard pass breaks also if it loses only a site: then the result is right, and written, but not complete. So
        is a result in float32 of a recipe for another precision, one that its target does not run, and one without a
        step that broke.
        """
        if self.failure is not None:
            return self.failure.exit_code
        unmet = max((one.exit_code for one in self.shortfalls), default=0)
        return PassError.exit_code if self.ok and self.defects else max(unmet, 0 if self.ok else 1)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON report of `apply`."""
        target = {"target": self.target} if self.is_targeted else {}
        refused = [
            {"pass": step.name, "where": step.where, "why": step.message, "broke": step.broke} for step in self.refused
        ]
        shown = {**super().to_json(), "cached": dict(zip(("steps", "end"), self.cached))}
        return {"ok": self.ok, "recipe": self.recipe, **target, **shown, "refused": refused}

    def __repr__(self) -> str:
        """Return a line for a prompt; `str` and `to_json` tell more."""
        nodes = f"{self.input.nodes} -> {self.output.nodes} nodes, {len(self.steps)} steps"
        return f"<Result of {self.recipe!r}: {'ok' if self.ok else 'not ok'}, {nodes}>"

    def __str__(self) -> str:
        """Return the outcome as a line of text, and the numbers."""
        return view("spoken")(self._shown())

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows, without reading any file."""
        return view("result")(self._shown())

    def _shown(self) -> dict[str, Any]:
        """Return the part of the JSON report that needs no file."""
        sides = {
            name: {"path": str(side.path) if side.path is not None else None, "nodes": side.nodes, "bytes": side.bytes}
            for name, side in (("input", self.input), ("output", self.output))
        }
        return {
            "ok": self.ok,
            "recipe": self.recipe,
            **sides,
            "steps": [step.to_json() for step in self.steps],
            "expectations": [{"what": item.what, "ok": item.ok} for item in self.expectations],
            "end": self.end.to_json() if self.end is not None else None,
            "deployed": self.deployed.to_json() if self.deployed is not None else None,
            "seconds": self.seconds,
            "original": self.validity.to_json() if self.validity is not None else None,
            "unverifiable": self.unverifiable,
            "refused": self.refused,
        }

    def save(
        self,
        path: str | Path,
        *,
        layout: storage.Layout = "keep",
        force: bool = False,
        provenance: bool | Sidecar = True,
    ) -> Result:
        """Write the model atomically, to a path or a URL; return the result with the written file as its output.

        The file contains a statement of provenance in its metadata, unless `provenance` is False. A `Sidecar` says
        where to write a longer statement, and with which key to sign it.
        """
        from surgery.engine.provenance.statement_writing import save

        if isinstance(path, str) and urls.is_url(path):
            copies = storage.Staging()
            local = storage.output_path(path, copies, force=force)
            saved = self.save(local, layout=layout, force=force, provenance=provenance)
            # The summary reads the file only when its hash is requested.
            weakref.finalize(saved.output, copies.close)
            return saved
        origin = self.origin() if provenance else None
        sidecar = None if isinstance(provenance, bool) else provenance
        files = save(self.proto, path, self.stored, origin, sidecar, layout=layout, force=force)
        written = Path(path).with_name(files[0].name) if storage.is_by_content(Path(path)) else Path(path)
        return replace(self, output=summarize(self.proto, [written, *files[1:]]))

    def origin(self) -> Made | None:
        """Return the content of a statement of provenance on this run, without digests of models.

        A result that was made without a recipe has none.
        """
        from surgery.engine.provenance.statement_writing import Made

        if self.made_by is None:
            return None
        changed = tuple(step.stated() for step in self.steps if step.status not in ("unchanged", "skipped"))
        return Made(self.made_by, changed, self.end.status.value if self.end is not None else None)


class Observer(Protocol):
    """Receives the progress of a run."""

    def stage(self, step: str, stage: str) -> None:
        """Report that `step` has reached `stage`, such as "pass", "check" or "parity"."""

    def said(self, step: str, text: str) -> None:
        """Report the text that a pass has printed."""

    def done(self, record: StepRecord) -> None:
        """Report that a step has ended."""


class Recorder(Protocol):
    """Receives the model before the first step, and after each step that is finally committed."""

    def begin(self, stored: storage.StoredModel, proto: onnx.ModelProto) -> None:
        """Receive the model that the steps start from. A run that restarts calls this again."""

    def commit(self, proto: onnx.ModelProto, record: StepRecord, number: int) -> None:
        """Receive the model after a committed step; `number` is the index of its record in `Result.steps`."""


class Silent:
    """An observer that shows only what passes print."""

    def stage(self, step: str, stage: str) -> None:
        """Do nothing."""

    def said(self, step: str, text: str) -> None:
        """Write the text to stderr: stdout is for data."""
        sys.stderr.write(text)

    def done(self, record: StepRecord) -> None:
        """Do nothing."""


class Journal:
    """The records of a run under way. Each is reported to an observer."""

    def __init__(self, observer: Observer | None) -> None:
        self.observer = observer or Silent()
        self.records: list[StepRecord] = []
        self.expectations: list[Expectation] = []
        self.prefix = ""
        """The prefix of stages, such as "bisect, run 3: "."""

    def record(self, record: StepRecord) -> None:
        """Record the outcome of a step."""
        self.records.append(record)
        self.observer.done(record)

    def stage(self, step: str, stage: str) -> None:
        """Report that a step has reached a stage."""
        self.observer.stage(step, self.prefix + stage)
