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
from typing import TYPE_CHECKING, Any

from surgery.base.errors import UsageError
from surgery.interface.command_line import _output, _pages, _places, _verification, _viewers

if TYPE_CHECKING:
    from surgery.model.storage import StoredModel


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
    from surgery.features.inspection.inspect import inspect_stored
    from surgery.interface.drawing import History, document
    from surgery.interface.pages import page
    from surgery.interface.pages.models import model_sections
    from surgery.model import storage

    model = Path(arguments.model)
    stored = storage.load(model)
    found = {**inspect_stored(stored).to_json(), **_costs(stored, arguments)}
    history = History.of(stored)
    if arguments.profile:
        history.times = _times(model, arguments)
    target = _pages.target(arguments, model)
    drawing = document(history)
    text = page(history.title, model_sections(found), drawing, kind="Model")
    _pages.write(target, text)
    if arguments.format == "json":
        nodes, groups = drawing["states"][0]["nodes"], len(drawing["groups"]["name"])
        _output.write_json({"output": str(target), "bytes": len(text.encode()), "nodes": nodes, "groups": groups})
    else:
        _pages.say(target)
    if arguments.open:
        _pages.show(target)
    return 0


def _times(model: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Measure the time of the nodes in one run."""
    from surgery.verification.benchmarking.bench import legal_feeds
    from surgery.verification.benchmarking.profiling import measure_nodes
    from surgery.verification.benchmarking.spec import BenchSpec
    from surgery.verification.benchmarking.subjects import subject
    from surgery.verification.inputs.spec import InputsSpec

    dims = {name: (size,) for name, size in _verification.sizes(arguments).items()}
    measured, spec = subject(model), BenchSpec()
    feeds, _ = legal_feeds(measured, InputsSpec(dims=dims), spec)
    return measure_nodes(measured, feeds, spec)


def _costs(stored: StoredModel, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the costs of operators, if requested, in the format of the report of a run."""
    from surgery.features.inspection.binding import dynamic_dims

    sizes, known = _verification.sizes(arguments), dynamic_dims(stored.proto)
    if sizes and not (arguments.costs or arguments.profile):
        raise UsageError("--dims is for --costs and --profile", todo="pass one of them, or omit --dims")
    unknown = next((name for name in sizes if name not in known), None)
    if unknown is not None:
        dims = f"its dynamic dims are {', '.join(known)}" if known else "it has no dynamic dims"
        raise UsageError(f"the model has no dim '{unknown}'", where=arguments.model, todo=dims)
    if not arguments.costs:
        return {}
    from surgery.features.inspection.operator_costs import operator_costs

    sizes = {**dict.fromkeys(known, 1), **sizes}
    return {"costs": {"sizes": sizes, "before": operator_costs(stored, sizes)}}
