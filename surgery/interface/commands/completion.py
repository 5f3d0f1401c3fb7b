"""Print a script that completes commands, flags, choices, passes, recipes, targets and files in your shell.

    surgery completion bash > ~/.local/share/bash-completion/completions/surgery
    surgery completion zsh > ~/.zfunc/_surgery      # a folder of fpath, before compinit
    surgery completion fish > ~/.config/fish/completions/surgery.fish

The script contains all names, including passes of installed packages, so that pressing TAB starts no process. Print it
again after an upgrade.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable
from typing import Any, NamedTuple

from surgery.interface.command_line import _configuration, _output

SHELLS = ("bash", "zsh", "fish")


class _Kind(NamedTuple):
    """The completions of an argument: words, and files of these patterns or folders."""

    name: str
    words: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()

    def complete(self) -> dict[str, Any]:
        """Return the shtab entry, by shell."""
        function = f"_surgery_glob_{self.name}"
        preamble = {"bash": self._bash(function), "fish": self._fish(function)}
        return {"bash": function, "zsh": function, "fish": f"({function})", "preamble": preamble}

    def zsh(self) -> str:
        """Return the function that completes it in zsh."""
        alternatives = [f"'words:{self.name}:({' '.join(self.words)})'"] if self.words else []
        alternatives += [f"'files:file:_files -g \"({'|'.join(self.patterns)})(-.)\"'"] if self.patterns else []
        return f"_surgery_glob_{self.name}() {{\n  _alternative {' '.join(alternatives)}\n}}"

    def _bash(self, function: str) -> str:
        lines = [f"{function}() {{"]
        lines += [f'  compgen -W {shlex.quote(" ".join(self.words))} -- "$1"'] if self.words else []
        lines += [f"  compgen -f -X '!{pattern}' -- \"$1\"" for pattern in self.patterns]
        lines += ['  compgen -d -- "$1"'] if self.patterns else []
        return "\n".join([*lines, "}"])

    def _fish(self, function: str) -> str:
        lines = [f"function {function}"]
        lines += [f"  printf '%s\\n' {' '.join(map(shlex.quote, self.words))}"] if self.words else []
        if self.patterns:
            tests = " ".join(f"'{pattern}'" for pattern in (*self.patterns, "*/"))
            lines += ["  for candidate in (__fish_complete_path (commandline -ct))"]
            lines += [f"    for pattern in {tests}"]
            lines += ["      if string match -q -- $pattern (string split -m1 \\t -- $candidate)[1]"]
            lines += ["        printf '%s\\n' $candidate", "        break", "      end", "    end", "  end"]
        return "\n".join([*lines, "end"])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `completion`."""
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")


def main(arguments: argparse.Namespace) -> int:
    """Print the script."""
    from surgery.interface import commands as cli

    text = script(cli.parser(), arguments.shell)
    if arguments.format == "json":
        _output.write_json({"shell": arguments.shell, "script": text})
    else:
        _output.write_text(text)
    return 0


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a shell. Adds the completions of each argument to the parser."""
    import shtab

    kinds, files, folders = _kinds(parser), shtab.FILE, shtab.DIRECTORY
    for command in _configuration.leaves(parser):
        for action in command._actions:
            metavar = str(action.metavar)
            if command.prog == "surgery passes" and metavar == "NAME":
                metavar = "PASS"
            if metavar in kinds:
                action.complete = kinds[metavar].complete()  # type: ignore[attr-defined]
            elif metavar in ("DIR", "FOLDER"):
                action.complete = folders  # type: ignore[attr-defined]
            elif metavar.partition(".")[0] in ("FILE", "PATH", "OUT", "RUN", "SOURCE"):
                action.complete = files  # type: ignore[attr-defined]
    functions = "\n".join(kind.zsh() for kind in dict.fromkeys(kinds.values()))
    text: str = shtab.complete(parser, shell, preamble=functions if shell == "zsh" else "")
    return f"{text.rstrip()}\n"


def _kinds(parser: argparse.ArgumentParser) -> dict[str, _Kind]:
    """Return the completions of arguments, by their names in the help."""
    from surgery.engine.recipe import recipe_lookup
    from surgery.engine.registry.catalog import catalog
    from surgery.model.targets import shipped as targets

    passes = catalog.passes()
    model = _Kind("model", patterns=("*.onnx",))
    themes = dict.fromkeys(one.theme for one in passes.values())
    return {
        **dict.fromkeys(("MODEL", "A", "B", "BEFORE", "AFTER"), model),
        "RECIPE": _Kind("recipe", _plain(recipe_lookup.names()), ("*.yaml", "*.yml")),
        "TARGET": _Kind("target", _plain(targets.names()), ("*.yaml", "*.yml")),
        "PASS": _Kind("pass", _plain(passes)),
        "MODULE": _Kind("plugin", patterns=("*.py",)),
        "THEME": _Kind("theme", _plain(themes)),
        "COMMAND": _Kind("command", _plain(_configuration.commands(parser))),
    }


def _plain(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that need no quoting in a shell; a plugin may name its passes arbitrarily."""
    return tuple(name for name in names if shlex.quote(name) == name)
