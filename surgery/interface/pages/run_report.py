"""The report of a run: its JSON report as a page, with the graph view if there is one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from surgery.base.errors import UsageError
from surgery.interface.pages import marks, page_text
from surgery.interface.pages.page import PageSection, page, render
from surgery.interface.pages.run_evidence import evidence
from surgery.interface.pages.run_steps import steps
from surgery.interface.pages.run_verdict import verdict

_KEYS = ("ok", "recipe", "input", "output", "steps", "seconds")
"""The keys that identify the report of a run."""


@dataclass(frozen=True)
class RecipeLine:
    """A line of a recipe: its id on the page, its text, and its steps with their marks."""

    anchor: str
    text: str
    steps: tuple[tuple[int, marks.Mark], ...]


@dataclass(frozen=True)
class RecipeFile:
    """A recipe file as listed on the page."""

    title: str
    lines: Sequence[RecipeLine]


def report(run: Mapping[str, Any], drawing: Mapping[str, Any] | None = None, note: str = "") -> str:
    """Return the report of a run as an HTML page.

    `run` is the output of `surgery apply --format json`. `drawing` is the drawing document of its history. `note`
    explains why there is none. `UsageError` if the document is not the report of a run.
    """
    if not isinstance(run, Mapping) or any(key not in run for key in _KEYS):
        raise UsageError(
            "this is not the report of a run", todo="write one with surgery apply RECIPE MODEL --format json > run.json"
        )
    lines = _anchors(run)
    try:
        sections = [
            PageSection("verdict", "Verdict", verdict(run)),
            PageSection("steps", "Steps", steps(run, lines, _states(drawing))),
            *evidence(run),
            PageSection("recipe", "Recipe", render("run/recipe.html.jinja", sources=_sources(run, lines))),
            PageSection(
                "environment", "Reproduce", render("run/environment.html.jinja", run=run, note=note), short="Reproduce"
            ),
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"the report of the run is incomplete or has another format: {type(error).__name__}: {error}"
        raise UsageError(what, todo="write it again with surgery apply RECIPE MODEL --format json") from error
    name = page_text.clip(str(run["input"].get("path") or "a model").rpartition("/")[2], 120)
    title = f"{name}, {page_text.clip(run['recipe'], 60)}"
    return page(title, sections, drawing, kind="Report of a surgery run", opens=run.get("open") or ())


def _states(drawing: Mapping[str, Any] | None) -> dict[int, int]:
    """Return the states of the graph view by the numbers of the steps that produced them."""
    found = enumerate((drawing or {}).get("states", ()))
    return {state["step"]: number for number, state in found if state.get("step") is not None}


def _anchors(run: Mapping[str, Any]) -> dict[str, str]:
    """Return the ids of the lines of the recipes by place, such as "fast.yaml:12"."""
    return {
        f"{source['path']}:{number}": f"recipe-{place}-{number}"
        for place, source in enumerate(run.get("recipes") or ())
        for number in range(1, len(source["text"].splitlines()) + 1)
    }


def _sources(run: Mapping[str, Any], anchors: Mapping[str, str]) -> list[RecipeFile]:
    at: dict[str, list[tuple[int, marks.Mark]]] = defaultdict(list)
    for number, step in enumerate(run["steps"], 1):
        held = step["status"] == "committed" and step.get("verdict")
        if step.get("where") and step["status"] not in ("unchanged", "skipped"):
            mark = marks.verdict(step["verdict"]) if held else marks.status(step["status"])
            at[step["where"]].append((number, mark))
    found = []
    for source in run.get("recipes") or ():
        places = [(f"{source['path']}:{number}", line) for number, line in enumerate(source["text"].splitlines(), 1)]
        lines = [RecipeLine(anchors[place], line, tuple(at[place])) for place, line in places]
        found.append(RecipeFile(page_text.clip(source["path"], 160), lines))
    return found
