"""Building blocks of the models of recipes: the base of all sections, and validators for the nodes of a YAML text.

Pydantic is given nodes, not plain values, so that every validator knows the position of its value. Exceptions of
validators are converted to messages in `Draft.read`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic_core import core_schema
from typing_extensions import TypeAliasType

from surgery.base.frozen_dict import FrozenDict
from surgery.engine.recipe.count_condition import CountCondition
from surgery.engine.recipe.draft import Draft, NamedError, TakesError
from surgery.engine.yaml.spelling import nearest
from surgery.engine.yaml.yaml_nodes import Listing, Scalar, Table, YamlNode, is_null, key_text, quoted

_CONTROL = re.compile("[\x00-\x1f\x7f]")


class Section(BaseModel):
    """A mapping with fixed keys. Reading it makes a `makes` from the keys with a value.

    `wanted` describes the mapping in messages, and `needs` has the messages for missing required keys. With
    `checks_rest`, the value is also made without the invalid keys, to find further mistakes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, defer_build=True)

    makes: ClassVar[Any] = dict
    wanted: ClassVar[str] = "a mapping"
    checks_rest: ClassVar[bool] = False
    needs: ClassVar[dict[str, str]] = {}

    @classmethod
    def keys(cls) -> dict[str, str]:
        """Return the keys, with the names of their fields."""
        return {field.alias or name: name for name, field in cls.model_fields.items()}

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, node: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        draft = info.context
        if isinstance(node, dict):  # pydantic calls the wrap validator of a recursive model twice
            return handler(node)
        if not isinstance(node, Table):
            raise TakesError(cls.wanted)
        assert isinstance(draft, Draft)
        found = cls._values(draft, node)
        cls.seen(draft, node, found)
        try:
            made: Self = handler(found)._made(draft, node)
            return made
        except ValidationError as error:
            wrong = {part for mistake in error.errors() for part in mistake["loc"][:1]}
            if cls.checks_rest and wrong.isdisjoint(cls.needs) and wrong & found.keys():
                handler({name: value for name, value in found.items() if name not in wrong})._made(draft, node)
            raise

    @classmethod
    def _values(cls, draft: Draft, node: Table) -> dict[str, YamlNode]:
        """Return the values by key, without null values; the first of two equal keys counts."""
        known = cls.keys()
        cls._correct(draft, node, known)
        found: dict[str, YamlNode] = {}
        for at, value in node.pairs:
            name = key_text(at)
            if name in known and not is_null(value):
                found.setdefault(str(name), value)
        empty = {key_text(at): at for at, _ in reversed(node.pairs)}
        for name, message in cls.needs.items():
            if name not in found and not node.open:
                draft.problem(empty.get(name, node), message.format(quoted(draft.reading)))
        return found

    @staticmethod
    def _correct(draft: Draft, node: Table, known: Mapping[str, str]) -> None:
        """Report unknown keys; the value of a misspelled key is read as that of the nearest known key."""
        given = {key_text(at) for at, _ in node.pairs}
        for number, (at, value) in enumerate(node.pairs):
            name = draft.key(at)
            if name is None or name in known:
                continue
            near = nearest(name, known)
            hint = f"did you mean '{near}'?" if near else f"known here: {', '.join(known)}"
            draft.problem(at, f"no key {quoted(name)}; {hint}")
            if near is not None and near not in given:
                node.pairs[number] = Scalar(at.line, at.column, near, near), value

    def _made(self, draft: Draft, node: Table) -> Any:
        return self.made(draft, node, {name: getattr(self, name) for name in self.model_fields_set})

    @classmethod
    def seen(cls, draft: Draft, node: Table, found: dict[str, YamlNode]) -> None:
        """Record data that counts even if the section has mistakes."""

    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> Any:
        """Make the value of this section in the recipe."""
        return self.makes(**given)


def key(about: str, **more: Any) -> Any:
    """Declare an optional key of a section."""
    return Field(default=None, description=about, **more)


def needed(about: str, **more: Any) -> Any:
    """Declare a required key of a section."""
    return Field(description=about, **more)


def reads(read: Callable[[YamlNode, Draft], Any]) -> WrapValidator:
    """Read a value with a function; the annotated type is used only for the JSON schema."""
    return WrapValidator(lambda node, _, info: read(node, info.context))


def value_of(node: YamlNode) -> Any:
    """Return the value of a scalar; None for other nodes."""
    return node.value if isinstance(node, Scalar) else None


def takes(wanted: str, *kinds: type) -> BeforeValidator:
    """Accept values of these types; a bool does not count as a number, and a number must be finite."""

    def read(node: YamlNode) -> Any:
        value = value_of(node)
        is_kind = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        if not is_kind or (isinstance(value, float) and not math.isfinite(value)):
            raise TakesError(wanted)
        return value

    return BeforeValidator(read)


def text(wanted: str = "text", *, lines: bool = False) -> BeforeValidator:
    """Accept a non-blank text, on one line unless `lines`."""
    return BeforeValidator(lambda node: read_text(node, wanted, lines=lines))


def read_text(node: YamlNode, wanted: str, *, lines: bool = False) -> str:
    """Return a non-blank text, on one line unless `lines`."""
    value = value_of(node)
    if not isinstance(value, str) or not value.strip():
        raise TakesError(wanted)
    if not lines and _CONTROL.search(value.rstrip("\n")):
        raise NamedError(f"{{}} takes {wanted} on one line, without control characters")
    return value.rstrip("\n")


def entries(wanted: str) -> BeforeValidator:
    """Accept a mapping with arbitrary keys."""

    def read(node: YamlNode, info: ValidationInfo[Draft]) -> dict[str, YamlNode]:
        if not isinstance(node, Table):
            raise TakesError(wanted)
        found: dict[str, YamlNode] = {}
        for at, value in node.pairs:
            name = info.context.key(at)
            if name is not None:
                found.setdefault(name, value)
        return found

    return BeforeValidator(read)


@dataclass(frozen=True)
class OneOrMore:
    """Marks a list that may be written as a single item; `empty` is the message for an empty list, if not allowed."""

    empty: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self._items, handler(source))

    def _items(self, node: YamlNode) -> list[YamlNode]:
        if self.empty and not items(node):
            raise NamedError(self.empty)
        return items(node)

    def __get_pydantic_json_schema__(self, core: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        listed = handler(core)
        return {"anyOf": [listed["items"], {**listed, **({"minItems": 1} if self.empty else {})}]}


def items(node: YamlNode) -> list[YamlNode]:
    """Return the items of a list; a single value is a list of one item."""
    return node.items if isinstance(node, Listing) else [node]


def _count(node: YamlNode, _: Draft) -> CountCondition:
    if isinstance(node, Scalar) and node.styled and not node.text:
        # YAML reads an unquoted `>1` or `>` as the start of a block text on the following lines.
        raise NamedError("{} has an empty text here; put the comparison in quotes: '>= 1'")
    value = value_of(node)
    if value is None or isinstance(value, float | bool):
        raise TakesError("a number or a comparison such as '>= 1'")
    return CountCondition.parse(value)


Line = Annotated[str, Field(pattern=r"\S")]
Flag = Annotated[bool, takes("true or false", bool)]
Whole = Annotated[int, Field(ge=0), takes("a whole number", int)]
Unsigned = Annotated[float, Field(ge=0), takes("a number", int, float)]
Word = BeforeValidator(lambda node: node.text if isinstance(node, Scalar) else None)
"""Accepts a text as written, for a choice among words."""
Frozen = AfterValidator(FrozenDict)

_COUNTS = [
    {"type": "integer", "minimum": 0},
    {"type": "string", "pattern": r"^\s*(==|!=|<=|>=|<|>)?\s*[0-9]{1,18}\s*$"},
]
Count = TypeAliasType("Count", Annotated[Any, reads(_count), WithJsonSchema({"anyOf": _COUNTS})])
"""A comparison of a count with a number."""
