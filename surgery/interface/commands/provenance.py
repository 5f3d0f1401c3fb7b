"""Check a model against its provenance statement, and list each mismatch.

Digests are recomputed: of each node, attribute and tensor, and of the statement itself; with --input, of the input
model; with --recipe, of the recipe. A longer statement, which may be signed, is read from FILE.intoto.json. Only a
signature proves that the model and the statement were not changed together.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.interface.command_line import _output, _places, _plugins

if TYPE_CHECKING:
    from surgery.engine.provenance.checking import Checked


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `provenance`."""
    parser.add_argument("model", metavar="FILE", type=_places.model, help="an .onnx file")
    parser.add_argument(
        "--statement", metavar="S", help="a file with a statement (default: FILE.intoto.json, if it exists)"
    )
    parser.add_argument(
        "--input", metavar="MODEL", type=_places.model, dest="source", help="the model that FILE was made from"
    )
    parser.add_argument("--recipe", metavar="RECIPE", type=_places.recipe, help="the recipe that made FILE")
    _plugins.add_trust_argument(parser)
    parser.add_argument(
        "--key",
        metavar="PUB",
        action="append",
        default=[],
        help="a public key to check the signature with; may be repeated",
    )
    _plugins.add_argument(parser)


def main(arguments: argparse.Namespace) -> int:
    """Check a model; return 1 if there is a mismatch."""
    from surgery.engine import recipe as recipes
    from surgery.engine.provenance import checking
    from surgery.engine.provenance.statement_writing import SUFFIX
    from surgery.model import storage

    model = Path(arguments.model)
    stored = storage.load(model)
    usual = model.with_name(model.name + SUFFIX)
    named = Path(arguments.statement) if arguments.statement is not None else usual if usual.is_file() else None
    if arguments.recipe is not None:
        _plugins.load(arguments)
    found = checking.check(
        stored,
        checking.read(named) if named is not None else None,
        source=storage.load(arguments.source) if arguments.source is not None else None,
        recipe=recipes.load(arguments.recipe, trust=arguments.trust) if arguments.recipe is not None else None,
        keys=[Path(key) for key in arguments.key],
    )
    if arguments.format == "json":
        _output.write_json({"format_version": 1, "model": str(model), **found.to_json()})
    else:
        _tell(model, found, arguments)
    return int(bool(found.findings))


def _tell(model: Path, found: Checked, arguments: argparse.Namespace) -> None:
    if not arguments.quiet:
        for line in _facts(found.statement):
            _output.write(line, wrap=False)
        for line in found.checked if arguments.verbose else ():
            _output.write(f"checked: {line}", wrap=False)
        for remark in found.remarks:
            _output.messages().print(f"note: {remark}", soft_wrap=True)
    for one in found.findings:
        _output.write(str(one), wrap=False)
    problems = len(found.findings)
    end = f"{problems} mismatch{'' if problems == 1 else 'es'}" if problems else "everything matches"
    _output.write(f"{model}: {end}", wrap=False)


def _facts(statement: Mapping[str, Any]) -> list[str]:
    """Summarize how a model was made."""
    from surgery.engine.provenance import statement_summary

    found = statement_summary.summary(statement)
    lines = [
        f"recipe:   {found['recipe']}, by surgery {found['surgery']}",
        f"steps:    {', '.join(_step(step) for step in found['steps']) or 'none changed it'}",
        f"packages: {', '.join(found['packages'])}",
    ]
    return [*lines, f"written:  {found['written']}"] if found["written"] is not None else lines


def _step(step: Mapping[str, Any]) -> str:
    facts = [str(step[name]) for name in ("status", "verdict") if step[name] is not None]
    return f"{step['pass']} ({', '.join(facts)})"
