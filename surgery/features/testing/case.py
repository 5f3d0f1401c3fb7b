"""Case files: finding, reading and validating them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import SurgeryError
from surgery.model.graph import text
from surgery.model.targets import STANDARD

if TYPE_CHECKING:
    import onnx

SUFFIX = ".onnxtxt"
AFTER = "# after"
_KEYS = (
    "options",
    "refused",
    "unchanged",
    "error",
    "repeats",
    "unverified",
    "declared",
    "snr",
    "calibration",
    "target",
)
_HEADER = re.compile(r"#\s*(\w+):\s*(.*)")


class CaseError(SurgeryError):
    """A malformed case file."""

    code = "case"


@dataclass(frozen=True)
class Case:
    """One case file. It may lack the expected behaviour, if that is still to be written.

    `error` is the message for an edit that cannot be done. `repeats` is whether a second run changes the model again,
    for example because the pass inserts nodes. `snr` is the minimum signal-to-noise ratio of each output in dB, which
    replaces the default tolerance for a LOSSY pass. `calibration` has one input set for a pass that calibrates, as
    lists of numbers by input name. `target` is the runtime that the model is optimized for.
    """

    path: Path
    pass_name: str
    before: str
    after: str | None
    refused: tuple[str, ...] = ()
    unchanged: bool = False
    error: str | None = None
    repeats: bool = False
    unverified: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    declared: bool = False
    snr: float | None = None
    calibration: dict[str, Any] = field(default_factory=dict)
    target: str = STANDARD.name

    @property
    def name(self) -> str:
        """The pass and the situation: "fuse-conv-bn/keeps_a_conv_that_is_read_twice"."""
        return f"{self.pass_name}/{self.path.stem}"

    def __str__(self) -> str:
        return self.name

    @property
    def fires(self) -> bool:
        """Whether the pass is expected to change the graph."""
        return self.after is not None

    @property
    def is_finished(self) -> bool:
        """Whether the case specifies the expected behaviour."""
        return self.fires or bool(self.refused) or self.unchanged or self.error is not None

    def model(self) -> onnx.ModelProto:
        """Parse the graph before the pass; CaseError if it is not ONNX text."""
        return self._parse(self.before)

    def expected(self) -> onnx.ModelProto:
        """Parse the graph below `# after`."""
        return self._parse(self.after or "", f"below '{AFTER}': ")

    def _parse(self, source: str, part: str = "") -> onnx.ModelProto:
        try:
            return text.parse(source)
        except text.TextError as error:
            raise CaseError(f"{part}{error.what}", where=str(self.path)) from error


def cases(folder: str | Path) -> list[Case]:
    """Read all case files below a folder; the name of the folder of a case is the name of the pass."""
    return [read_case(path) for path in case_files(Path(folder))]


def case_files(folder: Path) -> list[Path]:
    """List the case files below a folder, `<pass>/<situation>.onnxtxt`, in order."""
    return sorted(folder.glob(f"*/*{SUFFIX}"))


def read_case(path: Path, *, finished: bool = True) -> Case:
    """Read one case file; CaseError if it must be `finished` and has no expected result."""
    lines = _read(path).splitlines()
    split = next((number for number, line in enumerate(lines) if line.strip() == AFTER), len(lines))
    head = lines[:split]
    found = list(_headers(head))
    given = dict(found)
    case = Case(
        path,
        # For a path such as "./case.onnxtxt", the folder has a name only if the path is absolute.
        (path if path.parent.name else path.absolute()).parent.name,
        "\n".join(head),
        "\n".join(lines[split + 1 :]) if split < len(lines) else None,
        tuple(rest for key, rest in found if key == "refused"),
        "unchanged" in given,
        given.get("error"),
        "repeats" in given,
        given.get("unverified"),
        options_in("\n".join(head), str(path)),
        "declared" in given,
        _decibels(given.get("snr"), str(path)),
        calibration_in("\n".join(head), str(path)),
        target_in("\n".join(head)),
    )
    if finished and not case.is_finished:
        hint = _misspelt(head) or "add one, or let 'surgery test --bless' write it"
        what = f"has neither '{AFTER}', '# refused: reason', '# error: message' nor '# unchanged: why'"
        raise CaseError(what, where=str(path), todo=hint)
    return case


def _decibels(given: str | None, where: str) -> float | None:
    try:
        return None if given is None else float(given)
    except ValueError as error:
        raise CaseError("the signal-to-noise ratio is not a number", where=where, todo="write '# snr: 30'") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CaseError("this is not UTF-8 text", where=str(path)) from error
    except OSError as error:
        raise CaseError(f"cannot be read: {error.strerror or error}", where=str(path)) from error


def _headers(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the comments for the harness."""
    for line in lines:
        found = _HEADER.match(line)
        if found is not None and found.group(1) in _KEYS:
            yield found.group(1), found.group(2).strip()


def _misspelt(lines: Iterable[str]) -> str:
    """Return a hint about a comment that looks like a misspelt one for the harness."""
    for line in lines:
        found = _HEADER.match(line)
        near = difflib.get_close_matches(found.group(1), _KEYS, n=1) if found is not None else []
        if found is not None and near and near[0] != found.group(1):
            return f"did you mean '# {near[0]}:', not '# {found.group(1)}:'?"
        if re.fullmatch(r"\s*#+\s*after\b.*", line, re.IGNORECASE):
            return f"did you mean '{AFTER}', not '{line.strip()}'?"
    return ""


def options_in(source: str, where: str) -> dict[str, Any]:
    """Read the options in a comment of ONNX text; empty without one, CaseError if they are not a mapping."""
    return _mapping(source, "options", where)


def calibration_in(source: str, where: str) -> dict[str, Any]:
    """Read the calibration inputs in a comment of ONNX text; CaseError if they are not a mapping."""
    return _mapping(source, "calibration", where)


def target_in(source: str) -> str:
    """Return the target in a comment of ONNX text, or `standard` without one."""
    return dict(_headers(source.splitlines())).get("target", STANDARD.name)


def _mapping(source: str, key: str, where: str) -> dict[str, Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    given = dict(_headers(source.splitlines())).get(key)
    if given is None:
        return {}
    what = "the options are" if key == "options" else f"the {key} is"
    try:
        found = YAML(typ="safe").load(given)
    except YAMLError as error:
        raise CaseError(f"{what} not YAML", where=where) from error
    if not isinstance(found, dict):
        raise CaseError(f"{what} not a mapping", where=where, todo=f"write '# {key}: {{name: value}}'")
    return found
