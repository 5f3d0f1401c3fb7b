"""The records of a run: the outcome of each step and of the expectations, and the result."""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from surgery import storage
from surgery.graph.state import Refused, Site
from surgery.storage import urls
from surgery.storage.summary import Summary, summarize
from surgery.targets import STANDARD
from surgery.verification.comparing.details import NOTHING_HELPS
from surgery.verification.verdict.verifier import Verdict

if TYPE_CHECKING:
    import onnx

    from surgery.engine.sensitivity import Sensitivity
    from surgery.provenance.writing import Made, Sidecar
    from surgery.recipe.schema import Recipe
    from surgery.verification.verdict.validity import Validity
    from surgery.why.explain import Why

StepStatus = Literal["committed", "unchanged", "rolled_back", "skipped", "failed"]


END = "(end)"
"""What the record is called that says whether the result verifies as a whole."""

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
"""Sites of a step that its report lists; `sites` counts all of them."""

_MOST_NAMES = 40
"""Nodes that the report lists of those that a site removed, and of those that it added."""


def _site_json(site: Site) -> dict[str, Any]:
    """Return a site as reports have it."""
    names = {"removed": list(site.removed[:_MOST_NAMES]), "added": list(site.added[:_MOST_NAMES])}
    return {"site": site.number, "anchor": site.anchor, **names}


def _declined(refusals: Sequence[Refused]) -> list[dict[str, Any]]:
    """Count the places that a pass declined by the reason, the most frequent first, each with one of the places."""
    anchors: dict[str, str] = {}
    for one in refusals:
        anchors.setdefault(one.reason, one.anchor)
    counts = Counter(one.reason for one in refusals).most_common()
    return [{"reason": reason, "count": count, "anchor": anchors[reason]} for reason, count in counts]


@dataclass(frozen=True)
class RefusedSite:
    """A site that was left out of a step because the step fails with it; `why` says how."""

    number: int
    anchor: str
    why: str

    def __str__(self) -> str:
        place = f" at '{self.anchor}'" if self.anchor else ""
        return f"refused site {self.number}{place}: {self.why}"

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the JSON report."""
        return {"site": self.number, "anchor": self.anchor, "why": self.why}


@dataclass(frozen=True)
class StepRecord:
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
    """The sites of a LOSSY step that the budget has no room for, the most sensitive first."""
    applied: tuple[Site, ...] = field(default=(), repr=False)
    """The sites that were rewritten."""
    why: Why | None = field(default=None, repr=False)
    """Why the pass has fewer sites than the recipe expects."""
    cached: bool = False
    """Whether an earlier run ran and judged it."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the JSON report."""
        verdict = self.verdict.to_json() if self.verdict is not None else _NO_VERDICT
        return {
            "pass": self.name,
            "status": self.status,
            "sites": self.sites,
            **{key: verdict[key] for key in _NO_VERDICT},
            "nodes_before": self.nodes_before,
            "nodes_after": self.nodes_after,
            "seconds": round(self.seconds, 4),
            "cached": self.cached,
            "message": self.message,
            "refused_sites": [site.to_json() for site in self.refused_sites],
            "kept": [one.to_json() for one in self.kept],
            "why": self.why.to_json() if self.why is not None else None,
            "where": self.where or None,
            "applied": [_site_json(site) for site in self.applied[:_MOST_SITES]],
            "declined": _declined(self.refusals),
        }

    def stated(self) -> dict[str, Any]:
        """Return what a statement of provenance says of the step: nothing that another run would measure otherwise."""
        found = {
            "pass": self.name,
            "sites": self.sites,
            "verdict": self.verdict.status.value if self.verdict is not None else None,
            "status": self.status if self.status != "committed" else None,
            "refused_sites": len(self.refused_sites) or None,
        }
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class Expectation:
    """One expectation of the recipe, whether it holds, and where the recipe has it: `path:line:column`."""

    what: str
    ok: bool
    where: str = field(default="", compare=False)


@dataclass(frozen=True)
class Figures:
    """What is held to the last release. `bytes` are those of the files without their statement of provenance.

    `tolerance` is the largest share of the tolerance that a step, or the whole, needed; `speed` that relative to the
    original. None for what is not known.
    """

    nodes: int | None = None
    bytes: int | None = None
    tolerance: float | None = None
    speed: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the JSON report."""
        return {"nodes": self.nodes, "bytes": self.bytes, "tolerance": self.tolerance, "speed": self.speed}


@dataclass(frozen=True)
class Result:
    """The outcome of a recipe. `proto` is the result without weights, whether it was written or not."""

    recipe: str
    input: Summary
    output: Summary
    steps: tuple[StepRecord, ...]
    expectations: tuple[Expectation, ...]
    bindings: tuple[Mapping[str, Any], ...]
    seconds: float
    proto: onnx.ModelProto = field(repr=False)
    stored: storage.StoredModel = field(repr=False)
    strict: bool = False
    """Whether every step has to hold, rather than only those committed."""
    end: Verdict | None = None
    """The verdict on the whole model at the end, where steps were verified in the region of their change."""
    validity: Validity | None = None
    """The validity of the original, unless verification is off."""
    target: str = STANDARD.name
    """The name of the runtime that the model is made for."""
    unverifiable: str = ""
    """Why the original cannot be run, where nothing could be verified and the recipe does not accept that."""
    providers: tuple[str, ...] = ()
    """The execution providers that ran the models; none means the CPU."""
    figures: Figures = Figures()
    """What a later run can be held to, see `surgery.engine.baseline`."""
    history: Recorder | None = field(default=None, repr=False, compare=False)
    """What was told of each committed step, where that was asked for."""
    made_by: Recipe | None = field(default=None, repr=False, compare=False)
    """The recipe with the settings that held, for the statement of provenance."""

    @property
    def is_targeted(self) -> bool:
        """Whether the model is made for a runtime in particular."""
        return self.target != STANDARD.name

    @property
    def failure(self) -> StepRecord | None:
        """The step that ended the run, if one did."""
        return next((step for step in self.steps if step.status == "failed"), None)

    @property
    def refused(self) -> tuple[StepRecord, ...]:
        """The steps that were rolled back or lost sites, each complaint once."""
        found = [step for step in self.steps if step.status == "rolled_back" or step.refused_sites]
        return tuple({(step.name, step.where, step.message): step for step in found}.values())

    @property
    def cached(self) -> tuple[int, bool]:
        """How many steps an earlier run ran and judged, and whether it found the verdict on the whole model."""
        return sum(step.cached for step in self.steps), self.end is not None and self.end.cached

    @property
    def ok(self) -> bool:
        """Whether no step ended the run, every expectation holds, and the model can be run.

        If strict, also whether nothing was refused.
        """
        holds = self.failure is None and all(expectation.ok for expectation in self.expectations)
        return holds and not self.unverifiable and not (self.strict and self.refused)

    @property
    def exit_code(self) -> int:
        """0 if ok, 3 if a pass broke, 1 if a verdict or an expectation is negative."""
        if self.failure is not None:
            return self.failure.exit_code
        return 0 if self.ok else 1

    def to_json(self) -> dict[str, Any]:
        """Return the JSON report of `apply`."""
        return {
            "ok": self.ok,
            "recipe": self.recipe,
            **({"target": self.target} if self.is_targeted else {}),
            "input": self.input.to_json(),
            "output": self.output.to_json(),
            "steps": [step.to_json() for step in self.steps],
            "expectations": [{"what": item.what, "ok": item.ok} for item in self.expectations],
            "end": self.end.to_json() if self.end is not None else None,
            "cached": dict(zip(("steps", "end"), self.cached)),
            "figures": self.figures.to_json(),
            "bindings": [dict(binding) for binding in self.bindings],
            "providers": list(self.providers),
            "seconds": round(self.seconds, 4),
            "strict": self.strict,
            "original": self.validity.to_json() if self.validity is not None else None,
            "unverifiable": self.unverifiable or None,
            "refused": [{"pass": step.name, "where": step.where, "why": step.message} for step in self.refused],
        }

    def _repr_html_(self) -> str:
        """Return what a notebook shows. No file is read for it."""
        from surgery.pages import notebook

        sides = {
            name: {"path": str(side.path) if side.path is not None else None, "nodes": side.nodes, "bytes": side.bytes}
            for name, side in (("input", self.input), ("output", self.output))
        }
        return notebook.result(
            {
                "ok": self.ok,
                "recipe": self.recipe,
                **sides,
                "steps": [step.to_json() for step in self.steps],
                "expectations": [{"what": item.what, "ok": item.ok} for item in self.expectations],
                "end": self.end.to_json() if self.end is not None else None,
                "seconds": self.seconds,
                "unverifiable": self.unverifiable,
                "refused": self.refused,
            }
        )

    def save(
        self,
        path: str | Path,
        *,
        layout: storage.Layout = "keep",
        force: bool = False,
        provenance: bool | Sidecar = True,
    ) -> Result:
        """Write the model atomically, to a path or a URL; return the result with the written file in it.

        The file carries a statement of provenance in its metadata, unless `provenance` is False. A `Sidecar` says where
        a longer statement goes, and with which key it is signed.
        """
        from surgery.provenance.writing import save

        if isinstance(path, str) and urls.is_url(path):
            copies = storage.Staging()
            local = storage.output_path(path, copies, force=force)
            saved = self.save(local, layout=layout, force=force, provenance=provenance)
            # The summary reads the file when it is asked for a hash.
            weakref.finalize(saved.output, copies.close)
            return saved
        origin = self.origin() if provenance and self.made_by is not None else None
        sidecar = None if isinstance(provenance, bool) else provenance
        files = save(self.proto, path, self.stored, origin, sidecar, layout=layout, force=force)
        written = Path(path).with_name(files[0].name) if storage.is_by_content(Path(path)) else Path(path)
        return replace(self, output=summarize(self.proto, [written, *files[1:]]))

    def origin(self) -> Made:
        """Return what a statement of provenance says of this run, without digests of models."""
        from surgery.provenance.writing import Made

        if self.made_by is None:
            raise ValueError("this result was made without a recipe")
        changed = tuple(step.stated() for step in self.steps if step.status not in ("unchanged", "skipped"))
        return Made(self.made_by, changed, self.end.status.value if self.end is not None else None)


class Observer(Protocol):
    """Receives the progress of a run."""

    def stage(self, step: str, stage: str) -> None:
        """Report that `step` has come to `stage`, such as "pass", "check" or "parity"."""

    def said(self, step: str, text: str) -> None:
        """Report what a pass has printed."""

    def done(self, record: StepRecord) -> None:
        """Report that a step has ended."""


class Recorder(Protocol):
    """Receives the model as it is before the first step, and after each step that is committed in the end."""

    def begin(self, stored: storage.StoredModel, proto: onnx.ModelProto) -> None:
        """Take the model that steps start from. A run that starts anew begins again."""

    def commit(self, proto: onnx.ModelProto, record: StepRecord, number: int) -> None:
        """Take the model that a committed step left; `number` is the place of its record in `Result.steps`."""


class Silent:
    """An observer that shows nothing but what passes print."""

    def stage(self, step: str, stage: str) -> None:
        """Do nothing."""

    def said(self, step: str, text: str) -> None:
        """Write it to stderr: stdout is for data."""
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
        """Report that a step has come to a stage."""
        self.observer.stage(step, self.prefix + stage)
