"""Values on the command line: sizes, and the flag `--set` for options of passes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from surgery.errors import UsageError

if TYPE_CHECKING:
    from surgery.registry.options import Option
    from surgery.registry.passes import Pass


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add the flag."""
    parser.add_argument(
        "--set",
        metavar="OPTION=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="set an option of the pass, in the syntax of recipes: 20, 1MB, [a, b]; may be repeated",
    )


def read(declared: Pass, texts: Sequence[str]) -> dict[str, Any]:
    """Read the settings of a pass. `Pass.bind` checks whether the pass has these options."""
    known = {option.name: option for option in declared.options}
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise UsageError(f"'{text}' is not of the form OPTION=VALUE")
        if name in found:
            raise UsageError(f"--set gives '{name}' twice", todo="give it once")
        found[name] = _value(known.get(name), text, value)
    return found


def _value(option: Option | None, setting: str, text: str) -> Any:
    """Read a value as YAML, or as plain text if the option accepts only that."""
    from surgery.recipe.compose import compose
    from surgery.recipe.nodes import plain

    document = compose(text)
    value = plain(document.root) if document.root is not None else None
    # There are no anchors for aliases to refer to, so a star begins a glob.
    if option is not None and text.startswith("*") and _takes(option, text):
        return text
    if option is not None and value != text and _takes(option, text) and not _takes(option, value):
        return text
    if document.mistakes:
        raise UsageError(f"--set {setting}: {document.mistakes[0][2]}")
    return value


def _takes(option: Option, value: Any) -> bool:
    try:
        option.validate(value)
    except ValueError:
        return False
    return True


def size(flag: str, text: str | None) -> int | None:
    """Return the number of bytes given by a flag, "1MB" or 4096; None if the flag is absent."""
    from surgery.registry.options import parse_size

    if text is None:
        return None
    try:
        found: int = parse_size(text)
    except ValueError as error:
        raise UsageError(f"--{flag}: {error}") from error
    if found < 1:
        raise UsageError(f"--{flag}: must be at least one byte")
    return found
