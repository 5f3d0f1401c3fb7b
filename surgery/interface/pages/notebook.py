"""Results in notebooks: compact, self-contained HTML without scripts, except for whole pages, which are framed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import escape

from surgery.interface.pages import marks, page_text
from surgery.interface.pages.models import model_page as model_page
from surgery.interface.pages.page import render
from surgery.interface.pages.run_report import report as report
from surgery.interface.pages.run_verdict import facts, outcome

Fact = tuple[str, str]

_MOST_ROWS = 40
"""Maximum number of rows of a table that are shown."""

_MOST_PORTS = 8
"""Maximum number of inputs, and of outputs, that are shown."""


def result(run: Mapping[str, Any]) -> str:
    """Return the HTML of a run: `run` has the keys `ok`, `recipe`, `input`, `output`, `steps`, `end` etc. of a JSON
    report.

    The files may lack hashes.
    """
    rows = [
        (
            str(number),
            step["pass"],
            _mark(step),
            page_text.integer(step["sites"]) if step["sites"] else "",
            page_text.integer(step["nodes_after"]),
            step["message"] if step["status"] != "committed" else "",
        )
        for number, step in enumerate(run["steps"], 1)
        if step["status"] not in ("unchanged", "skipped")
    ]
    found = outcome(run)
    return _shown(
        f"{run['recipe']}: {found.headline}",
        found.tone,
        found.remarks,
        [(fact.name, f"{fact.value} ({fact.remark})" if fact.remark else fact.value) for fact in facts(run)],
        ("Step", "Pass", "Verdict", "Sites", "Nodes", ""),
        rows,
        "steps",
    )


def spoken(run: Mapping[str, Any]) -> str:
    """Return a run as plain text: the outcome, its remarks and its numbers."""
    found = outcome(run)
    lines = [f"{run['recipe']}: {found.headline}", *(f"  {remark}" for remark in found.remarks)]
    numbers = ", ".join(f"{fact.name}: {fact.value}{f' ({fact.remark})' if fact.remark else ''}" for fact in facts(run))
    return "\n".join([*lines, f"  {numbers}"])


def _mark(step: Mapping[str, Any]) -> str:
    held = step["status"] == "committed" and step.get("verdict")
    mark = marks.verdict(step["verdict"]) if held else marks.status(step["status"])
    return f"{mark.sign} {mark.word}"


def difference(found: Mapping[str, Any]) -> str:
    """Return the HTML of a difference of two models: `found` is the output of `surgery diff --format json`."""
    before, after = found["before"], found["after"]
    moved = [one for one in found["operators"] if one["difference"]]
    rows = [
        (
            one["op"],
            page_text.integer(one["before"]),
            page_text.integer(one["after"]),
            page_text.signed(one["difference"]),
        )
        for one in moved
    ]
    parity = found.get("parity")
    numbers = [
        ("Nodes", f"{page_text.integer(before['nodes'])} \u2192 {page_text.integer(after['nodes'])}"),
        *((one["what"], f"{_value(one['before'])} \u2192 {_value(one['after'])}") for one in found["sizes"]),
        *([("Outputs", marks.verdict(parity["verdict"]).word)] if parity else []),
    ]
    names = f"{_file(before)} and {_file(after)}"
    headline = f"{names} differ in names and storage at most" if found["same"] else f"{names} differ"
    head = "Operator", "Before", "After", "Change"
    return _shown(headline, "ok" if found["same"] else "info", (), numbers, head, rows, "operators")


def _file(side: Mapping[str, Any]) -> str:
    return str(side["path"]).rpartition("/")[2] if side.get("path") else "a model in memory"


def _value(value: object) -> str:
    return page_text.integer(value) if isinstance(value, int) else page_text.clip(value, 60)


def framed(title: str, page: str) -> str:
    """Return the HTML of a whole page in a frame, whose script reaches nothing outside of it."""
    return str(render("frame.html.jinja", title=title, page=escape(page)))


def listed(
    headline: str, tone: str, remarks: Sequence[str], head: Sequence[str], rows: Sequence[Sequence[str]], what: str
) -> str:
    """Return the HTML of a line, with remarks and a table of `what` it is about; the tone is ok, warn, bad or info."""
    return _shown(headline, tone, remarks, (), head, rows, what)


def model(
    name: str,
    *,
    nodes: int,
    inputs: Sequence[str],
    outputs: Sequence[str],
    opsets: Sequence[tuple[str, int]],
    ops: Mapping[str, int],
) -> str:
    """Return the HTML of the main graph of a model: its nodes, inputs, outputs, opsets and operators."""
    facts = [
        ("Nodes", page_text.integer(nodes)),
        ("Inputs", ", ".join(inputs)),
        ("Outputs", ", ".join(outputs)),
        ("Opsets", _opsets(opsets)),
    ]
    return _model(name, facts, ops)


def inspection(
    name: str,
    *,
    nodes: int,
    parameters: int,
    weight_bytes: int,
    opsets: Mapping[str, int],
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    ops: Mapping[str, int],
) -> str:
    """Return the HTML of an inspected model; `inputs` and `outputs` have the types by name."""
    facts = [
        ("Nodes", page_text.integer(nodes)),
        ("Parameters", page_text.amount(parameters)),
        ("Weights", page_text.size(weight_bytes)),
        ("Opsets", _opsets(opsets.items())),
        *((f"Input {port}", kind) for port, kind in list(inputs.items())[:_MOST_PORTS]),
        *((f"Output {port}", kind) for port, kind in list(outputs.items())[:_MOST_PORTS]),
    ]
    return _model(name, facts, ops)


def _opsets(opsets: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{domain} {version}" for domain, version in opsets)


def _model(name: str, facts: Sequence[Fact], ops: Mapping[str, int]) -> str:
    rows = [(op, page_text.integer(count)) for op, count in ops.items()]
    return _shown(name, "info", (), facts, ("Operator", "Nodes"), rows, "operators")


def _shown(
    headline: str,
    tone: str,
    remarks: Sequence[str],
    facts: Sequence[Fact],
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    what: str,
) -> str:
    return str(
        render(
            "notebook.html.jinja",
            headline=headline,
            tone=tone,
            remarks=remarks[:3],
            facts=facts,
            head=head,
            rows=rows[:_MOST_ROWS],
            more=max(0, len(rows) - _MOST_ROWS),
            what=what,
        )
    )
