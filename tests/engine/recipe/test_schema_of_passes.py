"""The part of the JSON schema that says which options a pass has, and which it needs."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from surgery.engine.recipe.jsonschema import _options, _short, _with_arithmetic, _withs, schema
from surgery.engine.registry.catalog import catalog

pytestmark = pytest.mark.usefixtures("passes")


def test_options_have_defaults_or_are_required() -> None:
    found = _options(catalog.passes().values())
    assert [name for name in found if name.count(":") == 1] == [
        "pass:fold-constants",
        "pass:fuse-attention",
        "pass:pin-dims",
    ]
    fold, fuse = found["pass:fold-constants"], found["pass:fuse-attention"]
    assert "required" not in fold and fuse["required"] == ["heads"] and found["pass:pin-dims"]["required"] == ["dims"]
    assert {name: one.get("default") for name, one in fold["properties"].items()} == {
        "max_growth": 0,
        "rounds": 1,
        "deep": False,
    }
    assert "default" not in fuse["properties"]["heads"] and fuse["properties"]["target"]["default"] == "onnx"
    assert fold["additionalProperties"] is False and fold["type"] == "object"


def test_the_long_form_needs_options_where_the_pass_does() -> None:
    *with_options, without = _withs(tuple(catalog.passes().values()))
    then = {one["if"]["properties"]["pass"]["const"]: one["then"] for one in with_options}
    assert {name: body.get("required") for name, body in then.items()} == {
        "fold-constants": None,
        "fuse-attention": ["with"],
        "pin-dims": ["with"],
    }
    assert without["if"]["properties"]["pass"] == {"enum": ["drop-dropout"]}


def test_the_short_form_may_be_empty_unless_the_pass_needs_options() -> None:
    found = {name: _short(declared) for name, declared in catalog.passes().items()}
    reference = {name: {"$ref": f"#/$defs/pass:{name}"} for name in found}
    assert found["fold-constants"] == {"anyOf": [reference["fold-constants"], {"type": "null"}]}
    assert found["fuse-attention"] == reference["fuse-attention"]


@pytest.mark.parametrize(
    ("steps", "valid"),
    [
        (["drop-dropout", "fold-constants"], True),
        (["fuse-attention"], False),
        ([{"fuse-attention": {"heads": 2}}], True),
        ([{"fuse-attention": {"heads": "2*2"}}], True),
        ([{"fuse-attention": {"heads": "many"}}], False),
        ([{"fuse-attention": {"heads": 2, "target": "other"}}], False),
        ([{"fuse-attention": None}], False),
        ([{"fold-constants": None}], True),
        ([{"fold-constants": {"rounds": 2, "deep": True, "max_growth": "1MB"}}], True),
        ([{"fold-constants": {"deeper": True}}], False),
        ([{"fold-constants": {"deep": 1}}], False),
        ([{"fold-constants": {}, "drop-dropout": {}}], False),
        ([{}], False),
        ([], False),
        ([{"pass": "fuse-attention"}], False),
        ([{"pass": "fuse-attention", "with": {"heads": 2}}], True),
        ([{"pass": "drop-dropout", "with": {"a": 2}}], False),
        ([{"pass": "drop-dropout"}], True),
        ([{"pass": "drop-dropuot"}], False),
        ([{"repeat": 2, "steps": ["drop-dropout"]}], True),
        ([{"repeat": 2, "steps": ["drop-dropuot"]}], False),
    ],
)
def test_steps_fit_the_schema(steps: list[Any], valid: bool) -> None:
    validator = jsonschema.Draft202012Validator(_schema())
    assert validator.is_valid({"steps": steps}) is valid


_MADE: list[dict[str, Any]] = []


def _schema() -> dict[str, Any]:
    if not _MADE:
        _MADE.append(schema(catalog.passes().values()))
    return _MADE[0]


@pytest.mark.parametrize(("name", "valid"), [("my-pass", True), ("My pass", False), ("repeat", False)])
def test_a_recipe_with_plugins_may_have_other_passes(name: str, valid: bool) -> None:
    validator = jsonschema.Draft202012Validator(_schema())
    for step in (name, {name: {"a": 1}}):
        assert validator.is_valid({"plugins": ["p"], "steps": [step]}) is (valid or step == "repeat")
        assert not validator.is_valid({"steps": [step]})


def test_texts_stand_for_numbers_where_no_other_text_may() -> None:
    number, text = {"type": "number"}, {"type": "string"}
    computed = {"anyOf": [number, {"type": "string", "pattern": r"^[-+*/(). 0-9eE]+$"}]}
    assert _with_arithmetic(number) == computed
    assert _with_arithmetic({"type": "array", "items": number}) == {"type": "array", "items": computed}
    assert _with_arithmetic({"anyOf": [number, {"type": "null"}]}) == {"anyOf": [computed, {"type": "null"}]}
    for other in (text, {"const": "a"}, {"enum": ["a"]}):
        assert _with_arithmetic({"anyOf": [number, other]}) == {"anyOf": [number, other]}
    assert _with_arithmetic([number, "x", 3]) == [computed, "x", 3]
