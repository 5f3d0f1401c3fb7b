"""SARIF 2.1.0 for code scanning services: one result for each finding.

Passed checks give no result, because services show every result as an alert. Rules are the passes and the kinds of
checks that the results belong to.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from surgery.interface.report.formats.outcome import Check, Outcome, Root
from surgery.interface.report.formats.visible import visible

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_BASE = "%SRCROOT%"


def sarif(outcome: Outcome, version: str, root: Root | None = None) -> dict[str, Any]:
    """Return a log with one run, as plain values; `version` is the version of this tool."""
    root = root or Root()
    # An error without a place cannot be shown in a file, so it is only in the invocation.
    found = [check for check in outcome.notable() if outcome.is_complete or check.path]
    rules = {check.rule: check for check in reversed(found)}
    ids = sorted(rules)
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "surgery",
                        "version": version,
                        "rules": [_rule(rules[name]) for name in ids],
                    }
                },
                "automationDetails": {"id": visible(f"surgery {outcome.command}/{outcome.subject}/")},
                "originalUriBaseIds": {_BASE: {"uri": f"{root.folder.as_uri()}/"}},
                "columnKind": "unicodeCodePoints",
                "invocations": [_invocation(outcome)],
                "results": [_result(check, ids.index(check.rule), root) for check in found],
            }
        ],
    }


def _invocation(outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = {"executionSuccessful": outcome.is_complete, "exitCode": outcome.exit_code}
    if not outcome.is_complete:
        notice = {"level": "error", "message": {"text": visible(outcome.headline)}}
        found["toolExecutionNotifications"] = [notice]
    return found


def _rule(check: Check) -> dict[str, Any]:
    return {"id": visible(check.rule), "shortDescription": {"text": visible(check.about or check.rule)}}


def _result(check: Check, index: int, root: Root) -> dict[str, Any]:
    message = visible(check.message or check.name)
    found: dict[str, Any] = {
        "ruleId": visible(check.rule),
        "ruleIndex": index,
        "level": "error" if check.is_negative else "warning",
        "message": {"text": message},
        "partialFingerprints": {"surgery/v1": _fingerprint(check, root)},
    }
    location = _location(check, root)
    return {**found, "locations": [location]} if location else found


def _location(check: Check, root: Root) -> dict[str, Any]:
    """Return the place in a file, and the nodes of the model."""
    found: dict[str, Any] = {}
    path = check.path or check.model
    if path:
        # Services require a line; a model has none, so line 1 is used.
        region = {"startLine": check.line or 1} | ({"startColumn": check.column} if check.column else {})
        found["physicalLocation"] = {"artifactLocation": _artifact(path, root), "region": region}
    if check.nodes:
        owner = f"{Path(check.model).name}/" if check.model else ""
        found["logicalLocations"] = [
            {"name": visible(name), "fullyQualifiedName": visible(f"{owner}{name}"), "kind": "element"}
            for name in check.nodes
        ]
    return found


def _artifact(path: str, root: Root) -> dict[str, str]:
    inside = root.relative(path)
    if inside is None:
        return {"uri": f"file://{quote(str(Path(path).absolute()), errors='replace')}"}
    return {"uri": quote(inside), "uriBaseId": _BASE}


def _fingerprint(check: Check, root: Root) -> str:
    """Return an identifier of a finding across runs, from its kind and place but not its line, which may change."""
    path = check.path or check.model
    parts = [check.rule, check.name, (root.relative(path) or Path(path).name) if path else "", *check.nodes]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
