"""The reference of the command line, generated from its argument parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from surgery.interface.docsgen.reference import GENERATED, cell, page_text

_COMMON = ("help", "version", "format", "verbose")


def page(parser: argparse.ArgumentParser) -> str:
    """Return the page of all commands."""
    found = dict(commands_of(parser))
    lines = [GENERATED, "# Commands", "", f"{parser.description}", "", "| Command | Description |", "|---|---|"]
    for name, command in found.items():
        lines.append(f"| [`{name}`](#{name.replace(' ', '-')}) | {cell(_summary(command))} |")
    first = next(iter(found.values()))
    lines += ["", "These options belong to every command:", "", *_table(_common(first)), ""]
    lines += ["[Exit codes](exit-codes.md) and [JSON reports](json.md) have separate pages.", ""]
    for name, command in found.items():
        lines += [f"## {name}", "", *_section(command)]
    return page_text(lines)


def commands_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield each command with its full name; a command that only groups others is left out."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested:
        yield parser.prog, parser
    for action in nested:
        for command in action.choices.values():
            yield from commands_of(command)


def _summary(command: argparse.ArgumentParser) -> str:
    return _sentence((command.description or "").strip().splitlines()[0])


def _section(command: argparse.ArgumentParser) -> Iterator[str]:
    positional = [action for action in command._actions if not action.option_strings]
    words = " ".join(value_of(action) for action in positional)
    yield from ("```text", f"{command.prog} [OPTIONS] {words}".rstrip(), "```", "")
    yield from (_summary(command), *(command.description or "").strip().splitlines()[1:], "")
    if positional:
        yield from _table(positional)
        yield ""
    for group in command._action_groups:
        own = [action for action in group._group_actions if action.option_strings and action.dest not in _COMMON]
        if own:
            title = "Options" if group.title == "options" else f"Options for {group.title}"
            yield from (f"**{title}**", "", *_table(own), "")


def _common(command: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in command._actions if action.dest in _COMMON]


def value_of(action: argparse.Action) -> str:
    """Return the value of an argument or an option, with the usual notation for repetition."""
    name = _metavar(action)
    shapes = {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} [{name} ...]"}
    return shapes.get(str(action.nargs), name)


def _metavar(action: argparse.Action) -> str:
    if action.metavar is None and action.choices is not None:
        return "|".join(map(str, action.choices))
    found = action.metavar or action.dest.upper()
    return found if isinstance(found, str) else " ".join(found)


def _table(actions: list[argparse.Action]) -> Iterator[str]:
    heading = "Option" if actions[0].option_strings else "Argument"
    yield from (f"| {heading} | Description |", "|---|---|")
    for action in actions:
        names = ", ".join(f"`{usage_of(action, name)}`" for name in action.option_strings) or f"`{_metavar(action)}`"
        required = " Required." if action.required and action.option_strings else ""
        yield f"| {cell(names)} | {cell(_sentence((action.help or '').replace('%%', '%')))}{required} |"


def usage_of(action: argparse.Action, name: str) -> str:
    """Return an option with its value, if it takes one."""
    return name if action.nargs == 0 else f"{name} {value_of(action)}"


def _sentence(text: str) -> str:
    """Return a help text as a sentence."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""
