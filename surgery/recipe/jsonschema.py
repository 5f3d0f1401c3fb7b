"""The JSON schema of recipes (draft 2020-12), with all passes that are known here and their options.

It is made from the tables that the loader reads by, so that an editor completes what the loader accepts. A schema
cannot say everything: whether a file is there, whether a condition can hold, only the loader knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.recipe.draft import Draft
from surgery.recipe.inputs import inputs_fields, tensor_fields
from surgery.recipe.loader import nested_fields, top_level
from surgery.recipe.reader import Field, Schema, defined
from surgery.recipe.rules import rule_fields
from surgery.recipe.sections import COMPARISON, expect_fields, verify_fields, when_fields
from surgery.recipe.steps import KINDS, StepReader
from surgery.registry import declare
from surgery.verification.inputs.spec import VerifySpec

if TYPE_CHECKING:
    from surgery.registry.declare import Option, Pass

DIALECT = "https://json-schema.org/draft/2020-12/schema"
BRINGS_PASSES = ("plugins", "rules")
"""The keys of a recipe by which it may name passes that nobody knows before it is loaded."""
_OPEN = "open-"
_NOTHING = {"type": ["object", "null"], "maxProperties": 0}


def schema(passes: Iterable[Pass] | None = None) -> dict[str, Any]:
    """Make the schema, with these passes, or else with all that are known."""
    known = tuple(declare.passes().values()) if passes is None else tuple(passes)
    draft = Draft("", Path())
    reader = StepReader(draft, lambda node: None)
    steps = _steps(reader, known)
    definitions = {**sections(draft), **steps, **_opened(steps), **_options(known)}
    root = _recipe(top_level(draft, reader))
    return {"$schema": DIALECT, "title": "A recipe of surgery", **root, "$defs": definitions}


def _recipe(fields: Mapping[str, Field]) -> dict[str, Any]:
    """Describe a recipe; what it brings of its own decides which passes its steps may name."""
    body = mapping(fields, required=("steps",))
    del body["properties"]["steps"]["$ref"]
    return {
        **body,
        "if": {"anyOf": [{"required": [key]} for key in BRINGS_PASSES if key in fields]},
        "then": {"properties": {"steps": defined(f"{_OPEN}steps")}},
        "else": {"properties": {"steps": defined("steps")}},
    }


def sections(draft: Draft) -> dict[str, Any]:
    """Describe the parts of a recipe besides its steps."""
    return {
        "inputs": mapping(inputs_fields(draft)),
        "tensor": {**mapping(tensor_fields(draft)), "minProperties": 1, "maxProperties": 1},
        "verify": mapping(verify_fields(draft), defaults=VerifySpec()),
        "when": mapping(when_fields(draft)),
        "expect": mapping(expect_fields(draft, of_step=False)),
        "expect-step": mapping(expect_fields(draft, of_step=True)),
        "rule": mapping(rule_fields(draft), required=("match", "emit")),
        "comparison": COMPARISON,
    }


def mapping(fields: Mapping[str, Field], required: tuple[str, ...] = (), defaults: object = None) -> dict[str, Any]:
    """Describe a mapping with fixed keys; `defaults` has an attribute for each key that has one."""
    properties = {}
    for name, field in fields.items():
        default = getattr(defaults, name, None)
        given = {"default": default} if isinstance(default, str | int | float) else {}
        properties[name] = {"description": field.about, **field.schema, **given}
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **needed, "additionalProperties": False}


def _steps(reader: StepReader, known: tuple[Pass, ...]) -> dict[str, Any]:
    """Describe the steps: a name alone, a name with options, and the three long forms."""
    bare = [declared for declared in known if not _required(declared)]
    short = {declared.name: {"description": declared.summary, **_short(declared)} for declared in known}
    forms = {
        "pass-alone": _names(bare),
        "pass-short": {
            "type": "object",
            "properties": short,
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": False,
        },
        "pass-long": {**mapping(reader.pass_fields(), required=("pass",)), "allOf": [*_withs(known)]},
        "use": mapping(reader.use_fields(), required=("use",)),
        "repeat": mapping(reader.repeat_fields(), required=("repeat", "steps")),
    }
    return {
        "steps": {"type": "array", "minItems": 1, "items": defined("step")},
        "step": {"anyOf": [defined(name) for name in forms]},
        **forms,
        "pass-name": _names(known),
        "nested": _recipe(nested_fields(reader.draft, reader)),
    }


def _names(known: Iterable[Pass]) -> dict[str, Any]:
    # Not of the standard, and known to editors.
    known = list(known)
    return {"enum": [one.name for one in known], "enumDescriptions": [one.summary for one in known]}


def _required(declared: Pass) -> list[str]:
    return [option.name for option in declared.options if option.required]


def _short(declared: Pass) -> Schema:
    """Describe what stands after the name of a pass."""
    if not declared.options:
        return _NOTHING
    options = defined(f"pass:{declared.name}")
    return options if _required(declared) else {"anyOf": [options, {"type": "null"}]}


def _withs(known: tuple[Pass, ...]) -> Iterable[dict[str, Any]]:
    """Tie `with` to the pass that stands next to it."""
    for declared in known:
        if declared.options:
            then = {"properties": {"with": defined(f"pass:{declared.name}")}}
            needed = {"required": ["with"]} if _required(declared) else {}
            yield {"if": _names_pass({"const": declared.name}), "then": {**then, **needed}}
    without = [declared.name for declared in known if not declared.options]
    yield {"if": _names_pass({"enum": without}), "then": {"properties": {"with": _NOTHING}}}


def _names_pass(name: Schema) -> dict[str, Any]:
    return {"properties": {"pass": name}, "required": ["pass"]}


def _opened(steps: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the steps once more, for recipes that bring passes of their own: any other name may be one of them."""
    opened = {f"{_OPEN}{name}": _referring(body, set(steps)) for name, body in steps.items()}
    any_name = {"type": "string", "pattern": f"^{declare.NAME_PATTERN}$"}
    for name in ("pass-alone", "pass-name"):
        opened[f"{_OPEN}{name}"] = {"anyOf": [steps[name], any_name]}
    own = {"type": ["object", "null"]}
    names = {**any_name, "not": {"enum": [*KINDS, "steps"]}}
    opened[f"{_OPEN}pass-short"] |= {"additionalProperties": own, "propertyNames": names}
    return opened


def _referring(body: Any, names: set[str]) -> Any:
    """Copy a schema, with references to these definitions turned to their open forms."""
    if isinstance(body, list):
        return [_referring(item, names) for item in body]
    if not isinstance(body, Mapping):
        return body
    target = str(body.get("$ref", "")).rpartition("/")[2]
    copied = {key: _referring(value, names) for key, value in body.items()}
    return {**copied, **defined(f"{_OPEN}{target}")} if target in names else copied


def _options(known: Iterable[Pass]) -> dict[str, Any]:
    """Describe the options of each pass that has some, and the types that these name."""
    found: dict[str, Any] = {}
    for declared in known:
        if not declared.options:
            continue
        properties = {}
        for option in declared.options:
            body = option_schema(option, f"pass:{declared.name}:{option.name}:")
            found |= body.pop("$defs", {})
            properties[option.name] = {
                "description": option.about,
                **body,
                **({} if option.required else {"default": option.plain_default}),
            }
        required = _required(declared)
        found[f"pass:{declared.name}"] = {
            "type": "object",
            "description": declared.summary,
            "properties": properties,
            **({"required": required} if required else {}),
            "additionalProperties": False,
        }
    return found


def option_schema(option: Option, prefix: str) -> dict[str, Any]:
    """Describe what an option takes; what it defines next to stands under `$defs`, with a prefix to the names."""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

    try:
        made = TypeAdapter(option.annotation).json_schema(ref_template=f"#/$defs/{prefix}{{model}}")
    except (PydanticSchemaGenerationError, PydanticUserError):
        return {}
    inner = {f"{prefix}{name}": body for name, body in made.pop("$defs", {}).items()}
    return {**made, "$defs": inner} if inner else made
