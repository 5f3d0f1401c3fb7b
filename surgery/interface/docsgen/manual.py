"""Manual pages of the commands, generated from the argument parsers: surgery(1), surgery-apply(1), and so on."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from surgery import __version__
from surgery.interface.docsgen.commands import commands_of, usage_of, value_of

_EXIT_STATUS = (
    ("0", "success"),
    ("1", "a verdict, an expectation or a comparison is negative"),
    ("2", "the input or the call is invalid"),
    ("3", "an internal failure"),
    ("130", "interrupted; 143 and 129 after SIGTERM and SIGHUP"),
)


def pages(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return a page for surgery and one for each command, by file name."""
    found = dict(commands_of(parser))
    names = [f"surgery-{name.removeprefix('surgery ').replace(' ', '-')}" for name in found]
    written = {"surgery.1": _overview(parser, dict(zip(names, found.values())))}
    for name, command in zip(names, found.values()):
        written[f"{name}.1"] = _page(name, command)
    return written


def _overview(parser: argparse.ArgumentParser, found: dict[str, argparse.ArgumentParser]) -> str:
    lines = [*_head("surgery", "optimize and edit ONNX models"), ".SH SYNOPSIS", ".B surgery", r"\fICOMMAND\fR ..."]
    lines += [".SH DESCRIPTION", _text(str(parser.description)), ".SH COMMANDS"]
    for name, command in found.items():
        lines += [".TP", rf"\fB{_text(name)}\fR(1)", _text(_first(command))]
    return _end(lines)


def _page(name: str, command: argparse.ArgumentParser) -> str:
    summary = _first(command).rstrip(".")
    lines = [*_head(name, f"{summary[:1].lower()}{summary[1:]}"), ".SH SYNOPSIS", rf"\fB{_text(command.prog)}\fR"]
    positional = [action for action in command._actions if not action.option_strings]
    lines += [_text(" ".join(["[OPTIONS]", *(value_of(action) for action in positional)])), ".SH DESCRIPTION"]
    lines += [*_description(command)]
    if positional:
        lines += [".SH ARGUMENTS", *_entries(positional)]
    for group in command._action_groups:
        options = [action for action in group._group_actions if action.option_strings]
        if options:
            title = "OPTIONS" if group.title == "options" else f"OPTIONS: {group.title}".upper()
            lines += [f'.SH "{_text(title)}"', *_entries(options)]
    return _end(lines)


def _head(name: str, summary: str) -> list[str]:
    version = _text(f"surgery {__version__}")
    return [
        f'.TH "{_text(name.upper())}" 1 "" "{version}" "surgery"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(summary)}",
    ]


def _end(lines: list[str]) -> str:
    status = [line for code, text in _EXIT_STATUS for line in (".TP", code, _text(text))]
    return "\n".join([*lines, ".SH EXIT STATUS", *status]) + "\n"


def _first(command: argparse.ArgumentParser) -> str:
    return (command.description or "").strip().splitlines()[0]


def _description(command: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the paragraphs; indented lines are examples."""
    is_example = False
    for line in (command.description or "").strip().splitlines():
        if line.startswith("    ") != is_example:
            is_example = not is_example
            yield ".EX" if is_example else ".EE"
        yield _text(line) if line.strip() else ".PP"
    if is_example:
        yield ".EE"


def _entries(actions: list[argparse.Action]) -> Iterator[str]:
    for action in actions:
        names = [usage_of(action, name) for name in action.option_strings] or [value_of(action)]
        yield from (".TP", rf"\fB{_text(', '.join(names))}\fR", _text((action.help or "").replace("%%", "%")))


def _text(text: str) -> str:
    """Return text escaped for roff, including a line that begins like a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("~", "\\(ti").replace("^", "\\(ha")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
