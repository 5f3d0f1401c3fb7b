"""The command line: one module for each command; this one finds it and turns errors into exit codes.

Exit codes: 0 fine; 1 a verdict, an expectation or a comparison is negative; 2 the caller must fix something;
3 something broke; 130 interrupted, 143 and 129 ended by SIGTERM and SIGHUP.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import sys
from collections.abc import Sequence

from surgery import __version__
from surgery.cli import (
    _output,
    _signals,
    apply,
    bisect,
    diff,
    embed,
    export_weights,
    externalize,
    extract,
    inspect,
    new,
    opset,
    passes,
    recipe,
    run,
    schema,
    split,
    test,
    verify,
    why,
)
from surgery.errors import RecipeError, SurgeryError

_COMMANDS = (
    *(apply, inspect, opset, diff, verify, bisect, passes, run, extract, split, export_weights, externalize, embed),
    *(why, recipe, schema, new, test),
)
_BROKEN = 3


def command() -> None:
    """Be the command `surgery`, and end the process."""
    # What is imported and loaded stays, and each look at all of it for garbage is in vain.
    gc.set_threshold(500_000, 20, 100)
    _signals.install()
    try:
        code = main()
    except KeyboardInterrupt as error:
        # Not in a command, but right before it or after.
        code = _say(*_signals.told(error))
    _signals.finish()
    if sys.getprofile() is not None:
        sys.exit(code)
    # What is to be done at the end is done. Then the process goes with all it holds: hundreds of thousands of objects
    # need not be let go of one by one.
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return _answer(arguments)
    finally:
        _warn()


def _warn() -> None:
    """Tell what is wrong with installed packages, if anybody looked for their passes."""
    registry = sys.modules.get("surgery.registry")
    for line in registry.warnings() if registry is not None else ():
        sys.stderr.write(f"surgery: warning: {line}\n")


def _answer(arguments: argparse.Namespace) -> int:
    """Run one command; what it raises becomes a line on stderr and an exit code."""
    try:
        code = int(arguments.command(arguments))
        sys.stdout.flush()
        return code
    except SurgeryError as error:
        if arguments.verbose > 1:
            raise
        text = str(error) if isinstance(error, RecipeError) else f"surgery: {error}"
        sys.stderr.write(f"{text}\n")
        return error.exit_code
    except KeyboardInterrupt as error:
        return _say(*_signals.told(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if arguments.verbose > 1:
            raise
        text = " ".join(str(error).split())
        sys.stderr.write(f"surgery: internal error: {type(error).__name__}: {text}; -vv shows where\n")
        return _BROKEN


def _say(text: str, code: int) -> int:
    sys.stderr.write(f"surgery: {text}\n")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="surgery",
        description="ONNX graph surgery and optimization: recipes of passes, each one verified against the original.",
        epilog="exit codes: 0 fine, 1 negative verdict, 2 bad input, 3 something broke, 130 interrupted",
    )
    parser.add_argument("--version", action="version", version=f"surgery {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in _COMMANDS:
        name = module.__name__.rpartition(".")[2].replace("_", "-")
        summary = (module.__doc__ or "").strip().splitlines()[0]
        command = commands.add_parser(name, help=summary, description=module.__doc__)
        command.formatter_class = argparse.RawDescriptionHelpFormatter
        _output.add_format(command)
        command.add_argument("-v", "--verbose", action="count", default=0, help="say more on stderr; twice: tracebacks")
        module.add_arguments(command)
        command.set_defaults(command=module.main)
    return parser
