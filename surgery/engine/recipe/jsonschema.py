"""The JSON schema of recipes (draft 2020-12), with all known passes and their options.

It is generated from the models of the loader, so that an editor suggests what the loader accepts. A schema cannot
express everything: only the loader knows whether a file exists, or whether a condition can hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from surgery.engine.recipe import model
from surgery.engine.recipe.model import BRINGS_PASSES
from surgery.engine.recipe.schema import KINDS
from surgery.engine.registry.arithmetic import ARITHMETIC_PATTERN
from surgery.engine.registry.catalog import catalog
from surgery.engine.registry.passes import NAME_PATTERN
from surgery.verification.inputs.spec import VerifySpec

if TYPE_CHECKING:
    from surgery.engine.registry.options import Option
    from surgery.engine.registry.passes import Pass

Schema = Mapping[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_LEFT_OUT = ("title", "description")
_OPEN = "open-"
_TEXT = {"type": "string", "pattern": r"\S"}
_NOTHING = {"type": ["object", "null"], "maxProperties": 0}


def schema(passes: Iterable[Pass] | None = None) -> dict[str, Any]:
    """Return the schema with these passes, or by default with all known passes."""
    known = tuple(catalog.passes().values()) if passes is None else tuple(passes)
    made = sections()
    root = _recipe(made.pop("recipe"))
    steps = _steps(known, {name: made.pop(name) for name in ("pass-long", "use", "repeat", "nested")})
    definitions = {**made, **steps, **_opened(steps), **_options(known)}
    return {"$schema": DIALECT, **root, "title": "A recipe of surgery", "$defs": definitions}


def of_profiles() -> dict[str, Any]:
    """Return the schema of target profiles."""
    from surgery.model.targets import shipped as targets
    from surgery.model.targets.profile import Profile

    made = Profile.model_json_schema()
    made["properties"]["target"]["examples"] = [*targets.names()]
    return {"$schema": DIALECT, **made, "title": "A target profile of surgery"}


class _Generator(GenerateJsonSchema):
    """Names definitions after their models, in kebab case; omits titles and default values of None."""

    def normalize_name(self, name: str) -> str:
        return re.sub("(?<=[a-z])(?=[A-Z])", "-", super().normalize_name(name)).lower()

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: Any) -> dict[str, Any]:
        return {key: value for key, value in super().model_schema(schema).items() if key not in _LEFT_OUT}

    def default_schema(self, schema: Any) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])


def sections() -> dict[str, Any]:
    """Return the schema of each model by name; the names of steps and passes depend on the known passes."""
    models = (model.Recipe, model.Nested, model.PassLong, model.Use, model.Repeat)
    _, made = models_json_schema([(one, "validation") for one in models], schema_generator=_Generator)
    found: dict[str, Any] = made["$defs"]
    found["pass-long"]["properties"]["pass"] |= defined("pass-name")
    found["use"]["properties"]["use"]["anyOf"] = [_TEXT, defined("nested")]
    found["repeat"]["properties"]["steps"] |= defined("steps")
    for name, body in found["verify"]["properties"].items():
        default = getattr(VerifySpec, name, None)
        if isinstance(default, str | int | float):
            body["default"] = default
    return found


def defined(name: str) -> dict[str, str]:
    """Return a reference to a definition."""
    return {"$ref": f"#/$defs/{name}"}


def _recipe(body: Mapping[str, Any]) -> dict[str, Any]:
    """Allow other pass names in the steps only if the recipe has passes of its own."""
    properties = {**body["properties"]}
    properties["steps"] = {"description": properties["steps"]["description"]}
    return {
        **body,
        "properties": properties,
        "if": {"anyOf": [{"required": [key]} for key in BRINGS_PASSES if key in properties]},
        "then": {"properties": {"steps": defined(f"{_OPEN}steps")}},
        "else": {"properties": {"steps": defined("steps")}},
    }


def _steps(known: tuple[Pass, ...], made: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schemas of steps: a name alone, a name with options, and the three long forms."""
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
        "pass-long": {**made["pass-long"], "allOf": [*_withs(known)]},
        "use": made["use"],
        "repeat": made["repeat"],
    }
    return {
        "steps": {"type": "array", "minItems": 1, "items": defined("step")},
        "step": {"anyOf": [defined(name) for name in forms]},
        **forms,
        "pass-name": _names(known),
        "nested": _recipe(made["nested"]),
    }


def _names(known: Iterable[Pass]) -> dict[str, Any]:
    # `enumDescriptions` is not standard, but editors support it.
    known = list(known)
    return {"enum": [one.name for one in known], "enumDescriptions": [one.summary for one in known]}


def _required(declared: Pass) -> list[str]:
    return [option.name for option in declared.options if option.required]


def _short(declared: Pass) -> Schema:
    """Return the schema of the options after the name of a pass."""
    if not declared.options:
        return _NOTHING
    options = defined(f"pass:{declared.name}")
    return options if _required(declared) else {"anyOf": [options, {"type": "null"}]}


def _withs(known: tuple[Pass, ...]) -> Iterable[dict[str, Any]]:
    """Yield conditions that tie `with` to the pass of the step."""
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
    """Return the step schemas for recipes with passes of their own, which allow any other name."""
    opened = {f"{_OPEN}{name}": _referring(body, set(steps)) for name, body in steps.items()}
    any_name = {"type": "string", "pattern": f"^{NAME_PATTERN}$"}
    for name in ("pass-alone", "pass-name"):
        opened[f"{_OPEN}{name}"] = {"anyOf": [steps[name], any_name]}
    own = {"type": ["object", "null"]}
    names = {**any_name, "not": {"enum": [*KINDS, "steps"]}}
    opened[f"{_OPEN}pass-short"] |= {"additionalProperties": own, "propertyNames": names}
    return opened


def _referring(body: Any, names: set[str]) -> Any:
    """Return a copy of a schema, with references to these definitions replaced by their open forms."""
    if isinstance(body, list):
        return [_referring(item, names) for item in body]
    if not isinstance(body, Mapping):
        return body
    target = str(body.get("$ref", "")).rpartition("/")[2]
    copied = {key: _referring(value, names) for key, value in body.items()}
    return {**copied, **defined(f"{_OPEN}{target}")} if target in names else copied


def _options(known: Iterable[Pass]) -> dict[str, Any]:
    """Return the schemas of the options of each pass, and of the types that they refer to."""
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
    """Return the schema of an option; its own definitions are under `$defs`, with a prefix."""
    try:
        made = TypeAdapter(option.annotation).json_schema(ref_template=f"#/$defs/{prefix}{{model}}")
    except (PydanticSchemaGenerationError, PydanticUserError):
        return {}
    made = _with_arithmetic(made)
    inner = {f"{prefix}{name}": body for name, body in made.pop("$defs", {}).items()}
    return {**made, "$defs": inner} if inner else made


def _with_arithmetic(made: Any) -> Any:
    """Let texts such as "1/255" stand for numbers where no other text may, as `Option.validate` reads them."""
    if isinstance(made, list):
        return [_with_arithmetic(one) for one in made]
    if not isinstance(made, dict):
        return made
    if made.get("type") in ("number", "integer"):
        return {"anyOf": [made, {"type": "string", "pattern": ARITHMETIC_PATTERN}]}
    choices = made.get("anyOf", ())
    if any(one.get("type") == "string" or "const" in one or "enum" in one for one in choices):
        return made
    return {key: _with_arithmetic(part) for key, part in made.items()}
