"""Values on the command line: sizes, and the flag `--set` for options of passes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from surgery.base.errors import UsageError

if TYPE_CHECKING:
    from surgery.engine.registry.options import Option
    from surgery.engine.registry.passes import Pass
    from surgery.engine.yaml.yaml_nodes import YamlNode


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


def free_options(
    texts: Sequence[str], is_unknown: Callable[[str], bool], accepts: Callable[[str], bool]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Take the unknown options with accepted names out of arguments; return the rest, and the names with values.

    `--name value` and `--name=value` are the same; an option without a value is true.
    """
    rest: list[str] = []
    found: list[tuple[str, str]] = []
    waiting = [*texts]
    while waiting:
        text = waiting.pop(0)
        name, equals, value = text.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if text == "--":
            return [*rest, text, *waiting], found
        if not is_unknown(text) or not accepts(name):
            rest.append(text)
        elif equals:
            found.append((name, value))
        else:
            has_value = bool(waiting) and (not waiting[0].startswith("-") or _NEGATIVE.match(waiting[0]) is not None)
            found.append((name, waiting.pop(0) if has_value else "true"))
    return rest, found


def value(text: str) -> Any:
    """Read a value as `--set` does for an option of any type."""
    return _value(None, text, text)


def _value(option: Option | None, setting: str, text: str) -> Any:
    """Read a value as YAML, or as plain text if the option accepts only that."""
    from surgery.engine.yaml.yaml_nodes import plain
    from surgery.engine.yaml.yaml_tree import compose

    document = compose(text)
    value = plain(document.root) if document.root is not None else None
    # There are no anchors for aliases to refer to, so a star begins a glob.
    if option is not None and text.startswith("*") and _takes(option, text):
        return text
    if option is not None and value != text and _takes(option, text) and not _takes(option, value):
        return text
    if option is not None and "," in text and text[:1] not in ("[", "{") and _lists(option, value):
        return _value(option, setting, f"[{text}]")
    if document.mistakes:
        raise UsageError(f"--set {setting}: {document.mistakes[0][2]}")
    meant = _meant(document.root)
    return meant if meant != value and (option is None or _takes(option, meant)) else value


_NEGATIVE = re.compile(r"-\.?\d")
_FRACTION = re.compile(r"([-+]?[0-9]+(?:\.[0-9]+)?)/([0-9]+(?:\.[0-9]+)?)")
_TIGHT = re.compile(r"(.+):([^:]+)")


def _meant(node: YamlNode | None) -> Any:
    """Return a value in which 1/255 is a number, and an entry such as {batch:1} has the key `batch`.

    In YAML, the first is a text and the second the key `batch:1` without a value.
    """
    from surgery.engine.yaml.yaml_nodes import Listing, Scalar, Table, plain, resolve

    if isinstance(node, Listing):
        return [_meant(item) for item in node.items]
    if isinstance(node, Table):
        found: dict[Any, Any] = {}
        for key, item in node.pairs:
            name, value = plain(key) if isinstance(key, Scalar) else None, _meant(item)
            loose = isinstance(key, Scalar) and not key.styled and isinstance(item, Scalar) and item.text == ""
            parts = _TIGHT.fullmatch(key.text) if loose and isinstance(key, Scalar) else None
            if parts is not None:
                name, value = resolve(parts[1]), _number(resolve(parts[2]))
            found.setdefault(name, value)
        return found
    return None if node is None else plain(node) if getattr(node, "styled", False) else _number(plain(node))


def _number(value: Any) -> Any:
    """Return a fraction as a number, any other value as it is."""
    parts = _FRACTION.fullmatch(value) if isinstance(value, str) else None
    return value if parts is None or not float(parts[2]) else float(parts[1]) / float(parts[2])


def _lists(option: Option, value: Any) -> bool:
    """Return whether a text with commas is a list: of names of tensors, or because the option takes no text."""
    return not _takes(option, value) or option.type_name.startswith("tensor names")


def _takes(option: Option, value: Any) -> bool:
    try:
        option.validate(value)
    except ValueError:
        return False
    return True


def size(flag: str, text: str | None) -> int | None:
    """Return the number of bytes given by a flag, "1MB" or 4096; None if the flag is absent."""
    from surgery.engine.registry.options import parse_size

    if text is None:
        return None
    try:
        found: int = parse_size(text)
    except ValueError as error:
        raise UsageError(f"--{flag}: {error}") from error
    if found < 1:
        raise UsageError(f"--{flag}: must be at least one byte")
    return found
