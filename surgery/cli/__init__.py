"""The command line: one module for each command; this one finds it and turns errors into exit codes.

Exit codes: 0 fine; 1 a verdict, an expectation or a comparison is negative; 2 the caller must fix something;
3 something broke; 130 interrupted, 143 and 129 ended by SIGTERM and SIGHUP.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import io
import os
import sys
import traceback
from collections.abc import Sequence

from surgery import __version__
from surgery.cli import (
    _output,
    _signals,
    apply,
    bisect,
    check,
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
    *(
        apply,
        inspect,
        check,
        opset,
        diff,
        verify,
        bisect,
        passes,
        run,
        extract,
        split,
        export_weights,
        externalize,
        embed,
    ),
    *(why, recipe, schema, new, test),
)
_MISTAKEN = 2
_BROKEN = 3


def command() -> None:
    """Be the command `surgery`, and end the process."""
    _prepare_streams()
    # What is imported and loaded stays, and each look at all of it for garbage is in vain.
    gc.set_threshold(500_000, 20, 100)
    _signals.install()
    try:
        code = main()
    except KeyboardInterrupt as error:
        # Not in a command, but right before it or after.
        code = _say(*_signals.account(error))
    _signals.finish()
    if sys.getprofile() is not None:
        sys.exit(code)
    # What is to be done at the end is done. Then the process goes with all it holds: hundreds of thousands of objects
    # need not be let go of one by one.
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(code)


def _prepare_streams() -> None:
    """See to it that there is somewhere to write to, in any encoding, and that help has its texts."""
    if sys.stderr is None:
        # Never at a number that a file of the model could get.
        while (number := os.open(os.devnull, os.O_RDWR)) < 2:
            pass
        sys.stderr = os.fdopen(number, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    problem = ""
    if sys.stdout is None:
        problem = "standard output is closed, so that nothing could be shown; send it to a file or to /dev/null"
    elif sys.flags.optimize > 1:
        problem = "Python runs with -OO, which takes away the texts that describe commands and passes; leave it out"
    if problem:
        sys.stderr.write(f"surgery: {problem}\n")
        sys.stderr.flush()
        os._exit(_MISTAKEN)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; what a command raises becomes a line on stderr and a code."""
    arguments = _parser().parse_args(argv)
    try:
        code = int(arguments.command(arguments))
        _output.flush()
        return code
    except Exception as error:
        interrupt = _signals.received()
        return _failed(arguments, error) if interrupt is None else _say(*_signals.account(interrupt))
    except KeyboardInterrupt as error:
        return _say(*_signals.account(error))
    finally:
        _warn()


def _warn() -> None:
    """Tell what is wrong with installed packages, if anybody looked for their passes."""
    registry = sys.modules.get("surgery.registry.declare")
    for line in registry.warnings() if registry is not None else ():
        _output.say(f"surgery: warning: {line}")


def _failed(arguments: argparse.Namespace, error: Exception) -> int:
    """Say what was raised, and return the exit code."""
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    _trace(arguments)
    if isinstance(error, SurgeryError):
        _output.say(str(error) if isinstance(error, RecipeError) else f"surgery: {error}")
        return error.exit_code
    text = " ".join(str(error).split())
    _output.say(f"surgery: internal error: {type(error).__name__}: {text}; -vv shows where")
    return _BROKEN


def _say(text: str, code: int) -> int:
    _output.say(f"surgery: {text}")
    return code


def _trace(arguments: argparse.Namespace) -> None:
    """With -vv, show where an error comes from; the exit code is the same."""
    if arguments.verbose > 1:
        _output.say(traceback.format_exc().rstrip())


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
