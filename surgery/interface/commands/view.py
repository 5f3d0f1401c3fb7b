"""Show a model as a graph in one HTML file that needs no network.

Nodes are grouped by the modules of the exporter or by the scopes in their names, by function and by repeated block, and
groups are collapsed: click one to look inside, or a node for its shapes, attributes, constants and lineage.

Without -o, the file is named after the model and written to the current folder; with --open and without -o, it is a
temporary file. Only constants of at most 16 elements are read.

With --costs, the page also shows the operations and memory traffic of each operator in one run; dynamic dims without a
size in --dims have the size 1.

With --profile, the details of a node have its time in a run of ONNX Runtime without optimizations, on one thread and on
generated inputs.

With --with, another installed viewer opens the model instead, and no page is written.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from surgery.base.errors import UsageError
from surgery.interface.command_line import _output, _pages, _places, _verification, _viewers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `view`."""
    parser.add_argument("model", metavar="MODEL", type=_places.model, help="an .onnx file")
    _pages.added(parser, what="the page")
    parser.add_argument("--costs", action="store_true", help="add the operations and memory traffic of each operator")
    parser.add_argument("--profile", action="store_true", help="run the model and add the time of each node")
    parser.add_argument(
        "--dims", metavar="NAME=N", action="append", default=[], help="the size of a dynamic dim; may be repeated"
    )
    parser.add_argument("--with", dest="viewer", choices=_viewers.VIEWERS, help="open the model in another viewer")


def main(arguments: argparse.Namespace) -> int:
    """Write the page of a model, and open it if requested; or open the model in another viewer."""
    if arguments.viewer is not None:
        if arguments.output is not None:
            raise UsageError("--with does not write a page", todo="omit -o or --with")
        return _viewers.open_with(arguments.viewer, Path(arguments.model))
    if arguments.profile:
        _verification.start()
    from surgery.interface.drawing import view

    sizes = _verification.sizes(arguments)
    if sizes and not (arguments.costs or arguments.profile):
        raise UsageError("--dims is for --costs and --profile", todo="pass one of them, or omit --dims")
    model = Path(arguments.model)
    target = _pages.target(arguments, model)
    found = view(model, costs=arguments.costs, profile=arguments.profile, dims=sizes)
    _pages.write(target, found.html)
    if arguments.format == "json":
        size = len(found.html.encode())
        _output.write_json({"output": str(target), "bytes": size, "nodes": found.nodes, "groups": found.groups})
    else:
        _pages.say(target)
    if arguments.open:
        _pages.show(target)
    return 0
