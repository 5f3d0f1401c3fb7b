"""Show a model as a graph in one HTML file that needs no network.

Nodes are grouped by the modules of the exporter or by the scopes in their names, by function and by repeated block, and
groups are collapsed: click one to look inside, or a node for its shapes, attributes, constants and lineage.

Without -o the file is named after the model and lies in the current folder; with --open and without -o it is a
temporary file. No weights are read but constants of at most 16 elements.

With --with, another viewer that is installed opens the model instead, and no page is written.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from surgery.cli import _output, _pages, _places, _viewers
from surgery.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `view`."""
    parser.add_argument("model", metavar="MODEL", type=_places.model, help="an .onnx file")
    _pages.added(parser, what="the page")
    parser.add_argument("--with", dest="viewer", choices=_viewers.VIEWERS, help="open the model in another viewer")


def main(arguments: argparse.Namespace) -> int:
    """Write the page of a model, and open it if asked; or open the model in another viewer."""
    if arguments.viewer is not None:
        if arguments.output is not None:
            raise UsageError("--with writes no page", todo="leave out -o, or leave out --with")
        return _viewers.open_with(arguments.viewer, Path(arguments.model))
    from surgery import storage
    from surgery.drawing import History, document
    from surgery.inspection.inspect import inspect_stored
    from surgery.pages import page
    from surgery.pages.models import model_sections

    model = Path(arguments.model)
    stored = storage.load(model)
    history = History.of(stored)
    target = _pages.target(arguments, model)
    drawing = document(history)
    text = page(history.title, model_sections(inspect_stored(stored).to_json()), drawing, kind="Model")
    _pages.write(target, text)
    if arguments.format == "json":
        nodes, groups = drawing["states"][0]["nodes"], len(drawing["groups"]["name"])
        _output.write_json({"output": str(target), "bytes": len(text.encode()), "nodes": nodes, "groups": groups})
    else:
        _pages.say(target)
    if arguments.open:
        _pages.show(target)
    return 0
