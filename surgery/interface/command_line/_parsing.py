"""The argument parser: an error is reported in one line, with a suggestion."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn

from surgery.base.errors import closest
from surgery.interface.command_line import _other_tools, _output

_MISTAKEN = 2
_FEW = 12
"""Maximum number of choices that are always listed."""

_MISSING = re.compile(r"(?:the following arguments are|one of the arguments (.*) is) required(?:: (.*))?")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line each, with a suggestion; the exit code is 2."""

    groups: Mapping[str, Collection[str]] = {}
    """The names of its commands by the title under which the help lists them; empty for a command."""
    _given: Sequence[str] = ()
    _is_mixing = False
    rewrite: Callable[[list[str]], list[str]] | None = None
    """Turns arguments with unknown options into others, where the command knows what they mean."""
    seen: set[str]
    """The attributes that the arguments of the last call set, without defaults."""

    def error(self, message: str) -> NoReturn:
        """Print the message and end the process."""
        missing = _MISSING.fullmatch(message)
        if missing is not None:
            names = " or ".join((missing[1] or "").split()) or str(missing[2])
            unknown = [text for text in self._given if self.is_unknown(text)]
            # A missing argument is often present under a misspelt name, or as an option of another tool.
            message = f"{names} {'are' if ',' in names else 'is'} missing"
            message = self._elsewhere(self._given) or (self._unknown(unknown) if unknown else message)
        remedy = "" if "; " in message else f"; see '{self.prog} --help'"
        _output.say(f"{self.prog}: {message}{remedy}")
        self.exit(_MISTAKEN)

    def format_help(self) -> str:
        """Return the help; commands are listed in their groups."""
        if not self.groups:
            return super().format_help()
        [commands] = (action for action in self._actions if isinstance(action, argparse._SubParsersAction))
        listed = {action.dest: action for action in commands._choices_actions}
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for title, names in self.groups.items():
            formatter.start_section(title)
            formatter.add_arguments([listed[name] for name in names])
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments(self._optionals._group_actions)
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse all arguments. Unknown arguments are an error here, where the command is known."""
        if self._is_mixing:
            return super().parse_known_args(args, namespace)
        self._given = sys.argv[1:] if args is None else list(args)
        self.seen = set()
        before = copy(namespace)
        args = self._rewritten(self._given)
        found, left = super().parse_known_args(args, namespace)
        if (
            left
            and self._mixes
            and not any(text.startswith("-") and text != "-" for text in takewhile("--".__ne__, left))
        ):
            found, left = self._mixed(before)
        # The innermost parser comes first: that of the command.
        found.parser = getattr(found, "parser", self)
        if left:
            self.error(self._unknown(left))
        return found, left

    def _rewritten(self, given: Sequence[str]) -> list[str]:
        """Return the arguments with options that this command has in place of those that mean the same."""
        known = self._option_string_actions
        if not self._mixes:
            return [*given]
        synonyms = {old: new for old, new in _other_tools.SYNONYMS.items() if new in known and old not in known}
        if "--outputs" in known and any(re.match("-o(?!-)", text) for text in given):
            # Next to -o, this names an output of the model.
            synonyms["--output"] = "--outputs"
        found = []
        for text in given:
            name, *value = text.split("=", 1)
            found.append("=".join([synonyms.get(name, name), *value]))
        if self.rewrite is not None and any(map(self.is_unknown, found)):
            return self.rewrite(found)
        return found

    @property
    def _mixes(self) -> bool:
        """Whether arguments without a name may stand on both sides of options."""
        return not any(isinstance(action, argparse._SubParsersAction) for action in self._actions)

    def _mixed(self, namespace: argparse.Namespace | None) -> tuple[argparse.Namespace, list[str]]:
        """Parse again: argparse takes an optional argument as missing once an option stands before it."""
        self._is_mixing = True
        try:
            return self.parse_known_intermixed_args(self._given, namespace)
        finally:
            self._is_mixing = False

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Record the given options."""
        if action.option_strings:
            self.seen.add(action.dest)
            for text in arg_strings:
                instead = _other_tools.value_instead(self._command, action.option_strings, text, self._model)
                if instead:
                    raise argparse.ArgumentError(action, f"invalid value: '{text}'; {instead}")
        return super()._get_values(action, arg_strings)

    def is_unknown(self, text: str) -> bool:
        """Return whether a text is an option that this command does not have."""
        name = text.partition("=")[0]
        return re.match("--[a-z]", name) is not None and not any(
            k.startswith(name) for k in self._option_string_actions
        )

    def _unknown(self, left: Sequence[str]) -> str:
        """Describe an unknown argument."""
        option = next((text for text in left if text.startswith("-") and text != "-"), None)
        elsewhere = self._elsewhere([option] if option else self._given)
        if elsewhere is not None:
            return elsewhere
        if option is None:
            instead = _other_tools.argument_instead(self._command, self._given, left[0])
            return f"unexpected argument '{left[0]}'" + (f"; {instead}" if instead else "")
        name = option.partition("=")[0]
        near = closest(name, self._option_string_actions)
        if near is None and any(isinstance(action, argparse._SubParsersAction) for action in self._actions):
            return f"unknown option {name}; options of a command come after it: {self.prog} COMMAND {name}"
        return f"unknown option {name}" + (f"; did you mean {near}?" if near else "")

    def _elsewhere(self, texts: Sequence[str]) -> str | None:
        """Describe the first option of another tool among arguments; None if there is none."""
        names = [text.partition("=")[0] for text in texts if text.startswith("-")] if self._mixes else []
        for name in names:
            instead = _other_tools.option_instead(self._command, name, self._model)
            if instead is not None and not any(known.startswith(name) for known in self._option_string_actions):
                return f"unknown option {name}; {instead}"
        return None

    @property
    def _command(self) -> str:
        """Return the command, without what comes before it."""
        return self.prog.rpartition(" ")[2]

    @property
    def _model(self) -> str:
        """Return the first model of the call, as messages name it."""
        return next((text for text in self._given if text.endswith(".onnx")), "MODEL")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is not one of the choices."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        near = closest(str(value), choices)
        if isinstance(action, argparse._SubParsersAction):
            also = _other_tools.COMMANDS.get(str(value).lower(), "")
            known = also if re.split("[' ]", also)[0] in choices else near
            hint = self._other(str(value), choices) or (f"{self.prog} {known}" if known else "")
            self.error(f"no {str(action.metavar).lower()} '{value}'{_meant(hint)}")
        listed = f"choose from {', '.join(choices)}" if len(choices) <= _FEW or near is None else ""
        hint = f"did you mean '{near}'?" if near else listed
        raise argparse.ArgumentError(action, f"invalid choice: '{value}'; {hint}")

    def _other(self, value: str, commands: Collection[str]) -> str:
        """Return the command for a word that is a recipe, pass or file instead of a command; empty for other words."""
        if "apply" not in commands:
            return ""
        if value.endswith(".onnx") or Path(value).is_file():
            return f"{self.prog} inspect {value}" if value.endswith(".onnx") else ""
        from surgery.engine.recipe import recipe_lookup
        from surgery.engine.registry.catalog import catalog

        if value in recipe_lookup.names():
            return f"{self.prog} apply {value}"
        return f"{self.prog} run {value}" if catalog.get(value) is not None else ""


def _meant(command: str) -> str:
    """Return the end of a message that suggests a command; empty for none."""
    return f"; did you mean '{command}'?" if command else ""
