"""Show what changed between two models: operators, nodes, constants, signature, opsets and sizes.

Nodes are matched by name, by the lineage that passes of surgery record, by structure, and by the values they compute.
With --verify, both models are also run on the same inputs, like `surgery verify BEFORE AFTER`.

With --html, both models are also drawn as one graph, with removed, added and altered nodes, in a file that needs no
network.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.base.errors import UsageError
from surgery.interface.command_line import _formats, _output, _pages, _places, _verification
from surgery.model import storage

if TYPE_CHECKING:
    from surgery.features.differences.difference import Difference
    from surgery.verification.verdict.pair import Pair

FORMATS = _formats.REPORTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `diff`."""
    parser.add_argument("before", metavar="BEFORE", type=_places.model, help="an .onnx file")
    parser.add_argument("after", metavar="AFTER", type=_places.model, help="an .onnx file")
    parser.add_argument(
        "--exit-code", action="store_true", help="exit with 1 if the models differ in more than node names"
    )
    parser.add_argument(
        "--costs", action="store_true", help="also compare the number of operations of a run; takes longer"
    )
    parser.add_argument(
        "--verify", action="store_true", help="also run both models; exit with 1 if their outputs differ"
    )
    parser.add_argument(
        "--html", metavar="OUT.html", type=_places.page, help="also write a page that shows both models as one graph"
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument("--force", action="store_true", help="overwrite the file of --html if it exists")
    _verification.add_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Compare two models; return 1 if --verify fails, or with --exit-code if they differ."""
    if arguments.verify:
        _verification.start()
    elif (
        arguments.inputs or arguments.dims or arguments.custom_op_library or arguments.provider or arguments.unverified
    ):
        raise UsageError("--inputs, --dims, --custom-op-library and --unverified require --verify", todo="add --verify")
    _check_page(arguments)
    from surgery.features.differences.diff import diff

    found = diff(arguments.before, arguments.after, costs=arguments.costs)
    if arguments.verify:
        found = replace(found, parity=_parity(arguments))
    if arguments.html is not None:
        _write_page(arguments, found)
    negative = found.parity is not None and not found.parity.ok
    code = 1 if negative or (arguments.exit_code and not found.same) else 0
    _report(found, code, arguments)
    if arguments.open:
        _pages.show(Path(arguments.html))
    return code


def _report(found: Difference, code: int, arguments: argparse.Namespace) -> None:
    """Write the result in the requested format."""
    if arguments.format == "json":
        _output.write_json(found.to_json())
    elif arguments.format not in _output.PLAIN:
        from surgery.interface.report.outcomes import of_difference

        _formats.write(arguments, of_difference(found, code))
    else:
        from surgery.interface.report.difference import difference, headline

        _output.write(headline(found) if arguments.quiet else difference(found, every=arguments.verbose > 0))


def _check_page(arguments: argparse.Namespace) -> None:
    """Refuse a page that cannot be written, before anything is computed."""
    if arguments.html is not None:
        storage.check_target(Path(arguments.html), force=arguments.force)
    elif arguments.open:
        raise UsageError("--open requires --html", todo="add --html OUT.html")


def _write_page(arguments: argparse.Namespace, found: Difference) -> None:
    from surgery.interface.drawing import History, document
    from surgery.interface.pages import page
    from surgery.interface.pages.models import difference_sections

    history = History.between(found, arguments.before, arguments.after)
    sections = difference_sections(found.to_json())
    _pages.write(Path(arguments.html), page(history.title, sections, document(history), kind="Difference"))


def _parity(arguments: argparse.Namespace) -> Pair:
    from surgery.verification.inputs.spec import InputsSpec, VerifySpec
    from surgery.verification.verdict.pair import verify

    inputs, spec = _verification.combined(arguments, Path(arguments.before), InputsSpec(), VerifySpec())
    return verify(arguments.before, arguments.after, inputs=inputs, spec=spec)
