"""The head of the report of a run: the outcome in one sentence, and its numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from surgery.interface.pages import marks, page_text
from surgery.interface.pages.page import render

_SIGNS = {"ok": "\u2713", "warn": "!", "bad": "\u2715", "info": "i"}
_MEASURED = re.compile(r"speed: .*\(found ([0-9.]+), between ([0-9.]+) and ([0-9.]+)")


@dataclass(frozen=True)
class RunVerdict:
    """The outcome of a run: the tone, a sentence, and explanations."""

    tone: str
    headline: str
    remarks: tuple[str, ...] = ()

    @property
    def sign(self) -> str:
        """The sign of the tone."""
        return _SIGNS[self.tone]


@dataclass(frozen=True)
class KeyFigure:
    """One number of a run, with a remark below it."""

    name: str
    value: str
    remark: str = ""


def verdict(run: Mapping[str, Any]) -> Markup:
    """Return the body of the verdict section."""
    numbers = list(facts(run))
    return render("run/verdict.html.jinja", run=run, outcome=outcome(run), facts=numbers, marks=marks)


def final(run: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the verdict on the final result: that on the whole model, or else the last one on a committed step.

    The loss of a lossy step is that of the result, even if later steps agree with the model after it.
    """
    found = [step for step in run["steps"] if step["status"] == "committed" and step.get("verdict")]
    end = run.get("end")
    lossy = [step for step in found if step["verdict"] == "lossy"]
    if lossy and (not end or end["verdict"] in ("equal", "close")):
        return dict(lossy[-1])
    if end:
        return dict(end)
    whole = [step for step in found if step.get("region") is None]
    return next(iter([*reversed(whole), *reversed(found)]), None)


def failed(run: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the step that ended the run, if one did."""
    return next((step for step in run["steps"] if step["status"] == "failed"), None)


def outcome(run: Mapping[str, Any]) -> RunVerdict:
    """Return the outcome of a run."""
    return _negative(run) or _positive(run)


def _negative(run: Mapping[str, Any]) -> RunVerdict | None:
    if run.get("ended"):
        return _ended(run["ended"], len(run["steps"]))
    step = failed(run)
    if step is not None:
        return RunVerdict("bad", f"The run ended at {step['pass']}. Nothing was written.", (step["message"],))
    if run.get("unverifiable"):
        return RunVerdict("bad", "Nothing could be verified. Nothing was written.", (run["unverifiable"],))
    missed = [item["what"] for item in run.get("expectations", ()) if not item["ok"]]
    if missed:
        what = (
            "An expectation of the recipe does" if len(missed) == 1 else f"{len(missed)} expectations of the recipe do"
        )
        found = final(run)
        loss = f"{_lossy(found)} " if found is not None and found["verdict"] == "lossy" else ""
        return RunVerdict("bad", f"{loss}{what} not hold. Nothing was written.", tuple(missed))
    unmet = tuple(one["words"] for one in run.get("shortfalls") or ())
    if not run["ok"] and run.get("shortfall"):
        return RunVerdict("bad", "The precision was not changed. Nothing was written.", unmet)
    if not run["ok"] and unmet:
        return RunVerdict("bad", "The purpose is not met. Nothing was written.", unmet)
    if not run["ok"]:
        return RunVerdict("bad", "Parts of the run were refused, which --strict does not allow. Nothing was written.")
    return None


def _ended(end: Mapping[str, Any], steps: int) -> RunVerdict:
    """Return the outcome of a run that did not finish; the model was not written, or not completely."""
    after = f"after {page_text.plural(steps, 'step', 'steps')}" if steps else "in its first step"
    if end.get("interrupted"):
        return RunVerdict("bad", f"The run was interrupted {after}. The model was not written.")
    return RunVerdict("bad", f"The run ended with an error {after}. The model was not written.", (end["why"],))


def _positive(run: Mapping[str, Any]) -> RunVerdict:
    committed = [step for step in run["steps"] if step["status"] == "committed"]
    changed = [step for step in committed if not step["pass"].startswith("(")]
    never = (run.get("original") or {}).get("failure")
    if not changed and never:
        found = RunVerdict("warn", "No step changed the model, and no input was found on which it runs.", (never,))
    elif not changed:
        found = RunVerdict("info", "Nothing to do: no step changed the model.")
    else:
        found = _agreement(final(run))
    unverified = [step["pass"] for step in changed if step.get("verdict") == "unverified"]
    if unverified and found.tone != "warn":
        what = page_text.plural(len(unverified), "step was", "steps were")
        found = RunVerdict(
            "warn", f"{found.headline} {what} accepted without being verified.", (*found.remarks, *unverified)
        )
    refused = [one for one in run.get("refused") or () if not one.get("broke")]
    unmet = tuple(one["words"] for one in run.get("shortfalls") or ())
    if unmet:
        is_met = not run.get("shortfall") and not any(one["exit_code"] for one in run["shortfalls"])
        return replace(found, tone=found.tone if is_met else "warn", remarks=(*unmet, *found.remarks))
    if refused:
        what = page_text.plural(len(refused), "step", "steps")
        return RunVerdict("warn", f"{found.headline} Parts of {what} were wrong and undone.", found.remarks)
    return found


def _lossy(found: Mapping[str, Any]) -> str:
    """Describe the loss of a result against its budget."""
    summary = ((found.get("details") or {}).get("accuracy") or {}).get("summary")
    sentence = marks.VERDICTS["lossy"].result
    return f"{sentence.removesuffix('.')}: {summary}." if summary else sentence


def _agreement(found: Mapping[str, Any] | None) -> RunVerdict:
    if found is None:
        return RunVerdict("warn", "The model was changed, and not compared with the original.")
    message = found.get("message") or ""
    lead = "The largest error is in " if message.startswith("output ") else ""
    remark = (_sentence(f"{lead}{message}"),) if message and found["verdict"] != "equal" else ()
    mark = marks.verdict(found["verdict"])
    headline = _lossy(found) if found["verdict"] == "lossy" else mark.result
    return RunVerdict("warn" if mark.tone == "none" else mark.tone, headline, remark)


def _sentence(text: str) -> str:
    """Return a message with a capital at its start; names in quotes keep theirs."""
    return text[:1].upper() + text[1:]


def facts(run: Mapping[str, Any]) -> Iterator[KeyFigure]:
    """Yield the numbers of a run: nodes, bytes, cost, speed if measured, steps, tolerance used, time."""
    before, after = run["input"], run["output"]
    yield KeyFigure("Nodes", *_moved(before["nodes"], after["nodes"], page_text.integer))
    if before.get("bytes") is not None:
        size = _moved(before["bytes"], after.get("bytes"), page_text.size)
        yield KeyFigure(
            "File size",
            *(size if after.get("bytes") is not None else (page_text.size(before["bytes"]), "no file written")),
        )
    costs = run.get("costs") or {}
    if costs.get("before") and costs.get("after"):
        yield KeyFigure("MACs", *_moved(costs["before"]["macs"], costs["after"]["macs"], page_text.amount))
        yield KeyFigure("Bytes moved", *_moved(costs["before"]["bytes"], costs["after"]["bytes"], page_text.size))
    yield from _executed(run.get("deployed") or {})
    for item in run.get("expectations", ()):
        if measured := _MEASURED.match(item["what"]):
            ratio, low, high = measured.groups()
            yield KeyFigure("Speed", f"{float(ratio):.2f}\u00d7", f"between {float(low):.2f} and {float(high):.2f}")
    steps = run["steps"]
    committed = sum(step["status"] == "committed" for step in steps)
    yield KeyFigure("Steps", f"{committed} of {len(steps)}", "changed the model")
    worst = final(run)
    factor = ((worst or {}).get("needed") or {}).get("factor")
    if isinstance(factor, int | float):
        yield KeyFigure("Tolerance used", share(factor), "at the worst element")
    yield KeyFigure("Time", page_text.seconds(run["seconds"]), "with verification")
    cached = run.get("cached") or {}
    if cached.get("steps") or cached.get("end"):
        end = "with the verdict on the whole model" if cached.get("end") else "cached from an earlier run"
        yield KeyFigure("From the cache", page_text.plural(cached["steps"], "step"), end)


def _executed(deployed: Mapping[str, Any]) -> Iterator[KeyFigure]:
    """Yield the number of nodes that the runtime executes after its own optimizations, and why it did not elsewhere."""
    found, before = deployed.get("executed"), deployed.get("original")
    if found is not None:
        value, moved = _moved((before or found)["nodes"], found["nodes"], page_text.integer)
        copies = f", {page_text.plural(found['copies'], 'copy', 'copies')} between devices" if found["copies"] else ""
        yield KeyFigure(
            "Executed nodes", value, f"{moved if before else 'as ' + deployed['runtime'] + ' optimizes'}{copies}"
        )
    if deployed.get("note"):
        yield KeyFigure("On the target", "not run", deployed["note"])


def share(factor: float) -> str:
    """Format a share of the tolerance: "none", "14 %", "3.2 times"."""
    if factor == 0:
        return "none"
    if factor > 1:
        return f"{factor:.3g} times"
    return f"{factor * 100:.2g}\u00a0%" if factor >= 0.001 else f"{page_text.scientific(factor * 100)}\u00a0%"


def _moved(before: Any, after: Any, write: Any) -> tuple[str, str]:
    """Return the number after, and its change from the number before."""
    if before == after:
        return write(after), "as before"
    by = page_text.change(before, after) if not isinstance(before, str) and not isinstance(after, str) else ""
    return write(after), f"from {write(before)}{', ' + by if by else ''}"
