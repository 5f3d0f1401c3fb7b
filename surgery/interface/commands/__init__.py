"""The command line. Each command has a module; this one dispatches to it and converts errors to exit codes.

Exit codes: 0 success; 1 a verdict, an expectation or a comparison is negative; 2 the input or the call is invalid;
3 an internal failure; 130 interrupted, 143 and 129 ended by SIGTERM and SIGHUP.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import importlib
import io
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType

from surgery import __version__
from surgery.base.errors import RecipeError, SurgeryError
from surgery.interface.command_line import _configuration, _inputs, _log, _output, _parsing, _places, _signals
from surgery.interface.commands import _single_pass

GROUPS = {
    "optimize": ("apply", "run", "batch", "plan", "tune", "export"),
    "look at models": ("inspect", "view", "open", "diff", "check", "opset", "why"),
    "edit": (
        *("rename", "set-dims", "extract", "cut", "merge", "split"),
        *("add-outputs", "insert", "remove", "replace"),
        *("upgrade", "downgrade", "strip", "import-weights", "export-weights", "externalize", "embed"),
    ),
    "verify and measure": ("verify", "bench", "bisect", "sensitivity", "report", "corpus", "provenance"),
    "find or write": ("passes", "recipes", "targets", "recipe", "lock", "schema", "init", "new", "test"),
    "set up": ("help", "config", "cache", "completion", "doctor"),
}
"""The commands under the titles that the help gives them; each is one of `_single_pass.EDITS`, or has a module of its
name, with `_` for `-`."""

COMMANDS = tuple(name for names in GROUPS.values() for name in names)

ALIASES = {"add-output": "add-outputs", "optimize": "apply", "optimise": "apply", "simplify": "apply"}
"""Commands by other names, for those who know the names of other tools."""

_MISTAKEN = 2
_BROKEN = 3


def command() -> None:
    """Run the command `surgery` and end the process."""
    _prepare_streams()
    # Imported modules and loaded models live until the end, so frequent garbage collection finds nothing.
    gc.set_threshold(500_000, 20, 100)
    _signals.install()
    try:
        code = main()
    except KeyboardInterrupt as error:
        # The signal arrived right before or after a command.
        code = _interrupted(error)
    _signals.finish()
    if sys.getprofile() is not None:
        sys.exit(code)
    # Run the exit handlers, then end at once: freeing hundreds of thousands of objects one by one takes time.
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(code)


def _prepare_streams() -> None:
    """Make the streams writable in any encoding, and refuse to run without standard output or docstrings."""
    if sys.stderr is None:
        # Keep the low descriptors occupied, so that no model file is opened at one of them.
        while (number := os.open(os.devnull, os.O_RDWR)) < 2:
            pass
        sys.stderr = os.fdopen(number, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    problem = ""
    if sys.stdout is None:
        problem = "standard output is closed; redirect it to a file or to /dev/null"
    elif sys.flags.optimize > 1:
        problem = (
            "Python runs with -OO, which removes the docstrings that describe commands and passes; run it without -OO"
        )
    if problem:
        sys.stderr.write(f"surgery: {problem}\n")
        sys.stderr.flush()
        os._exit(_MISTAKEN)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; an exception becomes one line on stderr and an exit code."""
    given = sys.argv[1:] if argv is None else list(argv)
    if not given:
        return _say(parser(()).format_help().rstrip("\n"), _MISTAKEN)
    given[0] = ALIASES.get(given[0], given[0])
    arguments = parser(_named(given)).parse_args(given, argparse.Namespace(given=given))
    if argv is None:
        from surgery.base import workers  # imports NumPy, which help does not need
        from surgery.base.workers.process_memory import return_large

        return_large()
        workers.allow_fork()
    try:
        _configuration.fill(arguments, arguments.parser, arguments.parser.seen, parser)
        _log.begin(arguments.log_file, given)
    except SurgeryError as error:
        return _say(str(error) if isinstance(error, RecipeError) else f"surgery: {error}", error.exit_code)
    code = _run(arguments)
    _log.end(code)
    return code


def _run(arguments: argparse.Namespace) -> int:
    """Run a command and return its exit code."""
    _output.begin(quiet=arguments.quiet)
    try:
        with _places.localized(arguments):
            _inputs.require_spared(arguments)
            code = int(arguments.command(arguments))
            _output.flush()
        return code
    except Exception as error:
        interrupt = _signals.received()
        return _failed(arguments, error) if interrupt is None else _interrupted(interrupt)
    except KeyboardInterrupt as error:
        return _interrupted(error)
    finally:
        _output.erase_sign()
        if not arguments.quiet:
            _warn()


def _warn() -> None:
    """Print warnings about installed packages whose passes could not be loaded, and about analyses that failed."""
    registry = sys.modules.get("surgery.engine.registry.catalog")
    faults = sys.modules.get("surgery.base.workers.faults")
    lines = [*(registry.catalog.warnings() if registry else ()), *(faults.seen() if faults else ())]
    for line in lines:
        _output.say(f"surgery: warning: {line}")


def _failed(arguments: argparse.Namespace, error: Exception) -> int:
    """Print an exception and return its exit code."""
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    import traceback  # only after a failure

    trace = traceback.format_exc()
    if arguments.verbose > 1:
        _output.say(trace.rstrip())
    _log.note(trace, "DEBUG")
    if arguments.format not in _output.PLAIN:
        from surgery.interface.command_line import _formats

        _formats.write_error(arguments, error)
    if isinstance(error, SurgeryError):
        if error.printed:
            _output.say(error.printed.rstrip("\n"))
        _output.say(str(error) if isinstance(error, RecipeError) else f"surgery: {error}")
        return error.exit_code
    text = " ".join(str(error).split())
    _output.say(f"surgery: internal error: {type(error).__name__}: {text}; -vv shows where")
    return _BROKEN


def _interrupted(error: KeyboardInterrupt) -> int:
    text, code = _signals.account(error)
    return _say(f"surgery: {text}", code)


def _say(text: str, code: int) -> int:
    _output.say(text)
    return code


def _named(given: Sequence[str]) -> Collection[str]:
    """Return the commands whose modules are needed: the one that is called; none to list them or for the version."""
    if given and given[0] in COMMANDS:
        return given[:1]
    return () if given in (["-h"], ["--help"], ["--version"]) else COMMANDS


def parser(complete: Collection[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser of all commands; only those in `complete` get their arguments, which imports their modules."""
    parser = _parsing.Parser(
        prog="surgery",
        description="Optimize and edit ONNX models with recipes of passes, each step verified against the original.",
        epilog="exit codes: 0 success, 1 negative verdict, 2 invalid input, 3 internal failure, 130 interrupted",
    )
    parser.groups = GROUPS
    parser.add_argument("--version", action="version", version=f"surgery {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = f"{__name__}.{name.replace('-', '_')}"
        if name in complete:
            _add_command(commands, name, _single_pass.EDITS.get(name) or importlib.import_module(module))
        else:
            commands.add_parser(name, help=None if complete else _summary(name, module), add_help=False)
    return parser


def _summary(name: str, module: str) -> str:
    """Return the first line of the docstring of a command, without importing its module, where it is the first line."""
    if name in _single_pass.EDITS:
        return _first_line(_single_pass.EDITS[name].about)
    try:
        with Path(__file__).with_name(f"{module.rpartition('.')[2]}.py").open(encoding="utf-8") as file:
            return file.readline().strip().strip('"')
    except OSError:
        return _first_line(importlib.import_module(module).__doc__)


def _first_line(about: str | None) -> str:
    return (about or "").strip().splitlines()[0]


def _add_command(
    commands: argparse._SubParsersAction[_parsing.Parser], name: str, module: ModuleType | _single_pass.Edit
) -> None:
    about = module.about if isinstance(module, _single_pass.Edit) else module.__doc__
    command = commands.add_parser(name, help=_first_line(about), description=about)
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    _output.add_format(command, getattr(module, "FORMATS", _output.PLAIN))
    amount = command.add_mutually_exclusive_group()
    amount.add_argument("-v", "--verbose", action="count", default=0, help="print more details; -vv adds tracebacks")
    amount.add_argument(
        "-q", "--quiet", action="store_true", help="print only errors and, of a report, the line with the result"
    )
    module.add_arguments(command)
    command.set_defaults(command=module.main)
    for leaf in _configuration.leaves(command):
        everywhere = leaf.add_argument_group("configuration and log")
        _configuration.add_arguments(everywhere)
        _log.add_argument(everywhere)
