"""List models as Markdown: `python -m models.listing [FOLDER]`, or `--write` to bring README.md up to date."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections import Counter
from pathlib import Path

import onnx

HERE = Path(__file__).resolve().parent
BEGIN, END = "<!-- listing: python -m models.listing --write -->\n", "<!-- end of listing -->\n"
_CACHE = re.compile(r"past_key_values\.\d+(\.(?:encoder|decoder))?\.(?:key|value)")
HEADER = ("file", "model", "exporter", "opset", "nodes", "Dropout", "Identity", "parameters", "bytes", "inputs")


def rows(folder: Path) -> list[tuple[str, ...]]:
    """Describe each model of the zoo in `folder`: one row for each, cells in the order of `HEADER`."""
    return [_row(path) for path in sorted(folder.glob("*.onnx")) if _spec(path.name)]


def _spec(file: str) -> tuple[str, str] | None:
    """Find which architecture and exporter a file name stands for."""
    from .catalog import ALL

    for spec in ALL.values():
        for exporter in ("dy", "ts"):
            if file in (spec.file_name(exporter, "full"), spec.file_name(exporter, "small")):
                return spec.name, exporter
    return None


def _row(path: Path) -> tuple[str, ...]:
    name, exporter = _spec(path.name) or ("", "")
    model = onnx.load(path)
    ops = Counter(node.op_type for node in model.graph.node)
    parameters = sum(math.prod(t.dims) for t in model.graph.initializer)
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    inputs = "; ".join(dict.fromkeys(_tensor(value) for value in model.graph.input))
    numbers = (opset, ops.total(), ops["Dropout"], ops["Identity"])
    size = f"{path.stat().st_size:,}"
    return f"`{path.name}`", name, exporter, *map(str, numbers), f"{parameters:,}", size, inputs


def _tensor(value: onnx.ValueInfoProto) -> str:
    kind = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
    dims = ", ".join(d.dim_param or str(d.dim_value) for d in value.type.tensor_type.shape.dim)
    name = _CACHE.sub(r"past_key_values.*\1.*", value.name)  # one entry for the caches of all layers
    return f"{name} {kind}[{dims}]"


def markdown(folder: Path) -> str:
    """Write the table of the models in `folder`."""
    lines = [HEADER, tuple("---" for _ in HEADER), *rows(folder)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def main(argv: list[str] | None = None) -> int:
    """Print the table of a folder, or put that of this package into its README.md."""
    p = argparse.ArgumentParser(prog="python -m models.listing", description="List models as Markdown.")
    p.add_argument("folder", nargs="?", type=Path, default=HERE)
    p.add_argument("--write", action="store_true", help="put the table into models/README.md")
    args = p.parse_args(argv)
    table = markdown(args.folder)
    if not args.write:
        print(table, end="")
        return 0
    readme = HERE / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    readme.write_text(before + BEGIN + table + END + rest.partition(END)[2])
    return 0


if __name__ == "__main__":
    sys.exit(main())
