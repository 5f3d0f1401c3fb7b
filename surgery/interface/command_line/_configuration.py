"""Default flags from configuration files: the user's, and that of the current project.

    # surgery.toml, or the table [tool.surgery] of pyproject.toml
    unverified = "accept"       # for every command that has this flag

    [apply]                     # for one command
    target = "ort-cpu"
    dims = ["batch=1,8"]

Keys are the names of flags. The command line takes precedence over the project's file, and the project's file over the
user's. The project's file may come from someone else's repository, so it cannot set flags that run code, write files or
grant trust.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from surgery.base.errors import Problem, RecipeError, UsageError, closest
from surgery.engine.recipe.recipe_paths import configuration_folder
from surgery.interface.command_line import _places

FILE = "surgery.toml"
_PYPROJECT = "pyproject.toml"
_FOREIGN = ("help", "version", "config", "isolated", "trust")
"""Flags that no file can set."""
_OF_PROJECTS = frozenset(
    [
        "accuracy",
        "calibration",
        "costs",
        "dims",
        "drop",
        "evaluation",
        "exact",
        "exclude",
        "exit_code",
        "image",
        "include",
        "inputs",
        "lineage",
        "lower_is_better",
        "optional",
        "profile",
        "provider",
        "quiet",
        "remedies",
        "shard_size",
        "skip",
        "strict",
        "target",
        "theme",
        "threshold",
        "verbose",
    ]
)
"""Flags that a project's file can set, next to numbers and choices: they neither run code nor write or trust files."""
_OF_USERS = frozenset(("verify", "viewer"))
"""Choices that a project's file cannot make."""


class ConfigurationFile(NamedTuple):
    """A configuration file: its tables, and how far it is trusted."""

    path: Path
    is_project: bool
    tables: Mapping[str, Any]
    header: str
    text: str

    def line(self, tables: Sequence[str], key: str) -> int:
        """Return the line of a key, counting from 1; that of its table, or 1, if the key has another form."""
        wanted = ".".join([*([self.header] if self.header else []), *tables])
        current, best = "", 1
        for number, line in enumerate(self.text.splitlines(), 1):
            if found := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
                current = re.sub(r"\s*\.\s*", ".", found[1]).replace('"', "")
                best = number if current in (wanted, f"{wanted}.{key}".lstrip(".")) else best
            elif current == wanted and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[.=]", line):
                return number
        return best


class ConfiguredFlag(NamedTuple):
    """One key of a file: its flag and value."""

    tables: tuple[str, ...]
    key: str
    value: Any
    source: ConfigurationFile

    @property
    def where(self) -> str:
        """The place, as `path:line`."""
        return f"{self.source.path}:{self.source.line(self.tables, self.key)}"

    @property
    def dest(self) -> str:
        """The key as the name of an attribute of the arguments."""
        return self.key.replace("-", "_")


def add_arguments(parser: argparse._ActionsContainer) -> None:
    """Add the flags that choose configuration files."""
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--config", metavar="FILE", help=f"read default flags from FILE, not from {FILE}, {_PYPROJECT} or yours"
    )
    choice.add_argument("--isolated", action="store_true", help="read no configuration file")


def user_file() -> Path:
    """Return the path of the user's file, which need not exist. The trust list is next to it."""
    return configuration_folder() / "config.toml"


def sources(named: str | None = None, *, isolated: bool = False) -> list[ConfigurationFile]:
    """Read the files that apply, in increasing precedence; RecipeError for a file that is not TOML."""
    if isolated:
        return []
    if named is not None:
        path = Path(named)
        if not path.is_file():
            raise UsageError("is a directory" if path.is_dir() else "no such file", where=f"--config {named}")
        return [found for found in [_read(path, is_project=False)] if found is not None]
    user = user_file()
    mine = _read(user, is_project=False) if user.is_file() else None
    return [found for found in (mine, _project()) if found is not None]


def _project() -> ConfigurationFile | None:
    """Return the file of the nearest folder that has one, from the current folder upwards."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        for name in (FILE, _PYPROJECT):
            if (folder / name).is_file() and (found := _read(folder / name, is_project=True)) is not None:
                return found
    return None


def _read(path: Path, *, is_project: bool) -> ConfigurationFile | None:
    """Read a file; None for a pyproject.toml without a table for surgery."""
    import tomllib

    try:
        text = path.read_text(encoding="utf-8")
        if path.name == _PYPROJECT and "surgery" not in text:
            return None
        tables = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError([Problem(str(path), 1, 1, f"cannot be read: {error}")]) from error
    except tomllib.TOMLDecodeError as error:
        if path.name == _PYPROJECT and is_project:
            return None  # other tools report this
        place = re.search(r"line (\d+), column (\d+)", str(error))
        line, column = (int(place[1]), int(place[2])) if place else (len(text.splitlines()) or 1, 1)
        words = re.sub(r"\s*\(at .*\)", "", str(error))
        raise RecipeError([Problem(str(path), line, column, f"this is not TOML: {words}")]) from error
    if path.name != _PYPROJECT:
        return ConfigurationFile(path, is_project, tables, "", text)
    tools = tables.get("tool")
    own = tools.get("surgery") if isinstance(tools, dict) else None
    return ConfigurationFile(path, is_project, own, "tool.surgery", text) if isinstance(own, dict) else None


def settings(found: Sequence[ConfigurationFile], parser: argparse.ArgumentParser) -> list[ConfiguredFlag]:
    """List the keys of files, in increasing precedence; RecipeError with all errors in them."""
    known, problems = [], []
    for source in found:
        for one in _keys(source, (), source.tables, parser):
            problem = _problem(one, parser)
            if problem:
                line = source.line(one.tables, one.key)
                problems.append(Problem(str(source.path), line, 1, problem))
            elif not isinstance(one.value, dict):
                known.append(one)
    if problems:
        raise RecipeError(problems)
    return known


def _keys(
    source: ConfigurationFile, tables: tuple[str, ...], content: Mapping[str, Any], parser: argparse.ArgumentParser
) -> Iterator[ConfiguredFlag]:
    """Yield the keys of a table and of nested tables; a table that is not a command is a key, too."""
    for key, value in content.items():
        command = commands(parser).get(key)
        if isinstance(value, dict) and command is not None:
            yield from _keys(source, (*tables, key), value, command)
        else:
            yield ConfiguredFlag(tables, key, value, source)


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands of a parser by name."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return {name: command for action in nested for name, command in action.choices.items()}


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of all commands, with those of subcommands instead of their group."""
    nested = commands(parser)
    yield from () if nested else (parser,)
    for command in nested.values():
        yield from leaves(command)


def _below(parser: argparse.ArgumentParser, tables: Sequence[str]) -> argparse.ArgumentParser:
    for name in tables:
        parser = commands(parser)[name]
    return parser


def flags(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the options of a parser and of all its commands."""
    for action in parser._actions:
        if action.option_strings:
            yield action
    for command in commands(parser).values():
        yield from flags(command)


def _name(action: argparse.Action) -> str:
    """Return the key of a flag: its long name."""
    return max(action.option_strings, key=len).lstrip("-").replace("-", "_")


def _problem(one: ConfiguredFlag, parser: argparse.ArgumentParser) -> str:
    """Return the problem with a key, or an empty string."""
    within = _below(parser, one.tables)
    if one.dest == "trust":
        return "a file of default flags cannot grant trust; list trusted files in config.yaml, or pass --trust"
    alike = [action for action in flags(within) if _name(action) == one.dest and one.dest not in _FOREIGN]
    if isinstance(one.value, dict) or not alike:
        what = "command" if isinstance(one.value, dict) else "flag"
        known = [*commands(within), *(_name(action) for action in flags(within) if _name(action) not in _FOREIGN)]
        place = f" of surgery {' '.join(one.tables)}" if one.tables else ""
        near = closest(one.key, known)
        return f"no {what} '{one.key}'{place}" + (f"; did you mean '{near}'?" if near else "")
    if one.source.is_project and not any(_is_harmless(action, one.value) for action in alike):
        return (
            f"a project's file cannot set '{one.key}', which may run code or write files; "
            f"set it in {user_file()}, or pass --{one.key.replace('_', '-')}"
        )
    complaints = [_complaint(action, one.value) for action in alike]
    return "" if "" in complaints else complaints[0]


def _is_harmless(action: argparse.Action, value: Any) -> bool:
    """Return whether a project's file can set a flag to a value."""
    items = value if isinstance(value, list) else [value]
    if action.dest in _OF_USERS or any(_places.CODE in str(item) for item in items):
        return False
    is_number = action.type in (int, float) or (isinstance(value, int | float) and not isinstance(value, bool))
    return action.choices is not None or is_number or _name(action) in _OF_PROJECTS


def _complaint(action: argparse.Action, value: Any) -> str:
    """Return why a flag cannot have a value, or an empty string."""
    key = _name(action)
    if action.nargs == 0:
        counts = isinstance(action, argparse._CountAction) and type(value) is int and value >= 0
        return "" if isinstance(value, bool) or counts else f"'{key}' takes true or false"
    if action.type in (int, float) and isinstance(value, str):
        return f"'{key}' takes a number, without quotes"
    if isinstance(value, list) and not _is_many(action):
        return f"'{key}' takes one value"
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, str | int | float) or isinstance(item, bool):
            return f"'{key}' takes text or a number"
        if action.choices is not None and item not in action.choices:
            near = closest(str(item), [str(choice) for choice in action.choices])
            known = f"did you mean '{near}'?" if near else f"choose from {', '.join(map(str, action.choices))}"
            return f"'{key}' cannot be '{item}'; {known}"
    return ""


def _is_many(action: argparse.Action) -> bool:
    return isinstance(action, argparse._AppendAction) or action.nargs in ("*", "+")


def effective(found: Sequence[ConfiguredFlag], parser: argparse.ArgumentParser) -> dict[str, ConfiguredFlag]:
    """Return the settings that apply to a command, by attribute name: the strongest file, then table."""
    words = tuple(parser.prog.split()[1:])
    chosen: dict[str, ConfiguredFlag] = {}
    for source in dict.fromkeys(id(one.source) for one in found):
        mine = [one for one in found if id(one.source) == source and words[: len(one.tables)] == one.tables]
        for one in sorted(mine, key=lambda one: len(one.tables)):
            for action in flags(parser):
                if _name(action) == one.dest and not _complaint(action, one.value):
                    chosen[action.dest] = one
    return chosen


def fill(
    arguments: argparse.Namespace,
    parser: argparse.ArgumentParser,
    given: set[str],
    complete: Callable[[], argparse.ArgumentParser],
) -> None:
    """Set flags that are not on the command line to the values of configuration files.

    `parser` is that of the command, `given` has the attributes that the command line sets, and `complete` returns the
    parser of all commands, which takes time and is only needed to check files.
    """
    found = sources(arguments.config, isolated=arguments.isolated)
    if not found:
        return
    # Flags that exclude a given one are not taken from a file either.
    excluded = {
        action.dest
        for group in parser._mutually_exclusive_groups
        if given & {action.dest for action in group._group_actions}
        for action in group._group_actions
    }
    actions = {action.dest: action for action in parser._actions if action.option_strings}
    for dest, setting in effective(settings(found, complete()), parser).items():
        if dest in actions and dest not in given | excluded:
            setattr(arguments, dest, _value(actions[dest], setting))


def _value(action: argparse.Action, setting: ConfiguredFlag) -> Any:
    """Return the value of a setting as the parser would return it."""
    value = setting.value
    if action.nargs == 0:
        return int(value) if isinstance(action, argparse._CountAction) else value
    items = [_converted(action, setting, item) for item in (value if isinstance(value, list) else [value])]
    return items if _is_many(action) else items[0]


def _converted(action: argparse.Action, setting: ConfiguredFlag, item: str | int | float) -> Any:
    text = str(item)
    if text.startswith(("./", "../", "~/")):
        text = str(setting.source.path.parent / Path(text).expanduser())
    if not callable(action.type):
        return text
    try:
        return action.type(text)
    except (argparse.ArgumentTypeError, TypeError, ValueError) as error:
        words = str(error) if isinstance(error, argparse.ArgumentTypeError) else f"it cannot be '{text}'"
        raise UsageError(f"'{setting.key}': {words}", where=setting.where) from error
