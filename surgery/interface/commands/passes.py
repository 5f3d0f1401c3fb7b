"""List the passes, or describe one with its options, an example, and the reasons why it refuses a match.

Any other word lists the passes that have it in their name or summary, or that do what people call so: fp16, nms, cse,
kv-cache.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from surgery.base.errors import UsageError
from surgery.interface.command_line import _output, _plugins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from surgery.engine.registry.passes import Pass


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `passes`."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="a pass to describe, or a word to search for")
    parser.add_argument("--theme", metavar="THEME", help="list one theme only, for example shapes")
    _plugins.add_argument(parser)


def main(arguments: argparse.Namespace) -> int:
    """List or describe passes."""
    from surgery.engine.registry.catalog import catalog

    _plugins.load(arguments)
    name = arguments.name
    chosen = _chosen(arguments.theme, name if name not in catalog.passes() else None)
    if name is None or (chosen and name not in catalog.passes()):
        if arguments.format == "json":
            _output.write_json({"passes": [_facts(declared) for declared in chosen]})
        else:
            _output.write(_list(chosen))
        return 0
    declared = catalog.find(name)
    if arguments.format == "json":
        _output.write_json(_facts(declared) | _details(declared))
    else:
        _output.write(_description(declared))
    return 0


def _chosen(theme: str | None, word: str | None) -> list[Pass]:
    """List the passes of a theme, those with a word in their name or summary or for it, or all; grouped by theme."""
    from surgery.engine.registry.catalog import catalog
    from surgery.engine.registry.everyday_words import passes_for
    from surgery.engine.registry.passes import suggestion

    known = sorted(catalog.passes().values(), key=lambda one: (not one.is_standard, one.theme, one.name))
    themes = list(dict.fromkeys(one.theme for one in known))
    if theme is not None and theme not in themes:
        hint = suggestion(theme, themes)
        raise UsageError(f"no theme '{theme}'{hint}", todo=f"there are {', '.join(themes)}")
    found = [one for one in known if theme in (None, one.theme)]
    if word is None:
        return found
    meant = passes_for(word)
    return [one for one in found if one.name in meant or word.lower() in f"{one.name} {one.summary}".lower()]


def _facts(declared: Pass) -> dict[str, Any]:
    return {
        "name": declared.name,
        "theme": declared.theme,
        "summary": declared.summary,
        "parity": declared.parity.value,
        "changes": sorted(declared.changes),
        "origin": declared.origin,
        "place": declared.place,
        "api": declared.api,
        "options": [
            {
                "name": option.name,
                "type": option.type_name,
                "required": option.required,
                "default": option.plain_default,
                "about": option.about,
            }
            for option in declared.options
        ],
    }


def _details(declared: Pass) -> dict[str, Any]:
    from surgery.features import testing

    example = testing.example(declared)
    return {
        "doc": declared.doc,
        "match": declared.match,
        "before": example.before if example else None,
        "after": example.after if example else None,
        "refuses": testing.reason_texts(declared),
    }


def _list(known: Sequence[Pass]) -> RenderableType:
    """Return a table with a group for each theme, with a column for origins unless all passes are surgery's own."""
    from itertools import groupby

    from rich.table import Table
    from rich.text import Text

    origins = {declared.origin for declared in known} - {"surgery"}
    titles = ["pass", "parity", *(["from"] if origins else []), "summary"]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, no_wrap=title != "summary")
    for theme, group in groupby(known, key=lambda one: one.theme):
        table.add_row(Text(theme, style="bold"))
        for declared in group:
            origin = [declared.origin] if origins else []
            table.add_row(f"  {declared.name}", declared.parity.value, *origin, declared.summary)
    return table


def _description(declared: Pass) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    details = _details(declared)
    parts: list[RenderableType] = [
        Text.assemble((declared.name, "bold"), f"  (parity: {declared.parity.value}; from {declared.origin})"),
        Text(""),
        Text(declared.doc),
    ]
    if declared.options:
        parts += [Text("\nOptions", style="bold"), Padding(_options(declared), (0, 0, 0, 2))]
    for title in ("before", "after"):
        if details[title]:
            parts += [Text(f"\n{title.capitalize()}", style="bold"), Padding(Text(details[title]), (0, 0, 0, 2))]
    if details["refuses"]:
        parts.append(Text("\nThe pass refuses a match when", style="bold"))
        parts += [Text(f"  - {reason}") for reason in details["refuses"]]
    return Group(*parts)


def _options(declared: Pass) -> RenderableType:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for option in declared.options:
        default = "required" if option.required else f"default: {option.plain_default}"
        table.add_row(option.name, option.type_name, default, option.about)
    return table
