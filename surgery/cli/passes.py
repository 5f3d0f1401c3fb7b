"""List the passes, or describe one: what it does, its options, an example, when it will not fire."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from surgery.cli import _output

if TYPE_CHECKING:
    from rich.console import RenderableType

    from surgery.registry import Pass


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `passes` takes."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="a pass to describe")


def main(arguments: argparse.Namespace) -> int:
    """List or describe passes."""
    from surgery import registry

    if arguments.name is None:
        known = registry.passes()
        if arguments.format == "json":
            _output.write_json([_facts(declared) for declared in known.values()])
        else:
            _output.write(_list(known.values()))
        return 0
    declared = registry.find(arguments.name)
    if arguments.format == "json":
        _output.write_json(_facts(declared) | _details(declared))
    else:
        _output.write(_description(declared))
    return 0


def _facts(declared: Pass) -> dict[str, Any]:
    return {
        "name": declared.name,
        "summary": declared.summary,
        "parity": declared.parity.value,
        "origin": declared.origin,
        "options": [
            {
                "name": option.name,
                "type": option.type_name,
                "required": option.required,
                "default": None if option.required else option.default,
                "about": option.about,
            }
            for option in declared.options
        ],
    }


def _details(declared: Pass) -> dict[str, Any]:
    from surgery import testing

    example = testing.example(declared)
    return {
        "doc": declared.doc,
        "match": declared.match,
        "before": example.before if example else None,
        "after": example.after if example else None,
        "refuses": testing.reason_texts(declared),
    }


def _list(known: Any) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("pass", "promises", "summary"):
        table.add_column(title, no_wrap=title != "summary")
    for declared in known:
        table.add_row(declared.name, declared.parity.value, declared.summary)
    return table


def _description(declared: Pass) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    details = _details(declared)
    parts: list[RenderableType] = [
        Text.assemble((declared.name, "bold"), f"  (promises: {declared.parity.value}; from {declared.origin})"),
        Text(""),
        Text(declared.doc),
    ]
    if declared.options:
        parts += [Text("\nOptions", style="bold"), Padding(_options(declared), (0, 0, 0, 2))]
    for title in ("before", "after"):
        if details[title]:
            parts += [Text(f"\n{title.capitalize()}", style="bold"), Padding(Text(details[title]), (0, 0, 0, 2))]
    if details["refuses"]:
        parts.append(Text("\nIt will not fire when", style="bold"))
        parts += [Text(f"  - {reason}") for reason in details["refuses"]]
    return Group(*parts)


def _options(declared: Pass) -> RenderableType:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for option in declared.options:
        default = "required" if option.required else f"default: {option.default}"
        table.add_row(option.name, option.type_name, default, option.about)
    return table
