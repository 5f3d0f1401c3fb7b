"""Show or prune the step cache.

With --cache, `apply` and `run` store the outcome of each step, and reuse it if none of its dependencies changed.
`prune` may run while other commands use the cache: they recompute missing entries.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from surgery.base.errors import UsageError, counted
from surgery.interface.command_line import _caching, _output

if TYPE_CHECKING:
    from surgery.engine.caching.housekeeping import Contents, Pruned

_INFO = "show the folder, size, entries and hit rate of the cache"
_PRUNE = "remove all, old or least recently used entries"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `cache`."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    info = actions.add_parser("info", help=_INFO, description=_INFO)
    prune = actions.add_parser("prune", help=_PRUNE, description=_PRUNE)
    prune.add_argument(
        "--older-than", metavar="TIME", help="remove entries that were not used for this time: 12h, 30d, 2w"
    )
    prune.add_argument(
        "--max-size",
        metavar="SIZE",
        help="remove the least recently used entries until the cache has this size: 500MB, 2GB",
    )
    prune.add_argument("--all", action="store_true", help="remove all entries")
    for action, run in ((info, _info), (prune, _prune)):
        action.add_argument("--format", choices=_output.PLAIN, default=argparse.SUPPRESS, help="output format")
        _caching.add_folder(action)
        action.set_defaults(action=run)


def main(arguments: argparse.Namespace) -> int:
    """Show the contents of the cache, or prune it."""
    return int(arguments.action(arguments))


def _info(arguments: argparse.Namespace) -> int:
    from surgery.engine.caching import housekeeping

    found = housekeeping.contents(_caching.folder(arguments, create=False))
    _write(arguments, found, _described(found))
    return 0


def _prune(arguments: argparse.Namespace) -> int:
    from surgery.engine.caching import housekeeping

    seconds = _seconds(arguments.older_than) if arguments.older_than is not None else None
    most = _bytes(arguments.max_size) if arguments.max_size is not None else None
    if arguments.all and (seconds is not None or most is not None):
        raise UsageError("--all removes everything", todo="omit --older-than and --max-size")
    if not arguments.all and seconds is None and most is None:
        raise UsageError("nothing to remove is selected", todo="pass --older-than 30d, --max-size 2GB or --all")
    folder = _caching.folder(arguments, create=False)
    if arguments.all:
        found = housekeeping.remove_all(folder)
    else:
        found = housekeeping.prune(folder, older_than=seconds, max_bytes=most)
    from surgery.interface.report.formatting import size

    files = counted(found.files, "file")
    _write(arguments, found, f"removed {files} ({size(found.bytes)}); {size(found.left)} left\n")
    return 0


def _write(arguments: argparse.Namespace, found: Contents | Pruned, text: str) -> None:
    if arguments.format == "json":
        _output.write_json(found.to_json())
    else:
        _output.write_text(text)


def _described(found: Contents) -> str:
    from surgery.interface.report.formatting import size

    asked = found.found + found.missed
    share = f" ({found.found / asked:.0%})" if asked else ""
    rows: dict[str, Any] = {
        "folder": found.folder,
        "size": f"{size(found.bytes)} of at most {size(found.limit)}",
        "entries": f"{found.entries} of {counted(found.sets, 'set')} of runs",
        "tensors": f"{found.tensors} ({size(found.tensor_bytes)})",
        "found": f"{found.found} of {asked}{share}",
    }
    return "".join(f"{name:9}{value}\n" for name, value in rows.items())


def _seconds(text: str) -> float:
    """Read a duration such as "30d"."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*", text)
    if found is None:
        raise UsageError(
            f"--older-than '{text}' is not a time", todo="write a number with s, m, h, d or w, such as 30d"
        )
    return float(found.group(1)) * _UNITS[found.group(2)]


def _bytes(text: str) -> int:
    from surgery.engine.registry.options import parse_size

    try:
        return int(parse_size(text))
    except ValueError as error:
        raise UsageError(f"--max-size: {error}") from error
