"""The plan of a run as a document: every match site, and the dependencies of the plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from surgery.base.errors import UsageError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

FORMAT: Final = "surgery-plan"
FORMAT_VERSION: Final = 1

MAX_BYTES: Final = 1 << 30

Checks = Literal["none", "each", "end"]
"""The verification while the plan was made: none, each step, or the result as a whole."""

Operations = int | str | None
"""Floating-point operations of one run: a number, or an expression in the names of dims; None if unknown."""


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)


class Savings(_Entry):
    """The saved nodes, bytes, and operations of one run; negative if there are more afterwards."""

    nodes: int
    bytes: int
    operations: Operations = None


class PlannedNode(_Entry):
    """A node, with its operator if known."""

    name: str
    op: str | None = None


class PlannedSite(_Entry):
    """One match site.

    `origins` are the nodes of the original model that the removed nodes come from, and `outputs` the values of removed
    nodes that other nodes read. `saves.bytes` counts the weights that only this site reads. A site with `skip` is not
    applied.
    """

    site: Annotated[int, Field(ge=1)]
    anchor: str
    removes: tuple[PlannedNode, ...]
    adds: tuple[PlannedNode, ...]
    origins: tuple[str, ...]
    outputs: tuple[str, ...]
    saves: Savings
    skip: bool = False


class PlannedStep(_Entry):
    """A step with its sites. `where` is the recipe file and line; a step in a repetition occurs once per round."""

    step: Annotated[int, Field(ge=1)]
    name: Annotated[str, Field(alias="pass")]
    where: str
    nodes_before: int
    nodes_after: int
    saves: Savings
    sites: tuple[PlannedSite, ...]


class ModelBasis(_Entry):
    """The model of a plan: its path relative to the folder of the plan, and the digests of its content and parts."""

    path: str | None
    digest: str
    parts: Mapping[str, str] = {}


class Basis(_Entry):
    """The dependencies of a plan.

    `recipe` is the name of a shipped recipe, or the path of a recipe relative to the folder of the plan. `pins` are
    those of a lock, see `surgery.engine.provenance.lock`; `settings` are the flags that the plan was made with.
    """

    model: ModelBasis
    recipe: str
    pins: Mapping[str, Any]
    settings: Mapping[str, Any]


class Totals(_Entry):
    """The size of a model: nodes, bytes of its files, and operations of one run."""

    nodes: int
    bytes: int
    operations: Operations = None


class PlannedExpectation(_Entry):
    """An expectation of the recipe, and whether the planned result meets it."""

    what: str
    ok: bool


class Plan(_Entry):
    """The changes that a recipe makes to a model.

    If `again` is set, the result failed verification as a whole, and the steps are those of a second run in which each
    step was compared on the whole model.
    """

    format: Literal["surgery-plan"] = FORMAT
    format_version: Literal[1] = FORMAT_VERSION
    verified: Checks
    again: bool = False
    basis: Basis
    before: Totals
    after: Totals
    expectations: tuple[PlannedExpectation, ...]
    steps: tuple[PlannedStep, ...]

    @property
    def sites(self) -> int:
        """The number of sites that are not skipped."""
        return sum(not site.skip for step in self.steps for site in step.sites)

    @property
    def is_edited(self) -> bool:
        """Whether a site is skipped."""
        return any(site.skip for step in self.steps for site in step.sites)

    def to_json(self) -> dict[str, Any]:
        """Return the document as plain values."""
        found: dict[str, Any] = self.model_dump(mode="json")
        return found

    def text(self) -> str:
        """Return the text of the document file, with one line per site; equal plans have equal bytes."""
        whole = self.to_json()
        steps = [
            f"{_line(step | {'sites': []})[:-2]}\n{_lines(step['sites'], '   ')}\n  ]}}" for step in whole["steps"]
        ]
        head = json.dumps(whole | {"steps": []}, indent=1, ensure_ascii=False)
        if not steps:
            return f"{head}\n"
        return head.removesuffix("[]\n}") + "[\n  " + ",\n  ".join(steps) + "\n ]\n}\n"


def _lines(entries: list[Any], indent: str) -> str:
    return ",\n".join(f"{indent}{_line(entry)}" for entry in entries)


def _line(entry: Any) -> str:
    return json.dumps(entry, ensure_ascii=False)


def is_plan(data: bytes) -> bool:
    """Return whether data begins like a plan file."""
    head = data[:200].lstrip(b"\xef\xbb\xbf \t\r\n").replace(b" ", b"")
    return head.startswith(b"{") and f'"format":"{FORMAT}"'.encode() in head


def read(path: Path) -> Plan:
    """Read a plan from a file. Raises UsageError, which names the invalid field."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    return parse(data, str(path))


def parse(data: bytes, where: str) -> Plan:
    """Read a plan from the bytes of a file, which messages call `where`. Raises UsageError."""
    todo = "make the plan again: surgery plan RECIPE MODEL -o FILE"
    try:
        found = json.loads(data)
    except ValueError as error:
        raise UsageError(f"this is not valid JSON: {error}", where=where, todo=todo) from error
    version = found.get("format_version") if isinstance(found, dict) else None
    if version != FORMAT_VERSION:
        what = f"the plan has format version {version!r}, and this release reads {FORMAT_VERSION}"
        raise UsageError(what, where=where, todo=todo)
    try:
        return Plan.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the plan"
        raise UsageError(f"{place}: {_problem(first)}", where=where, todo=todo) from error


_JSON_TYPES: Final = {
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type", "mapping_type"), "an object"),
    "string_type": "text",
}
"""The JSON types that fields take, by the kind of pydantic's error."""


def _problem(error: ErrorDetails) -> str:
    """Describe an error of validation in terms of JSON."""
    takes = _JSON_TYPES.get(error["type"])
    return f"it must be {takes}" if takes else error["msg"]
