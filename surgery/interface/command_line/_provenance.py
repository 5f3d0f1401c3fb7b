"""Flags for the provenance statement of an output."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.base.errors import UsageError

if TYPE_CHECKING:
    from surgery.engine.provenance.statement_writing import Sidecar


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of commands that write a changed model."""
    group = parser.add_argument_group("provenance")
    group.add_argument(
        "--no-provenance",
        action="store_true",
        help="do not write a provenance statement into the metadata of the output",
    )
    group.add_argument(
        "--provenance",
        metavar="FILE",
        help="write a longer statement, with the digest of each tensor, to FILE, such as OUT.intoto.json",
    )
    group.add_argument(
        "--sign",
        metavar="KEY",
        help="sign the longer statement with a private key (.pem); without --provenance it goes to OUT.intoto.json",
    )
    group.add_argument("--timestamp", action="store_true", help="include the time of writing in the statement")


def written(arguments: argparse.Namespace, output: Path) -> Path | None:
    """Return the file of the longer statement, if requested."""
    asked = sidecar(arguments)
    return asked.target(output) if not isinstance(asked, bool) and asked.written else None


def sidecar(arguments: argparse.Namespace) -> bool | Sidecar:
    """Return the settings of the statement, for `Result.save`."""
    asked = arguments.provenance is not None or arguments.sign is not None
    if arguments.no_provenance:
        if asked or arguments.timestamp:
            raise UsageError("with --no-provenance there is no statement to sign or write", todo="pass one of them")
        return False
    if not asked and not arguments.timestamp:
        return True
    from surgery.engine.provenance.statement_writing import Sidecar

    return Sidecar(
        Path(arguments.provenance) if arguments.provenance is not None else None,
        Path(arguments.sign) if arguments.sign is not None else None,
        arguments.timestamp,
        written=asked,
    )
