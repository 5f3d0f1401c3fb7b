"""Check that edits need little memory on a large model: run each on a model above 2 GB, in a separate process.

    python benchmarks/edits.py [--passes NAME...] [--folder FOLDER]

Prints the verdict, the seconds, and the peak memory that is not backed by files, over all processes. None of these
edits computes new weights, so none needs to load them. Exit code 1 if an edit fails, needs more than 400 MiB, or is
missing here.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from suite import big, process

from surgery.engine.registry.catalog import catalog

_MOST_MEMORY = 400 << 20
_GELU = {"op": "Gelu"}
_SECOND = {"op": "Gelu", "name": "/layer.2/*"}

EDITS: dict[str, dict[str, Any]] = {
    "extract": {"inputs": "flow_3", "outputs": "flow_6"},
    "cut": {"inputs": "flow_4"},
    "set-outputs": {"outputs": "flow_5"},
    "add-outputs": {"outputs": "flow_5"},
    "remove-outputs": {"outputs": "features"},
    "remove-inputs": {"inputs": {"gain": 1}},
    "merge": {"model": "head.onnx", "prefix": "head/", "connect": {"features": "features"}},
    "rename": {"inputs": {"pixels": "image"}, "tensors": {"weight_*": "w.*"}},
    "set-dims": {"dims": {"batch": 2}},
    "set-dtype": {"inputs": {"gain": "float16"}},
    "set-layout": {"layout": "NHWC", "inputs": "pixels"},
    "embed-preprocessing": {"input": "pixels", "dtype": "uint8", "scale": 0.00392156862745098},
    "embed-postprocessing": {"output": "features", "activation": "softmax", "top_k": 5},
    "set-metadata": {"metadata": {"license": "Apache-2.0"}},
    "replace-op": {"nodes": _GELU, "op": "Relu"},
    "replace-subgraph": {"rule": {"match": "y = Gelu(x)", "emit": "y = Relu(x)"}},
    "insert-before": {"nodes": _SECOND, "op": "Clip", "operands": [-10, 10]},
    "insert-after": {"nodes": _SECOND, "op": "Clip", "operands": [-10, 10]},
    "remove-nodes": {"nodes": _SECOND},
    "bypass": {"start": "flow_3", "end": "flow_6"},
    "set-attribute": {"nodes": _GELU, "name": "approximate", "value": "tanh"},
    "set-initializer": {"name": "bias_0", "value": 0},
    "import-weights": {"file": "bias.npz"},
    "remove-training-mode": {},
    "outline": {"blocks": "/layer.*", "name": "Layer"},
    "inline-functions": {},
    "inline-if": {},
    "unroll-loop": {},
    "decompose": {"ops": ["Gelu"]},
    "downgrade-opset": {"to": 17},
    "upgrade-opset": {"to": 21},
}
"""The options of each edit for the model of `suite.big`."""


@dataclass
class Edit:
    """The result of one edit on the model."""

    name: str
    verdict: str
    seconds: float
    private: int
    failure: str

    @property
    def faults(self) -> list[str]:
        """The problems found."""
        found = [self.failure] if self.failure else []
        if self.private > _MOST_MEMORY:
            found.append(f"over {_MOST_MEMORY >> 20} MiB")
        return found


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--passes", nargs="+", choices=list(EDITS), default=list(EDITS), metavar="NAME")
    p.add_argument("--folder", type=Path, default=Path.home() / ".cache" / "surgery" / "edits")
    p.add_argument("--timeout", type=float, default=900.0, help="seconds for one edit (default: 900)")
    p.add_argument("--format", choices=["text", "json"], default="text")
    return p


def measure(name: str, model: Path, timeout: float) -> Edit:
    """Run one edit without writing its result; return the figures."""
    settings = [f"{option}={_spelt(value, model.parent)}" for option, value in EDITS[name].items()]
    flags = [part for setting in settings for part in ("--set", setting)]
    source = model.with_name("training.onnx") if name == "remove-training-mode" else model
    command = [sys.executable, "-m", "surgery", "run", name, str(source), *flags, "--format", "json"]
    with tempfile.TemporaryDirectory() as folder:
        ran = process.run(command, timeout=timeout, folder=Path(folder))
    steps = json.loads(ran.output or "{}").get("steps", [])
    verdict = steps[0]["verdict"] or steps[0]["status"] if steps else ""
    failure = (steps[0]["message"] if steps else "") or ran.failure
    return Edit(name, verdict, ran.seconds, ran.private, failure if ran.failure else _idle(verdict))


def _spelt(value: Any, folder: Path) -> str:
    """Format an option for the command line; the name of a file in the model's folder becomes its path."""
    beside = isinstance(value, str) and (folder / value).is_file()
    return str(folder / value) if beside else json.dumps(value)


def _idle(verdict: str) -> str:
    return "changed nothing" if verdict == "unchanged" else ""


def forgotten() -> list[str]:
    """Return the edits that are missing in `EDITS`."""
    return [name for name, found in catalog.passes().items() if found.theme in ("edit", "opset") and name not in EDITS]


def main() -> int:
    """Measure and print."""
    arguments = parser().parse_args()
    model = big.build(arguments.folder.resolve())
    edits = []
    for name in arguments.passes:
        edits.append(measure(name, model, arguments.timeout))
        print(f"{name}: {edits[-1].private >> 20} MiB in {edits[-1].seconds:.1f} s", file=sys.stderr)
    if arguments.format == "json":
        print(json.dumps([{**asdict(edit), "faults": edit.faults} for edit in edits], indent=1))
    else:
        show(edits)
    return 1 if forgotten() or any(edit.faults for edit in edits) else 0


def show(edits: list[Edit]) -> None:
    """Print a table."""
    table = Table("pass", "verdict", "seconds", "private MiB", "faults", box=box.SIMPLE, padding=(0, 1, 0, 0))
    for edit in edits:
        table.add_row(edit.name, edit.verdict, f"{edit.seconds:.1f}", str(edit.private >> 20), "; ".join(edit.faults))
    console = Console(emoji=False, highlight=False, markup=False)
    console.print(table)
    for name in forgotten():
        console.print(f"{name} has no line here")


if __name__ == "__main__":
    sys.exit(main())
