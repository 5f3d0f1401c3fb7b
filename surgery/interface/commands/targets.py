"""List the targets, or describe what the runtime of one supports.

`surgery inspect MODEL --target NAME` lists what of a model does not fit.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from surgery.interface.command_line import _output

if TYPE_CHECKING:
    from rich.console import RenderableType

    from surgery.model.targets import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `targets`."""
    parser.add_argument("target", metavar="TARGET", nargs="?", help="a target to describe, or a profile file")


def main(arguments: argparse.Namespace) -> int:
    """List targets, or describe one."""
    from surgery.model.targets import shipped

    if arguments.target is not None:
        target = shipped.find(arguments.target)
        if arguments.format == "json":
            _output.write_json(_facts(target))
        else:
            _output.write(_description(target))
        return 0
    found = [shipped.find(name) for name in shipped.names()]
    if arguments.format == "json":
        _output.write_json({"targets": [{"name": one.name, "summary": one.about} for one in found]})
    else:
        _output.write(_output.columns(("target", "summary"), ((one.name, one.about) for one in found)))
    return 0


def _facts(target: Target) -> dict[str, Any]:
    """Return what a target supports; None stands for everything."""
    from surgery.model.targets.support import ANY_VERSION, MANY

    limits = target.limits
    operators = sorted(f"{domain}::{name}" if domain else name for domain, name in target.operators)
    return {
        "name": target.name,
        "summary": target.about,
        "source": target.source,
        "runs_in": target.deploys_on or "CPUExecutionProvider",
        "domains": sorted(target.domains),
        "opsets": None if target.opset == ANY_VERSION else list(target.opset),
        "ir_versions": None if target.ir_version == ANY_VERSION else list(target.ir_version),
        "element_types": sorted(target.types) or None,
        "rank": None if limits.rank == MANY else limits.rank,
        "constant_bytes": limits.bytes or None,
        "dynamic_dims": limits.dynamic_dims,
        "subgraphs": limits.subgraphs,
        "functions": limits.functions,
        "operators": operators or None,
    }


def _description(target: Target) -> RenderableType:
    """Return a table of what a target supports."""
    known = {key.replace("_", " "): _text(value) for key, value in _facts(target).items() if value != ""}
    return _output.columns(("", ""), known.items())


def _text(value: object) -> str:
    if value is None:
        return "any"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
