"""Measure speed over the raw export and signal-to-noise ratio at reduced precision, compared with ONNX Runtime.

    python benchmarks/precision.py [--models NAME...] [--variants NAME...] [--threads 1] [--rounds 20]

Each row is a model and a variant of it: a recipe or pass of surgery, or a quantizer of ONNX Runtime, applied to the raw
export or to the result of the recipe `default`. All variants of a model are loaded in one process, with all
optimizations of ONNX Runtime, and run alternately on the same inputs; speed is the median of the ratios per round. The
signal-to-noise ratio is that of the worst output against the float32 export, in dB, over several inputs.

To add a variant, add an entry to VARIANTS: its name, its source, and a function that writes it.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from suite import feeds, zoo
from suite.latency import session

ROOT = Path(__file__).resolve().parent.parent
_CACHE = Path.home() / ".cache" / "surgery" / "precision"
_SEEDS = (7, 8, 9)
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
_CALIBRATION_SEEDS = tuple(range(100, 108))


@dataclass(frozen=True)
class Variant:
    """A way to make a model faster; its source is the raw export ("raw") or another variant."""

    name: str
    source: str
    make: Callable[[Path, Path], None]


@dataclass
class Row:
    """The measurements of one variant of one model; `failure` says why there are none."""

    model: str
    variant: str
    megabytes: float = math.nan
    seconds: float = math.nan
    speed: float = math.nan
    snr: float = math.nan
    rounds: int = 0
    failure: str = ""


def recipe(text: str, budget: str = "snr >= 0 dB") -> Callable[[Path, Path], None]:
    """Return a function that applies a recipe of surgery, given as the name of a shipped one or as steps in YAML.

    Steps are held to the budget.
    """

    def make(source: Path, target: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            name: str | Path = text
            if "\n" in text or ":" in text:
                name = Path(folder) / "recipe.yaml"
                name.write_text(
                    f"recipe: measured\non_failure: bisect\naccuracy: {{budget: {budget}}}\n{text}\n", encoding="utf-8"
                )
            command = [sys.executable, "-m", "surgery", "apply", name, source, "-o", target, "--force"]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
            if not target.is_file():
                raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1])

    return make


def ort_dynamic(**options: Any) -> Callable[[Path, Path], None]:
    """Return a function that applies ONNX Runtime's `quantize_dynamic`, with its defaults for options not given."""

    def make(source: Path, target: Path) -> None:
        import logging

        from onnxruntime.quantization import QuantType, quantize_dynamic

        logging.disable(logging.WARNING)
        types = {"weight_type": QuantType.QInt8}
        quantize_dynamic(source, target, **{**types, **options})

    return make


def calibrated(text: str) -> Callable[[Path, Path], None]:
    """Return a function that applies steps of surgery that calibrate, on the same inputs as `ort_static`."""

    def make(source: Path, target: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for number, feed in enumerate(_calibration(source)):
                np.savez(Path(folder) / f"{number}.npz", **feed)
            recipe(f"calibration: {{data: {folder}}}\n{text}")(source, target)

    return make


def ort_weights(**options: Any) -> Callable[[Path, Path], None]:
    """Return a function that applies ONNX Runtime's `MatMulNBitsQuantizer`, by default for its fastest kernels."""

    def make(source: Path, target: Path) -> None:
        import logging

        from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

        logging.disable(logging.WARNING)
        config = DefaultWeightOnlyQuantConfig(**{"block_size": 128, "accuracy_level": 4, **options})
        quantizer = MatMulNBitsQuantizer(onnx.load(source), algo_config=config)
        quantizer.process()
        quantizer.model.save_model_to_file(str(target), use_external_data_format=False)

    return make


def ort_static(source: Path, target: Path) -> None:
    """Apply ONNX Runtime's `quantize_static`, with pairs of QuantizeLinear and DequantizeLinear, per channel."""
    import logging

    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.waiting = iter(_calibration(source))

        def get_next(self) -> feeds.Feed | None:
            return next(self.waiting, None)

    logging.disable(logging.WARNING)
    quantize_static(source, target, Reader(), per_channel=True, weight_type=QuantType.QInt8)


def _calibration(source: Path) -> list[feeds.Feed]:
    return [_drawn(source, seed) for seed in _CALIBRATION_SEEDS]


VARIANTS = (
    Variant("default", "raw", recipe("default")),
    Variant("quantize-dynamic", "default", recipe("steps: [quantize-dynamic]")),
    Variant("ort-dynamic", "default", ort_dynamic()),
    Variant("quantize-static", "default", calibrated("steps: [{quantize-static: {method: mse}}]")),
    Variant("ort-static", "default", ort_static),
    Variant("ort-dynamic-raw", "raw", ort_dynamic()),
    Variant("quantize-weights", "default", recipe("steps: [quantize-weights]")),
    Variant("quantize-weights-32", "default", recipe("steps: [{quantize-weights: {block: 32}}]")),
    Variant("quantize-weights-8", "default", recipe("steps: [{quantize-weights: {bits: 8}}]")),
    Variant(
        "quantize-weights-4-8",
        "default",
        recipe("steps: [quantize-weights, {quantize-weights: {bits: 8}}]", "snr >= 10 dB"),
    ),
    Variant("ort-weights", "default", ort_weights()),
    Variant("ort-weights-8", "default", ort_weights(bits=8)),
    Variant("ort-weights-raw", "raw", ort_weights()),
)


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    names = [variant.name for variant in VARIANTS]
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", nargs="+", metavar="NAME", default=list(zoo.NAMES), help="names of the zoo, or files")
    p.add_argument("--variants", nargs="+", metavar="NAME", default=names, choices=names, help="; ".join(names))
    p.add_argument("--threads", type=int, default=1, help="threads of a timed model (default: 1)")
    p.add_argument("--rounds", type=int, default=20, help="rounds in which each variant runs once (default: 20)")
    about = "what to time with: cpu counts the time of the process, for a machine that is busy (default: wall)"
    p.add_argument("--clock", choices=list(CLOCKS), default="wall", help=about)
    p.add_argument("--cache", type=Path, default=_CACHE, metavar="FOLDER", help=f"what is kept (default: {_CACHE})")
    p.add_argument("--again", nargs="*", metavar="NAME", default=[], help="variants to make anew")
    p.add_argument("--out", type=Path, metavar="FILE", help="append the rows there as JSON lines")
    p.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    return p


def made(variant: Variant, raw: Path, arguments: argparse.Namespace) -> Path:
    """Return the file of a variant, created unless the cache has one that is not older than its source."""
    source = raw
    if variant.source != "raw":
        source = made(next(one for one in VARIANTS if one.name == variant.source), raw, arguments)
    target = Path(arguments.cache) / f"{raw.stem}.{variant.name}.onnx"
    stale = target.is_file() and target.stat().st_mtime < source.stat().st_mtime
    if stale or (variant.name in arguments.again and not getattr(arguments, f"made {target}", False)):
        target.unlink(missing_ok=True)
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        variant.make(source, target)
        setattr(arguments, f"made {target}", True)
    return target


def rows_of(model: zoo.Model, arguments: argparse.Namespace) -> list[Row]:
    """Create the variants of a model and measure them together, in a separate process; return the rows."""
    rows, files = [], {"raw": model.path}
    for variant in VARIANTS:
        if variant.name not in arguments.variants:
            continue
        row = Row(model.name, variant.name)
        rows.append(row)
        try:
            files[variant.name] = made(variant, model.path, arguments)
        except Exception as problem:
            row.failure = f"{type(problem).__name__}: {problem}".splitlines()[0][:160]
    with tempfile.TemporaryDirectory() as folder:
        request = Path(folder) / "request.json"
        request.write_text(json.dumps({name: str(path) for name, path in files.items()}), encoding="utf-8")
        own = [sys.executable, __file__, "--measure", request]
        shared = ["--threads", arguments.threads, "--rounds", arguments.rounds, "--clock", arguments.clock]
        done = subprocess.run(list(map(str, [*own, *shared])), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        found = json.loads(done.stdout)
    raw = Row(model.name, "raw")
    for row in (raw, *rows):
        for key, value in found.get(row.variant, {}).items():
            setattr(row, key, value)
    return [raw, *rows]


def measure(files: dict[str, str], threads: int, rounds: int, clock: str = "wall") -> dict[str, dict[str, Any]]:
    """Run all variants alternately; return by variant the speed over the raw export, seconds, dB and size."""
    raw = Path(files["raw"])
    sessions: dict[str, Any] = {}
    results: dict[str, dict[str, Any]] = {}
    inputs = [_drawn(raw, seed) for seed in _SEEDS]
    names: list[str] = []
    wanted: list[list[Any]] = []
    for name, path in files.items():
        results[name] = {"megabytes": Path(path).stat().st_size / 1e6}
        try:
            sessions[name] = session(Path(path), threads)
            outputs = [sessions[name].run(None, feed) for feed in inputs]
        except Exception as problem:
            sessions.pop(name, None)
            results[name]["failure"] = str(problem).splitlines()[0][:160]
            continue
        if name == "raw":
            names, wanted = [output.name for output in sessions[name].get_outputs()], outputs
        if [output.name for output in sessions[name].get_outputs()] == names:
            results[name]["snr"] = min(_snr(*pair) for pair in zip(zip(*wanted), zip(*outputs)))
    times: dict[str, list[float]] = {name: [] for name in sessions}
    order = list(sessions)
    for turn in range(rounds):
        for name in order[turn % len(order) :] + order[: turn % len(order)]:
            begin = CLOCKS[clock]()
            sessions[name].run(None, inputs[0])
            times[name].append(CLOCKS[clock]() - begin)
    for name, taken in times.items():
        speed = statistics.median(base / own for base, own in zip(times["raw"], taken))
        results[name].update(seconds=min(taken), speed=speed, rounds=len(taken))
    return results


def _drawn(path: Path, seed: int) -> feeds.Feed:
    model = onnx.load(path, load_external_data=False)
    return feeds.draw(model, feeds.USUAL, ragged=seed % 2 == 0, seed=seed)


def _snr(wanted: Iterable[Any], given: Iterable[Any]) -> float:
    """Return the signal-to-noise ratio of one output over all inputs, in dB."""
    signal = noise = 0.0
    for want, got in zip(wanted, given):
        if np.shape(want) != np.shape(got):
            return -math.inf
        exact = np.asarray(want, np.float64)
        signal += float((exact**2).sum())
        noise += float(((exact - np.asarray(got, np.float64)) ** 2).sum())
    return math.inf if not noise else 10 * math.log10(signal / noise) if signal else -math.inf


def table(rows: list[Row]) -> str:
    """Format rows as Markdown."""
    lines = ["| model | variant | speed over raw | SNR, dB | MB | ms |", "|---|---|--:|--:|--:|--:|"]
    for row in rows:
        figures = f"{row.speed:.2f} | {row.snr:.1f} | {row.megabytes:.1f} | {row.seconds * 1e3:.1f}"
        lines.append(f"| {row.model} | {row.variant} | {row.failure + ' | | |' if row.failure else figures} |")
    for name in dict.fromkeys(row.variant for row in rows):
        speeds = [row.speed for row in rows if row.variant == name and not row.failure]
        if speeds:
            lines.append(
                f"| geometric mean of {len(speeds)} | {name} | {statistics.geometric_mean(speeds):.2f} | | | |"
            )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    arguments = parser().parse_args()
    if arguments.measure:
        files = json.loads(arguments.measure.read_text(encoding="utf-8"))
        print(json.dumps(measure(files, arguments.threads, arguments.rounds, arguments.clock)))
        return
    rows: list[Row] = []
    for name in arguments.models:
        found = rows_of(zoo.find(name), arguments)
        rows += found
        print(table(found), file=sys.stderr if len(arguments.models) > 1 else sys.stdout, flush=True)
        if arguments.out:
            with arguments.out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(row)) + "\n" for row in found)
    if len(arguments.models) > 1:
        print(table(rows))


if __name__ == "__main__":
    main()
