"""What people read of a provenance statement."""

from __future__ import annotations

import json
from typing import Any

import pytest

from surgery.engine.provenance.model_digests import ALGORITHM
from surgery.engine.provenance.statement import BUILDER, INPUT, RECIPE, STEPS
from surgery.engine.provenance.statement_summary import read_summary


def statement(**details: Any) -> dict[str, Any]:
    return {
        "predicate": {
            "buildDefinition": {
                "externalParameters": {"recipe": "default"},
                "resolvedDependencies": [
                    {"name": INPUT, "digest": {ALGORITHM: "12"}},
                    {"name": f"{RECIPE}default.yaml", "digest": {"sha256": "34"}},
                    {"name": f"{RECIPE}lost.yaml"},
                    {"uri": "pkg:pypi/onnx@1.17"},
                    {"name": "other"},
                ],
            },
            "runDetails": {
                "builder": {"id": BUILDER, "version": {"onnx-surgery": "0.1"}},
                "metadata": {"finishedOn": "2026-01-01"},
                **details,
            },
            STEPS: [{"pass": "drop-dead", "status": "committed", "verdict": "equal"}, {"pass": 3}],
            "surgery_end": "close",
        }
    }


def test_the_facts_are_plain_values() -> None:
    assert read_summary(json.dumps(statement())) == {
        "recipe": "default",
        "surgery": "0.1",
        "steps": [
            {"pass": "drop-dead", "status": "committed", "verdict": "equal"},
            {"pass": "3", "status": None, "verdict": None},
        ],
        "end": "close",
        "input": "12",
        "recipes": {"default.yaml": "34", "lost.yaml": None},
        "packages": ["onnx@1.17"],
        "written": "2026-01-01",
    }


def test_what_is_missing_is_none() -> None:
    given = statement(builder={"id": BUILDER, "version": "0.0"}, metadata=None)
    given["predicate"]["buildDefinition"] = {"externalParameters": {}, "resolvedDependencies": []}
    given["predicate"].pop("surgery_end")
    found = read_summary(json.dumps(given))
    assert found is not None and found.pop("steps")
    assert found == {
        **dict.fromkeys(("recipe", "end", "input", "written")),
        "surgery": "0.0",
        "recipes": {},
        "packages": [],
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        "{}",
        json.dumps({"predicate": None}),
        json.dumps(statement(builder={"id": "another"})),
        json.dumps({"predicate": {"runDetails": {"builder": {"id": BUILDER}}}}),
        "[" * 100_000,
    ],
    ids=lambda text: text[:12],
)
def test_another_text_has_no_summary(text: str) -> None:
    assert read_summary(text) is None
