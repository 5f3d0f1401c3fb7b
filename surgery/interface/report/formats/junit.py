"""JUnit XML for Jenkins, GitLab and Azure Pipelines: one test case for each check.

A test case fails only if the command does. A step that was rolled back in a successful run counts as skipped, with the
reason; a step that found nothing to change has passed.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from surgery.interface.report.formats.outcome import Check, Outcome, unique
from surgery.interface.report.formats.visible import code, visible

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot represent, not even as a character reference."""


def junit(outcome: Outcome) -> str:
    """Return a document with one suite."""
    counts = {
        "tests": len(outcome.checks),
        "failures": sum(check.level == "failed" for check in outcome.checks),
        "errors": sum(check.level == "broken" for check in outcome.checks),
    }
    totals = {name: str(count) for name, count in counts.items()}
    skipped = str(sum(check.level in ("skipped", "undone") for check in outcome.checks))
    name, time = _text(f"surgery {outcome.command}"), f"{outcome.seconds:.3f}"
    root = ElementTree.Element("testsuites", {"name": name, **totals, "time": time})
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": _text(outcome.subject), **totals, "skipped": skipped, "time": time}
    )
    group = _class_name(outcome)
    for check, title in zip(outcome.checks, unique([check.name for check in outcome.checks]), strict=True):
        _case(suite, check, title, group)
    ElementTree.SubElement(suite, "system-out").text = _text(outcome.headline)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _class_name(outcome: Outcome) -> str:
    """Return the name by which CI tools group test cases. Dots separate packages."""
    return _text(f"surgery.{outcome.command}.{re.sub('[ ./]', '_', outcome.subject)}")


def _case(suite: ElementTree.Element, check: Check, title: str, group: str) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", {"classname": group, "name": _text(title), "time": f"{check.seconds:.3f}"}
    )
    told = _text(_told(check))
    if check.level in ("skipped", "undone"):
        ElementTree.SubElement(case, "skipped", {"message": _first(check.message)})
    elif check.is_negative:
        kind = "error" if check.level == "broken" else "failure"
        found = ElementTree.SubElement(case, kind, {"message": _first(check.message), "type": _text(check.rule)})
        found.text = told
        return
    if check.message:
        ElementTree.SubElement(case, "system-out").text = told


def _told(check: Check) -> str:
    """Return the full text of a check: the place, the message, the nodes."""
    place = f"{check.path}:{check.line}: " if check.path and check.line else f"{check.path}: " if check.path else ""
    nodes = [f"node {name}" for name in check.nodes]
    return "\n".join([f"{place}{check.message}", *nodes])


def _first(message: str) -> str:
    return _text(message.split("\n", 1)[0])


def _text(text: str) -> str:
    return _NOT_XML.sub(lambda found: code(ord(found[0])), visible(text))
