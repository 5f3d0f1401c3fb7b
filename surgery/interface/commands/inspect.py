"""Show the operators, weights, cost and problems of a model, or the lineage of its nodes.

The cost is the number of multiply-accumulates (MACs) and operations of a run and the bytes between nodes, as formulas
of the dynamic dims; --dims sets their sizes. Problems are leftovers of training, pitfalls, and operators that other
runtimes lack.

With --lineage, show which pass created each node, and from which nodes of the original. To find out what happened to
the Softmax of layer 7, run

    surgery inspect optimized.onnx --from /layer.7/attention/Softmax

With --target, list the nodes that a runtime does not run, grouped by reason, with the step of a recipe that would help.

With --executed, count the nodes that ONNX Runtime executes with its default options, after its own optimizations, by
execution provider. With --target too, they are counted in its runtime, such as OpenVINO.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from surgery.base.errors import UsageError
from surgery.interface.command_line import _formats, _output, _places, _verification

FORMATS = _formats.REPORTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `inspect`."""
    parser.add_argument("model", metavar="MODEL", type=_places.model, help="an .onnx file")
    parser.add_argument(
        "--lineage", action="store_true", help="show which passes created the nodes, and from which nodes"
    )
    parser.add_argument(
        "--dims", metavar="NAME=N", action="append", default=[], help="the size of a dynamic dim; may be repeated"
    )
    parser.add_argument("--top", metavar="N", type=int, default=5, help="list the N largest weights (default: 5)")
    _verification.add_provider_argument(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--node", metavar="NAME", help="show the lineage of this node, or of the node that produces this value"
    )
    which.add_argument(
        "--executed",
        action="store_true",
        help="count the nodes that ONNX Runtime, or the runtime of --target, executes with its default options",
    )
    which.add_argument(
        "--from", metavar="NAME", dest="origin", help="list the nodes that come from this node of the original"
    )
    parser.add_argument(
        "--target",
        metavar="TARGET",
        help="list what this runtime does not run: a name such as ort-cpu or rknn-like, or a profile (.yaml)",
    )


def main(arguments: argparse.Namespace) -> int:
    """Inspect a model; return 1 if no node comes from the node of --from, or some do not fit the target."""
    if arguments.provider and not arguments.executed:
        raise UsageError("--provider requires --executed", todo="add --executed")
    if arguments.target is not None and (arguments.node is not None or arguments.origin is not None):
        raise UsageError("--target cannot be combined with --node and --from", todo="leave one of them out")
    if arguments.executed:
        return _executed(arguments)
    if arguments.target is not None:
        return _fit(arguments)
    if arguments.format not in _output.PLAIN:
        raise UsageError(f"--format {arguments.format} requires --target", todo="pass --target or use --format json")
    if arguments.lineage or arguments.node is not None or arguments.origin is not None:
        return _lineage(arguments)
    from surgery.features.inspection.analysis import analyse
    from surgery.features.inspection.inspect import inspect_stored
    from surgery.model import storage
    from surgery.verification.inputs.spec import VerifySpec
    from surgery.verification.verdict.validity import validity

    sizes = _verification.sizes(arguments)
    stored = storage.load(Path(arguments.model))
    facts, analysis = inspect_stored(stored), analyse(stored, sizes)
    found = validity(stored, VerifySpec())
    if arguments.format == "json":
        _output.write_json({**facts.to_json(), "analysis": analysis.to_json(), "validity": found.to_json()})
        return 0
    from surgery.interface.report import analysis as report
    from surgery.interface.report import terminal

    for line in terminal.invalid(found):
        _output.write(line)
    if arguments.quiet:
        from surgery.interface.report.formatting import size

        name = facts.path or "in memory"
        _output.write(f"{name}: {facts.nodes} nodes, {facts.parameters:,} parameters, {size(facts.bytes or 0)}")
        return 0
    _output.write(terminal.inspection(facts))
    _output.write(report.analysis(analysis, max(arguments.top, 0)))
    return 0


def _fit(arguments: argparse.Namespace) -> int:
    from surgery.features.inspection.fit import fit
    from surgery.model import storage
    from surgery.model.targets import shipped

    target = shipped.find(arguments.target)
    found = fit(storage.load(Path(arguments.model)), target)
    if arguments.format == "json":
        _output.write_json(found.to_json())
    elif arguments.format not in _output.PLAIN:
        from surgery.interface.report.outcomes import of_fit

        _formats.write(arguments, of_fit(found, arguments.model))
    else:
        from surgery.interface.report import fit as report

        shown = report.headline(found) if arguments.quiet else report.fit(found, verbose=arguments.verbose > 0)
        _output.write(shown)
    return 0 if found.fits else 1


def _executed(arguments: argparse.Namespace) -> int:
    from surgery.base.frozen_dict import FrozenDict
    from surgery.model import storage
    from surgery.model.targets import shipped
    from surgery.verification.inputs.spec import InputsSpec, VerifySpec
    from surgery.verification.verdict.executed_nodes import executed_nodes

    stored = storage.load(Path(arguments.model))
    inputs = InputsSpec(dims=FrozenDict(_verification.dims(arguments)))
    target = shipped.find(arguments.target).deploys_on if arguments.target is not None else ""
    found = executed_nodes(stored, inputs, VerifySpec(providers=tuple(arguments.provider)), target)
    if arguments.format == "json":
        _output.write_json(found.to_json())
    else:
        from surgery.interface.report import analysis as report

        _output.write(report.executed_headline(found) if arguments.quiet else report.executed(found))
    return 0


def _lineage(arguments: argparse.Namespace) -> int:
    from surgery.features.inspection.pass_counts import descent

    found = descent(arguments.model)
    if arguments.node is not None:
        found = found.named(arguments.node)
    if arguments.origin is not None:
        found = found.descendants(arguments.origin)
    if arguments.format == "json":
        _output.write_json(found.to_json())
    else:
        from surgery.interface.report import lineage_text

        every = {"most": sys.maxsize} if arguments.verbose or arguments.node is not None else {}
        _output.write(lineage_text.descent(found, arguments.origin, **every))
    return 1 if arguments.origin is not None and not found.found else 0
