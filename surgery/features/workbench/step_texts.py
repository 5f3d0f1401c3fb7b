"""The text of a recipe as its steps, each with its own text and comments, and what is around them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import dedent, indent
from typing import Any

from surgery.base.errors import UsageError
from surgery.engine.recipe import writer
from surgery.engine.yaml.source import documents
from surgery.engine.yaml.yaml_nodes import Listing, Table, YamlNode, key_text, plain

_REFERENCES = re.compile(r"(^|[\s\[{,:-])[&*][\w]", re.MULTILINE)
"""An anchor or an alias, which ties steps to each other."""
_DASH = re.compile(r" *- +")
_OFF = "# switched off:"


@dataclass(frozen=True)
class StepText:
    """One step as an item of a YAML list, `- drop-dropout`, with the comments above it; `on` is whether it runs."""

    text: str
    on: bool = True

    @property
    def lines(self) -> list[str]:
        """The lines of the step in a recipe; those of a step that does not run are comments."""
        lines = self.text.split("\n")
        return lines if self.on else [_OFF, *(f"# {line}".rstrip() for line in lines)]


@dataclass(frozen=True)
class StepTexts:
    """A recipe as text: its steps, and the lines above and below them with all other keys."""

    steps: tuple[StepText, ...]
    above: str = ""
    below: str = ""

    def whole(self, steps: Sequence[StepText] | None = None) -> str:
        """Return the text of the recipe, with these steps in place of its own."""
        lines = [line for step in (self.steps if steps is None else steps) for line in step.lines]
        parts = [self.above, f"{writer.STEPS}:", indent("\n".join(lines), "  "), self.below]
        return "\n".join(part for part in parts if part) + "\n"


def split(text: str) -> StepTexts:
    """Split the text of a valid recipe into its steps and the rest."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    root = min(documents(text), key=lambda document: document.penalty).root
    assert isinstance(root, Table)
    return _by_lines(root, text) or _by_values(plain(root))


def step_texts(step: Any) -> list[StepText]:
    """Return the texts of a step given as the name of a pass, as a mapping, or as YAML of one or several steps."""
    if isinstance(step, Mapping):
        return list(_by_values({writer.STEPS: [dict(step)]}).steps)
    if not isinstance(step, str) or not step.strip():
        raise UsageError("a step is the name of a pass, a mapping, or YAML text", todo="such as {'set-dims': {...}}")
    text = dedent(step).strip("\n")
    if re.match(rf"{writer.STEPS}\s*:", text):
        return list(split(text).steps)
    if not text.startswith(("- ", "-\n", "#")):
        text = "- " + indent(text, "  ").lstrip()
    found = _by_lines_of(f"{writer.STEPS}:\n{indent(text, '  ')}")
    return list(found.steps) if found is not None else [StepText(text)]


def keeping_right(step: StepText) -> StepText:
    """Return a step that leaves alone the places where it is wrong, instead of being refused."""
    root = min(documents(f"{writer.STEPS}:\n{indent(step.text, '  ')}"), key=lambda document: document.penalty).root
    assert isinstance(root, Table)
    [written_step] = plain(root)[writer.STEPS]
    if isinstance(written_step, str):
        written_step = {"pass": written_step}
    elif "pass" not in written_step and "use" not in written_step and "repeat" not in written_step:
        [(name, options)] = written_step.items()
        written_step = {"pass": name, **({"with": options} if options else {})}
    if "repeat" in written_step:
        raise UsageError("a repeated step has no places of its own", todo="bisect one of its steps")
    return step_texts({**written_step, "on_failure": "bisect"})[0]


def _by_lines_of(text: str) -> StepTexts | None:
    """Split a text that may have mistakes, which whoever reads the recipe reports."""
    root = min(documents(text), key=lambda document: document.penalty).root
    return _by_lines(root, text) if isinstance(root, Table) else None


def _by_values(values: Mapping[str, Any]) -> StepTexts:
    """Write the steps and the other keys anew."""
    steps = (
        writer.written({writer.STEPS: values.get(writer.STEPS) or ()}).split("\n", 1)[1]
        if values.get(writer.STEPS)
        else ""
    )
    others = {key: value for key, value in values.items() if key != writer.STEPS}
    found = _by_lines_of(f"{writer.STEPS}:\n{steps}")
    return StepTexts(found.steps if found is not None else (), writer.written(others).rstrip("\n") if others else "")


def _by_lines(root: Table, text: str) -> StepTexts | None:
    """Split a text between its lines; None if a step is not on lines of its own, or refers to another one."""
    pairs = [(key, value) for key, value in root.pairs if key_text(key) is not None]
    at = next((number for number, (key, _) in enumerate(pairs) if key_text(key) == writer.STEPS), None)
    if at is None or _REFERENCES.search(text):
        return None
    key, steps = pairs[at]
    lines = text.rstrip("\n").split("\n")
    if not isinstance(steps, Listing) or not all(_is_own_line(item, lines, steps) for item in steps.items):
        return None
    after = [other.line - 1 for other, _ in pairs if other.line > key.line]
    end = _above_comments(lines, min(after), key.line) if after else len(lines)
    starts = [_above_comments(lines, item.line - 1, key.line) for item in steps.items]
    ends = [*starts[1:], end]
    starts[:1] = [key.line] if starts else []
    blocks = ("\n".join(lines[start:stop]) for start, stop in zip(starts, ends))
    found = tuple(StepText(_dedented(block)) for block in blocks)
    return StepTexts(found, "\n".join(lines[: key.line - 1]).rstrip(), "\n".join(lines[end:]))


def _is_own_line(item: YamlNode, lines: Sequence[str], steps: Listing) -> bool:
    """Return whether an item of the list begins with its dash on a line, in the column of the first one."""
    before = lines[item.line - 1][: item.column - 1]
    dash = before.index("-") if _DASH.fullmatch(before) else -1
    return dash >= 0 and dash == lines[steps.items[0].line - 1].find("-")


def _above_comments(lines: Sequence[str], line: int, least: int) -> int:
    """Return the index of the first comment line directly above a line."""
    while line > least and lines[line - 1].lstrip().startswith("#"):
        line -= 1
    return line


def _dedented(block: str) -> str:
    """Remove the indentation of the dash from all lines of a step; a comment further left has none."""
    lines = block.rstrip().split("\n")
    while lines and not lines[0].strip():
        lines.pop(0)
    dash = next(line for line in lines if line.lstrip().startswith("-"))
    depth = len(dash) - len(dash.lstrip())
    return "\n".join(line[min(depth, len(line) - len(line.lstrip())) :] for line in lines)
