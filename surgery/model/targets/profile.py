"""The YAML of a target profile: its keys, and its conversion to a target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from surgery.base.errors import Problem
from surgery.model.targets.identifiers import attribute, element_type, operator, parameters
from surgery.model.targets.positioned_yaml import Document, DocumentPath, Wrong, load
from surgery.model.targets.support import ANY_RANK, ANY_VERSION, FIRST, MANY, ONNX, Support
from surgery.model.targets.target import Elsewhere, Key, Limits, Target


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _bounds(given: Any) -> Any:
    """Convert a number to a range of one, and a list to a pair; without a second item, the range is open."""
    if isinstance(given, int) and not isinstance(given, bool):
        return (given, given)
    if isinstance(given, list) and (len(given) == 1 or given[1:] == [None]):
        return (given[0], MANY)
    return tuple(given) if isinstance(given, list) else given


def _ordered(given: tuple[int, int]) -> tuple[int, int]:
    if not 0 <= given[0] <= given[1]:
        raise ValueError(f"{given[0]} to {given[1]} is not a range")
    return given


_RANGE = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": ["integer", "null"]}},
    ]
}
Range = Annotated[
    tuple[int, int],
    BeforeValidator(_bounds, json_schema_input_type=int | list[int | None]),
    AfterValidator(_ordered),
    Field(json_schema_extra=_RANGE),
]
"""A first and a last number, one number for both, or `[first]` if there is no last one."""

Texts = Annotated[tuple[str, ...], BeforeValidator(lambda given: tuple(given) if isinstance(given, list) else given)]
Types = Annotated[Texts, AfterValidator(element_type)]


def _by_variable(given: Any) -> Any:
    return {FIRST: given} if isinstance(given, list) else given


def _texts(given: Any) -> Any:
    return tuple(given) if isinstance(given, list) else (given,)


class Operator(_Section):
    """The supported part of an operator."""

    versions: Range = Field(ANY_VERSION, description="The first and the last version of the operator.")
    types: Annotated[
        dict[str, Types], BeforeValidator(_by_variable, json_schema_input_type=list[str] | dict[str, list[str]])
    ] = Field(
        {},
        description="The element types of the first input, as a list, or those of each type variable of the operator.",
    )
    rank: Range = Field(ANY_RANK, description="The number of dims of the first input.")
    constant: Texts = Field((), description="Inputs, by name, that must be constants.")
    zeros: Texts = Field((), description="Inputs, by name, that must be absent, or constants whose elements are all 0.")
    attributes: Annotated[
        dict[str, Annotated[tuple[Any, ...], BeforeValidator(_texts, json_schema_input_type=Any)]], Field()
    ] = Field({}, description="Values that are run, by attribute. An attribute that is absent has its default.")
    outputs: int = Field(MANY, description="The largest number of outputs.", ge=1)

    def support(self) -> Support:
        """Return the operator as a row of a target."""
        types = {variable: frozenset(names) for variable, names in self.types.items()}
        return Support(
            self.versions, types, self.rank, self.constant, self.zeros, self.attributes, outputs=self.outputs
        )


class Limit(_Section):
    """Limits on the model as a whole."""

    rank: int = Field(MANY, description="The largest number of dims of a value.", ge=1)
    dynamic_dims: bool = Field(True, description="Whether a dim may be a name, or depend on data.")
    subgraphs: bool = Field(True, description="Whether If, Loop and Scan are run.")
    functions: bool = Field(True, description="Whether a model may have local functions.")
    bytes: int = Field(0, description="The maximum size of all constants in bytes; 0 means no limit.", ge=0)


class Preferred(_Section):
    """The preferred form, if several can be run. Passes query it."""

    skip_normalization: Literal["fused", "separate", ""] = Field("", description="A sum and the norm over it.")
    conv_activation: Literal["fused", "separate", ""] = Field("", description="A Conv and the activation after it.")
    hard_sigmoid: Literal["fused", "clipped", ""] = Field(
        "", description="A linear function clipped to 0 and 1: HardSigmoid, or Clip and the operators around it."
    )
    rotated_half: Literal["negated", "signed", ""] = Field(
        "", description="The half of a rotary embedding with another sign: negated itself, or by the signs of the sine."
    )
    grouped_heads: Literal["repeated", "broadcast", ""] = Field(
        "", description="Keys and values of grouped heads: repeated for each query, or broadcast to them."
    )
    linear_layers: Literal["flat", "batched", ""] = Field(
        "", description="Linear layers of a batch of sequences: on matrices of all rows, or on the batch as it is."
    )
    group_query_attention: Literal["any_mask", "causal", ""] = Field(
        "", description="GroupQueryAttention: under any mask, or only where the mask hides future keys and no others."
    )


def _rows(given: Any) -> Any:
    """Convert null to a row without restrictions, and a single row to a list of one."""
    return tuple({} if row is None else row for row in (given if isinstance(given, list) else [given]))


_Rows = Annotated[
    tuple[Operator, ...],
    BeforeValidator(_rows, json_schema_input_type=Operator | list[Operator] | None),
]


class Profile(_Section):
    """A target, as its file describes it."""

    target: str = Field(description="The name.", pattern=r"^\S+$")
    about: str = Field("", description="What it is.")
    source: str = Field("", description="The source of the facts.")
    date: Annotated[str, BeforeValidator(str)] = Field("", description="The date of these facts.")
    provider: str = Field(
        "",
        description="The execution provider of ONNX Runtime. Where the installed ONNX Runtime has it, its kernels "
        "are used, and `operators` is ignored.",
    )
    release: str = Field(
        "",
        description="A release of ONNX Runtime: its CPU kernels are the operators that are run, whatever is installed. "
        "1.20 and later are known.",
        pattern=r"^(\d+\.\d+(\.\d+)?)?$",
    )
    runtime: Literal["", Elsewhere] = Field(
        "", description="Another runtime than ONNX Runtime, in which results run as deployed if it is installed."
    )
    domains: Texts = Field(
        (ONNX,),
        description="The domains whose operators passes may make, and single operators of other domains, as "
        "`domain::name`.",
    )
    opset: Range = Field(ANY_VERSION, description="The first and the last opset of the default domain.")
    ir_version: Range = Field(ANY_VERSION, description="The first and the last IR version.")
    types: Types = Field((), description="The element types of values that are computed. Constants may have others.")
    operators: dict[str, _Rows] = Field(
        {},
        description="The supported part of each operator, by its name, with a domain as `domain::name`. Nothing means "
        "all of it, a list means several ranges of versions. Without this key, all operators in `domains` are run.",
    )
    plugins: Texts = Field(
        (), description="The names of operators that onnx does not define and plugins run, whatever their domain."
    )
    excluded: dict[str, str] = Field({}, description="Operators that are not run, with the reason.")
    limits: Limit = Field(Limit.model_validate({}), description="Limits on the model as a whole.")
    expands: bool = Field(
        False, description="Whether an operator without a kernel is run through its function body in the standard."
    )
    widens: dict[str, str] = Field({}, description="Element types that are computed in a wider type, such as float16.")
    prefers: Preferred = Field(Preferred.model_validate({}), description="The preferred form, if several can be run.")
    rounded_sums: dict[str, Literal["elements", "squares", "mean-square"]] | None = Field(
        None,
        description="Operators whose kernels round a sum to the element type on the way to their result, so that it "
        "overflows in float16: the sum of the elements, of their squares, or the mean of the squares along the last "
        "axis. Without this key, every mean and norm is taken to do so.",
    )

    def made(self) -> Target:
        """Return the target."""
        listed = {_key(name): tuple(row.support() for row in rows) for name, rows in self.operators.items()}
        excluded = {_key(name): reason for name, reason in self.excluded.items()}
        prefers = {name: wish for name, wish in self.prefers if wish}
        source = " ".join(filter(None, (self.source, f"({self.date})" if self.date else "")))
        return Target(
            *(self.target, self.about, source, self.provider, frozenset(self.domains), self.opset, self.ir_version),
            types=frozenset(self.types),
            listed=listed,
            excluded=excluded,
            limits=Limits(**dict(self.limits)),
            expands=self.expands,
            widens=self.widens,
            prefers=prefers,
            rounded_sums=self.rounded_sums,
            plugins=frozenset(self.plugins),
            runtime=self.runtime,
            release=self.release,
        )


def read(path: Path, *, shipped: bool = False) -> Target:
    """Read a profile; raise `UsageError` if the file does not exist, and `RecipeError` with all mistakes in it.

    The names of operators in a shipped profile are not compared with the installed onnx, which may be older.
    """
    document = load(path)
    problems: list[Problem] = []
    try:
        profile = Profile.model_validate(document.value)
    except ValidationError as error:
        problems += [_problem(document, one) for one in error.errors()]
    else:
        problems += [] if shipped else [document.problem(place, words) for place, words in _wrong(profile)]
    document.check(problems)
    return profile.made()


def _problem(document: Document, error: Mapping[str, Any]) -> Problem:
    place = [part for part in error["loc"] if not isinstance(part, str) or not part.startswith("function-")]
    if error["type"] == "extra_forbidden":
        section = _section(place[:-1])
        return document.unknown_key(place, [*section.model_fields] if section else [])
    if not place:
        return document.problem(DocumentPath(), "a profile is a mapping with 'target'")
    message = str(error["msg"]).removeprefix("Value error, ")
    words = _WORDS.get(error["type"], f"{message[:1].lower()}{message[1:]}")
    return document.problem(DocumentPath(place), f"'{_last(place)}': {words}")


_WORDS = {
    "bool_type": "takes true or false",
    "dict_type": "takes a mapping",
    "int_type": "takes a whole number",
    "missing": "is required",
    "model_type": "takes a mapping",
    "string_type": "takes a text",
    "tuple_type": "takes a list",
}


def _last(place: list[Any]) -> str:
    return next((part for part in reversed(place) if isinstance(part, str) and part), "")


def _section(place: list[Any]) -> type[BaseModel] | None:
    """Return the model of the mapping at a place."""
    if not place:
        return Profile
    sections: dict[str, type[BaseModel]] = {"operators": Operator, "limits": Limit, "prefers": Preferred}
    return sections.get(str(place[0]))


def _wrong(profile: Profile) -> Iterator[Wrong]:
    """Yield the mistakes that are found only with the schemas of operators."""
    for name, rows in profile.operators.items():
        domain, op = _key(name)
        words = operator(domain, op, profile.opset[1])
        if words:
            yield DocumentPath(["operators", name], key=True), words
            continue
        for number, row in enumerate(rows):
            yield from _wrong_in_row(row, domain, op, ["operators", name, number])
    for name in profile.excluded:
        if words := operator(*_key(name), profile.opset[1]):
            yield DocumentPath(["excluded", name], key=True), words


def _wrong_in_row(row: Operator, domain: str, op: str, here: list[str | int]) -> Iterator[Wrong]:
    """Yield the inputs and attributes in a row, which is `here` in the document, that the operator does not have."""
    for key, inputs in (("constant", row.constant), ("zeros", row.zeros)):
        for one in inputs:
            if words := parameters(domain, op, one):
                yield DocumentPath([*here, key]), words
    for one in row.attributes:
        if words := attribute(domain, op, one):
            yield DocumentPath([*here, "attributes", one], key=True), words


def _key(name: str) -> Key:
    domain, _, op = name.rpartition("::")
    return "" if domain == ONNX else domain, op
