"""What the models of recipes are built from: the base of all sections, and validators for the nodes of a YAML text.

Pydantic is given nodes, not plain values, so that every validator knows where its value stands. What a validator
raises becomes a message in `Draft.read`.
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

from surgery.recipe.comparison import Comparison
from surgery.recipe.draft import Draft, NamedError, TakesError
from surgery.recipe.nodes import Listing, Node, Scalar, Table, is_null, key_text, quoted
from surgery.recipe.spelling import nearest
from surgery.verification.inputs.spec import FrozenDict

_CONTROL = re.compile("[\x00-\x1f\x7f]")


class Section(BaseModel):
    """A mapping with fixed keys. Reading one gives a `makes`, from the keys that have a value.

    `wanted` says what must be there, `needs` what is missing where a required key is. With `checks_rest`, one is
    made without the keys that are wrong too, for the mistakes that are found then.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, defer_build=True)

    makes: ClassVar[Any] = dict
    wanted: ClassVar[str] = "a mapping"
    checks_rest: ClassVar[bool] = False
    needs: ClassVar[dict[str, str]] = {}

    @classmethod
    def keys(cls) -> dict[str, str]:
        """List the keys, with the names of their fields."""
        return {field.alias or name: name for name, field in cls.model_fields.items()}

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, node: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        draft = info.context
        if isinstance(node, dict):  # pydantic calls a wrapping validator of a model that is in itself twice
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
    def _values(cls, draft: Draft, node: Table) -> dict[str, Node]:
        """Give the values by their keys, without those of which nothing is said; the first of two equal keys counts."""
        known = cls.keys()
        cls._correct(draft, node, known)
        found: dict[str, Node] = {}
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
        """Note keys that do not exist; what is under a misspelt one is read as what was meant."""
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
    def seen(cls, draft: Draft, node: Table, found: dict[str, Node]) -> None:
        """Note what counts even if something in the section is wrong."""

    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> Any:
        """Make the value that the recipe has of this section."""
        return self.makes(**given)


def key(about: str, **more: Any) -> Any:
    """Declare a key of a section that may be left out."""
    return Field(default=None, description=about, **more)


def needed(about: str, **more: Any) -> Any:
    """Declare a key that a section needs."""
    return Field(description=about, **more)


def reads(read: Callable[[Node, Draft], Any]) -> WrapValidator:
    """Read a value by a function; the type that it is next to is the one of the JSON schema."""
    return WrapValidator(lambda node, _, info: read(node, info.context))


def value_of(node: Node) -> Any:
    """Give the value of a scalar; None for anything else."""
    return node.value if isinstance(node, Scalar) else None


def takes(wanted: str, *kinds: type) -> BeforeValidator:
    """Let values of these types pass; a bool is no number, and a number is finite."""

    def read(node: Node) -> Any:
        value = value_of(node)
        is_kind = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        if not is_kind or (isinstance(value, float) and not math.isfinite(value)):
            raise TakesError(wanted)
        return value

    return BeforeValidator(read)


def text(wanted: str = "text", *, lines: bool = False) -> BeforeValidator:
    """Let a text pass that says something, on one line unless `lines`."""
    return BeforeValidator(lambda node: read_text(node, wanted, lines=lines))


def read_text(node: Node, wanted: str, *, lines: bool = False) -> str:
    """Give a text that says something, on one line unless `lines`."""
    value = value_of(node)
    if not isinstance(value, str) or not value.strip():
        raise TakesError(wanted)
    if not lines and _CONTROL.search(value.rstrip("\n")):
        raise NamedError(f"{{}} takes {wanted} on one line, without control characters")
    return value.rstrip("\n")


def entries(wanted: str) -> BeforeValidator:
    """Let a mapping with free keys pass."""

    def read(node: Node, info: ValidationInfo[Draft]) -> dict[str, Node]:
        if not isinstance(node, Table):
            raise TakesError(wanted)
        found: dict[str, Node] = {}
        for at, value in node.pairs:
            name = info.context.key(at)
            if name is not None:
                found.setdefault(name, value)
        return found

    return BeforeValidator(read)


@dataclass(frozen=True)
class OneOrMore:
    """Marks a list whose only member may stand alone; `empty` is said of one without members, if that is wrong."""

    empty: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self._items, handler(source))

    def _items(self, node: Node) -> list[Node]:
        if self.empty and not items(node):
            raise NamedError(self.empty)
        return items(node)

    def __get_pydantic_json_schema__(self, core: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        listed = handler(core)
        return {"anyOf": [listed["items"], {**listed, **({"minItems": 1} if self.empty else {})}]}


def items(node: Node) -> list[Node]:
    """Give the members of a list; a value alone is a list of one."""
    return node.items if isinstance(node, Listing) else [node]


def _count(node: Node, _: Draft) -> Comparison:
    if isinstance(node, Scalar) and node.styled and not node.text:
        # YAML reads an unquoted `>1` or `>` as the start of a text on the lines below.
        raise NamedError("{} has an empty text here; put the comparison in quotes: '>= 1'")
    value = value_of(node)
    if value is None or isinstance(value, float | bool):
        raise TakesError("a number or a comparison such as '>= 1'")
    return Comparison.parse(value)


Line = Annotated[str, Field(pattern=r"\S")]
Flag = Annotated[bool, takes("true or false", bool)]
Whole = Annotated[int, Field(ge=0), takes("a whole number", int)]
Unsigned = Annotated[float, Field(ge=0), takes("a number", int, float)]
Word = BeforeValidator(lambda node: node.text if isinstance(node, Scalar) else None)
"""Takes a text as it was written, for a choice among words."""
Frozen = AfterValidator(FrozenDict)

_COUNTS = [
    {"type": "integer", "minimum": 0},
    {"type": "string", "pattern": r"^\s*(==|!=|<=|>=|<|>)?\s*[0-9]{1,18}\s*$"},
]
Count = TypeAliasType("Count", Annotated[Any, reads(_count), WithJsonSchema({"anyOf": _COUNTS})])
"""A comparison of a count with a number."""
