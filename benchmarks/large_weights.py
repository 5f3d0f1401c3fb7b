"""Measure the time and memory to quantize the weights of a 10 GB model, relative to one copy of the file.

    python benchmarks/large_weights.py [--layers 40] [--method rtn hqq] [--form matmulnbits standard] [--folder FOLDER]

The model adds up products with random float32 matrices [8192, 8192], 0.27 GB each. It is deleted at the end unless
`--keep` is given; the results are always deleted. Before each measurement, the kernel is asked to drop the file from
the page cache. The file is copied slice by slice to the same target, so the disk need not hold it twice.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
from rich import box
from rich.console import Console
from rich.table import Table
from suite import process

WIDTH = 8192
_MOST_MEMORY = 1536 << 20
_SLICE = 1 << 30
_RECIPE = """recipe: large-weights
verify: {{mode: {mode}}}
accuracy: {{budget: snr >= 10 dB}}
steps:
  - quantize-weights: {options}
"""


@dataclass
class Run:
    """One run of the pass; `copies` is its time divided by the time to copy the file."""

    options: str
    verified: bool
    seconds: float
    cpu: float
    copies: float
    private: int
    nbytes: int
    verdict: str
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
    p.add_argument("--layers", type=int, default=40)
    p.add_argument("--method", nargs="+", choices=["rtn", "hqq"], default=["rtn", "hqq"])
    p.add_argument("--form", nargs="+", choices=["matmulnbits", "standard"], default=["matmulnbits"])
    p.add_argument("--verify", choices=["both", "on", "off"], default="both", help="whether to verify the results")
    p.add_argument("--folder", type=Path, default=Path.home() / ".cache" / "surgery" / "large-weights")
    p.add_argument("--timeout", type=float, default=3600.0, help="seconds for one run (default: 3600)")
    p.add_argument("--keep", action="store_true", help="do not delete the model")
    p.add_argument("--format", choices=["text", "json"], default="text")
    return p


def build(folder: Path, layers: int) -> Path:
    """Write the model, with its weights in an external file, unless it exists; return its path."""
    path, data = folder / f"large-{layers}.onnx", folder / f"large-{layers}.onnx.data"
    if path.is_file():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    body = "s_0 = Neg(x) " + " ".join(
        f"m_{n} = MatMul(x, w_{n}) t_{n} = Tanh(m_{n}) s_{n + 1} = Add(s_{n}, t_{n})" for n in range(layers)
    )
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[batch, {WIDTH}] x) => (float[batch, {WIDTH}] s_{layers})'
        f" {{ {body} }}"
    )
    size = 4 * WIDTH * WIDTH
    for number in range(layers):
        tensor = model.graph.initializer.add(name=f"w_{number}", dims=[WIDTH, WIDTH], data_type=onnx.TensorProto.FLOAT)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in {"location": data.name, "offset": number * size, "length": size}.items():
            tensor.external_data.add(key=key, value=str(value))
    random = np.random.default_rng(0)
    rows = random.standard_normal((WIDTH, WIDTH), dtype=np.float32) * np.float32(np.sqrt(1 / WIDTH))
    with data.open("wb") as file:
        for number in range(layers):
            # Different weights in each layer, without drawing all of them anew.
            file.write(np.roll(rows, 997 * number).data)
    path.write_bytes(model.SerializeToString())
    return path


def forget(path: Path) -> None:
    """Ask the kernel to drop a file from the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def copy(path: Path) -> float:
    """Return the seconds to copy a file, including the write to disk."""
    target = path.with_suffix(".copy")
    forget(path)
    begin = time.perf_counter()
    try:
        with path.open("rb") as source:
            for _ in range(0, path.stat().st_size, _SLICE):
                with target.open("wb") as file:
                    left = _SLICE
                    while left and (sent := os.copy_file_range(source.fileno(), file.fileno(), left)):
                        left -= sent
                    os.fsync(file.fileno())
        return time.perf_counter() - begin
    finally:
        target.unlink(missing_ok=True)


def measure(model: Path, options: dict[str, str], verified: bool, copied: float, timeout: float) -> Run:
    """Quantize the model and delete the result; return the figures."""
    data = model.with_name(model.name + ".data")
    forget(data)
    spelt = "{" + ", ".join(f"{name}: {value}" for name, value in options.items()) + "}"
    target = model.with_name("quantized.onnx")
    with tempfile.TemporaryDirectory(dir=model.parent) as folder:
        recipe = Path(folder) / "recipe.yaml"
        recipe.write_text(_RECIPE.format(mode="each" if verified else "off", options=spelt))
        command = [sys.executable, "-m", "surgery", "apply", str(recipe), str(model), "-o", str(target), "--force"]
        ran = process.run([*command, "--format", "json"], timeout=timeout, folder=Path(folder))
    steps = json.loads(ran.output or "{}").get("steps", [])
    verdict = (steps[0]["verdict"] or steps[0]["status"]) if steps else ""
    written = [path for path in (target, target.with_name(target.name + ".data")) if path.is_file()]
    nbytes = sum(path.stat().st_size for path in written)
    for path in written:
        path.unlink()
    failure = ((steps[0]["message"] if steps else "") or ran.failure) if ran.failure else ""
    return Run(spelt, verified, ran.seconds, ran.cpu, ran.seconds / copied, ran.private, nbytes, str(verdict), failure)


def main() -> int:
    """Measure and print."""
    arguments = parser().parse_args()
    model = build(arguments.folder.resolve(), arguments.layers)
    data = model.with_name(model.name + ".data")
    runs = []
    try:
        copied = copy(data)
        print(f"{data.stat().st_size / 1e9:.1f} GB, copied in {copied:.1f} s", file=sys.stderr)
        for form in arguments.form:
            for method in arguments.method:
                for verified in {"both": (False, True), "on": (True,), "off": (False,)}[arguments.verify]:
                    found = measure(model, {"method": method, "form": form}, verified, copied, arguments.timeout)
                    print(found, file=sys.stderr)
                    runs.append(found)
    finally:
        if not arguments.keep:
            shutil.rmtree(arguments.folder)
    if arguments.format == "json":
        print(json.dumps({"copied": copied, "runs": [asdict(run) for run in runs]}, indent=1))
    else:
        show(runs)
    return 1 if any(run.faults for run in runs) else 0


def show(runs: list[Run]) -> None:
    """Print a table."""
    columns = ("options", "verified", "seconds", "cpu", "copies", "private MiB", "GB", "verdict", "faults")
    table = Table(*columns, box=box.SIMPLE, padding=(0, 1, 0, 0))
    for run in runs:
        numbers = (f"{run.seconds:.1f}", f"{run.cpu:.1f}", f"{run.copies:.1f}", str(run.private >> 20))
        size = f"{run.nbytes / 1e9:.2f}"
        table.add_row(run.options, "yes" if run.verified else "no", *numbers, size, run.verdict, "; ".join(run.faults))
    Console(emoji=False, highlight=False, markup=False).print(table)


if __name__ == "__main__":
    sys.exit(main())
