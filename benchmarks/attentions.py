"""List the attentions of models: the operators they are fused into, and why the others stay unfused.

    python benchmarks/attentions.py MODEL... [--recipe ort] [--format json]

The steps of the recipe before `fuse-attention` are run without verification; then each pass that fuses attentions is
asked about the attentions that remain (`surgery why`). An attention is a softmax between two matrix products, or an
attention operator.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import onnx
from suite import cores

from surgery.base.errors import SurgeryError
from surgery.engine import recipe as recipes
from surgery.engine.pipeline.run_until import run_until
from surgery.engine.recipe.schema import Recipe, pass_steps
from surgery.engine.registry.catalog import catalog
from surgery.engine.why.explain import Why, explain
from surgery.model import storage
from surgery.model.targets import shipped as targets

PASSES = ("fuse-group-query-attention", "fuse-multi-head-attention", "fuse-attention")
"""The passes that match an unfused attention, in recipe order; the recipe is run up to the last one it contains."""


@dataclass(frozen=True)
class Unfused:
    """Attentions of a model that stay unfused, all for the same reasons.

    `nodes` are the names of their softmaxes; `reasons` has the reason of each pass, empty if it gives none.
    """

    nodes: tuple[str, ...]
    reasons: Mapping[str, str]

    @property
    def is_explained(self) -> bool:
        """Whether each pass gives a reason."""
        return all(self.reasons.values())


@dataclass(frozen=True)
class Attentions:
    """The attentions of one model: `found` counts those in the file, `fused` the fused ones by operator."""

    model: str
    found: int
    fused: Mapping[str, int]
    unfused: tuple[Unfused, ...]


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+", type=Path, metavar="MODEL", help="model files")
    p.add_argument("--recipe", default="ort", metavar="RECIPE", help="whose steps are run (default: ort)")
    p.add_argument("--format", choices=["text", "json"], default="text", help="output format (default: text)")
    return p


def main() -> int:
    """Print the attentions of each model; return 1 if a pass leaves one without a reason, or a model fails."""
    arguments = parser().parse_args()
    recipe, rows, failed = recipes.load(arguments.recipe), list[Attentions](), False
    for path in arguments.models:
        try:
            rows.append(attentions(path, recipe))
        except SurgeryError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            failed = True
            continue
        if arguments.format == "text":
            print("\n".join(lines(rows[-1])), flush=True)
    if arguments.format == "json":
        print(json.dumps([asdict(row) for row in rows], indent=1))
    elif rows:
        print(_total(rows))
    return int(failed or any(not one.is_explained for row in rows for one in row.unfused))


def attentions(path: Path, recipe: Recipe) -> Attentions:
    """Run the recipe up to its last pass of `PASSES`, then ask each of them why the remaining attentions stay."""
    stored = storage.load(path)
    found = cores.written_out(stored.proto) + cores.fused(stored.proto).total()
    last = [name for name in PASSES if name in {step.name for step in pass_steps(recipe.steps)}][-1]
    proto = run_until(stored, recipe, last).proto
    whys = {
        name: explain(catalog.find(name), proto, stored.weights, limit=1 << 30, target=targets.find(recipe.target))
        for name in PASSES
    }
    fires = {site.anchor for why in whys.values() for site in why.sites}
    groups: dict[tuple[tuple[str, str], ...], list[str]] = defaultdict(list)
    for node in cores.softmaxes(proto):
        name = _label(node)
        if name not in fires:
            groups[tuple((one, _reason(why, name)) for one, why in whys.items())].append(name)
    fused = cores.fused(proto)
    fused["Attention"] += len(whys[last].sites)
    unfused = tuple(Unfused(tuple(names), dict(reasons)) for reasons, names in groups.items())
    return Attentions(path.name, found, dict(+fused), unfused)


def _label(node: onnx.NodeProto) -> str:
    return node.name or f"{node.op_type} -> {', '.join(node.output)}"


def _reason(why: Why, name: str) -> str:
    """Return why a pass does not fuse a node; empty if it gives no reason."""
    return next((one.reason for one in why.refusals if any(place.anchor == name for place in one.places)), "")


def lines(row: Attentions) -> list[str]:
    """Format the attentions of a model as text."""
    fused = ", ".join(f"{count} {op}" for op, count in sorted(row.fused.items())) or "none"
    left = sum(len(one.nodes) for one in row.unfused)
    written = [f"{row.model}: {row.found} attentions; fused: {fused}; unfused: {left}"]
    for one in row.unfused:
        written.append(f"  {len(one.nodes)} unfused, first '{one.nodes[0]}'")
        written += [f"    {name}: {reason or 'SILENT'}" for name, reason in one.reasons.items()]
    return written


def _total(rows: Sequence[Attentions]) -> str:
    fused = Counter[str]()
    for row in rows:
        fused.update(row.fused)
    groups = [one for row in rows for one in row.unfused]
    left, silent = (sum(len(one.nodes) for one in some) for some in (groups, [g for g in groups if not g.is_explained]))
    return f"{len(rows)} models: {fused.total()} fused, {left} unfused, {silent} of these not explained by every pass"


if __name__ == "__main__":
    sys.exit(main())
