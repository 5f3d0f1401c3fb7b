"""Show which configuration files are read, and where each value comes from.

Flags have defaults in the project's surgery.toml, or in the table [tool.surgery] of its pyproject.toml, and in your own
config.toml. Trusted code is listed only in config.yaml next to that.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from surgery.base.errors import UsageError, closest
from surgery.interface.command_line import _configuration, _output

_SHOW = "print the configuration files and the values that they set, or all values of one command"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `config`."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    show = actions.add_parser("show", help=_SHOW, description=_SHOW)
    show.add_argument("of", metavar="COMMAND", nargs="*", help="a command, such as apply or recipe check")
    show.add_argument("--format", choices=_output.PLAIN, default=argparse.SUPPRESS, help="output format")


def main(arguments: argparse.Namespace) -> int:
    """Show the configuration."""
    from surgery.interface import commands as cli

    top = cli.parser()
    found = _configuration.sources(arguments.config, isolated=arguments.isolated)
    settings = _configuration.settings(found, top)
    values = _of_command(settings, _command(top, arguments.of)) if arguments.of else _all(settings)
    files = [{"path": str(one.path), "project": one.is_project} for one in found]
    trust = _trust()
    if arguments.format == "json":
        _output.write_json({"files": files, "trust": trust, "values": values})
        return 0
    lines = [f"{one['path']} ({'the project' if one['project'] else 'yours'})" for one in files]
    lines = lines or [f"no configuration file; yours would be {_configuration.user_file()}"]
    lines += [f"{trust} (what you trust)"] if trust else []
    _output.write("\n".join(lines), wrap=False)
    if values:
        _output.write(_table(values))
    return 0


def _trust() -> str | None:
    """Return the path of the user's trust list, if it exists."""
    file = _configuration.user_file().with_suffix(".yaml")
    return str(file) if file.is_file() else None


def _command(top: argparse.ArgumentParser, words: list[str]) -> argparse.ArgumentParser:
    """Return the parser of a command; UsageError for none."""
    parser = top
    for word in words:
        known = _configuration.commands(parser)
        if word not in known:
            near = closest(word, known)
            todo = f"did you mean '{near}'?" if near else "see 'surgery --help'"
            raise UsageError(f"no command '{' '.join(words)}'", todo=todo)
        parser = known[word]
    return parser


def _all(settings: list[_configuration.ConfiguredFlag]) -> list[dict[str, Any]]:
    """Return the keys of all files, including overridden ones."""
    last = {(one.tables, one.dest): one for one in settings}
    return [
        {
            "flag": f"--{one.key.replace('_', '-')}",
            "command": " ".join(one.tables) or None,
            "value": one.value,
            "from": one.where,
            "overridden": last[one.tables, one.dest] is not one,
        }
        for one in settings
    ]


def _of_command(settings: list[_configuration.ConfiguredFlag], parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    """Return all flags of a command with their values."""
    chosen = _configuration.effective(settings, parser)
    rows = []
    for action in parser._actions:
        if not action.option_strings or action.dest in ("help", "config", "isolated"):
            continue
        setting = chosen.get(action.dest)
        rows.append(
            {
                "flag": max(action.option_strings, key=len),
                "command": parser.prog.partition(" ")[2],
                "value": setting.value if setting is not None else _plain(action.default),
                "from": setting.where if setting is not None else "default",
                "overridden": False,
            }
        )
    return rows


def _plain(value: Any) -> Any:
    """Return a default as a JSON value."""
    return None if value is argparse.SUPPRESS else str(value) if isinstance(value, Path) else value


def _table(values: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("flag", "command", "value", "from"):
        table.add_column(title, no_wrap=title != "value")
    for one in values:
        shown = "-" if one["value"] in (None, [], "") else str(one["value"])
        note = " (overridden)" if one["overridden"] else ""
        table.add_row(one["flag"], one["command"] or "all", shown, f"{one['from']}{note}")
    return table
