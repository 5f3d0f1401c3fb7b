"""One model of a batch: its source, its recipe, and the path of its result."""

from __future__ import annotations

from dataclasses import dataclass, field

from surgery.base.json_record import Record


@dataclass(frozen=True)
class Entry:
    """A model of a batch. `name` is its output path below the output folder, in POSIX form, and identifies it.

    `model` is an absolute path or a URL, `inputs` are absolute paths, `recipe` is an absolute path, a URL or the name
    of a shipped recipe. `skip` is the reason why the model is skipped; it is empty otherwise. `where` is the place in a
    manifest, `path:line`.
    """

    name: str
    model: str
    recipe: str
    inputs: tuple[str, ...] = ()
    skip: str = ""
    where: str = field(default="", compare=False)
    version: str = field(default="", compare=False)
    """An identifier that changes with the object at the URL, if it was listed."""


@dataclass(frozen=True)
class Settings(Record):
    """Settings for all models of a batch. Missing ones are taken from the recipes."""

    trust: bool = False
    plugins: tuple[str, ...] = ()
    target: str | None = None
    layout: str = "keep"
    on_failure: str | None = None
    strict: bool = False
    unverified: str | None = None
    custom_op_libraries: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()


@dataclass(frozen=True)
class BatchLimits(Record):
    """The limits for one model and for all models together, in seconds and bytes; None means no limit."""

    timeout: float | None = None
    memory: int | None = None
    total_memory: int | None = None
