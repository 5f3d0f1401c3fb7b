"""Build models of the zoo: `python -m models.build NAME... [--exporter dy|ts|both] [--size full|small]`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .spec import Built, Exporter

HERE = Path(__file__).resolve().parent

SAME = 1e-3
"""Largest difference, in standard deviations, between runs that compute the same in another order."""


def cache_folder() -> Path:
    """Give the folder of models that are not committed: `$SURGERY_CACHE`, else `~/.cache/surgery/models`."""
    configured = os.environ.get("SURGERY_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "surgery" / "models"


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    p = argparse.ArgumentParser(prog="python -m models.build", description="Build models of the zoo.")
    p.add_argument("names", nargs="*", metavar="NAME", help="architectures (see --list); none means all")
    p.add_argument("--exporter", choices=["dy", "ts", "both"], default="both", help="dynamo, TorchScript or both")
    p.add_argument("--size", choices=["full", "small"], default="small", help="full size, or the same graph small")
    p.add_argument("--committed", action="store_true", help="only the small models that are in the repository")
    p.add_argument("--out", type=Path, help="folder (default: the cache; this package for --committed)")
    p.add_argument("--opset", type=int, help="ask the exporters for this opset")
    p.add_argument("--list", action="store_true", help="list the architectures and stop")
    return p


def main(argv: list[str] | None = None) -> int:
    """Build what the command line asks for, each export in a separate process; return the exit code."""
    args = parser().parse_args(argv)
    os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported; nothing here comes from a hub
    from .catalog import ALL

    if args.list:
        for spec in ALL.values():
            print(f"{spec.name:18}{spec.about}")
        return 0
    unknown = [name for name in args.names if name not in ALL]
    if unknown:
        print(f"no model {', '.join(unknown)}; there are: {', '.join(ALL)}", file=sys.stderr)
        return 2
    if args.committed:
        args.size = "small"
    exporters: tuple[Exporter, ...] = ("dy", "ts") if args.exporter == "both" else (args.exporter,)
    jobs = [
        (name, exporter)
        for name in args.names or ALL
        for exporter in exporters
        if not args.committed or exporter in ALL[name].committed
    ]
    folder = args.out or (HERE if args.committed else cache_folder())
    if len(jobs) == 1:
        return _build_one(*jobs[0], args, folder)
    # The memory of an export only returns with its process.
    return max((_spawn(name, exporter, args, folder) for name, exporter in jobs), default=0)


def _spawn(name: str, exporter: Exporter, args: argparse.Namespace, folder: Path) -> int:
    command = [sys.executable, "-m", __spec__.name, name, "--exporter", exporter, "--size", args.size]
    command += ["--out", str(folder)]
    if args.opset:
        command += ["--opset", str(args.opset)]
    return 1 if subprocess.run(command, check=False).returncode else 0


def _build_one(name: str, exporter: Exporter, args: argparse.Namespace, folder: Path) -> int:
    import torch

    from .catalog import ALL
    from .export import export

    torch.set_num_threads(1)
    spec = ALL[name]
    path = folder / spec.file_name(exporter, args.size)
    started = time.perf_counter()
    try:
        built = spec.build(args.size, exporter)
        opset = args.opset or spec.opsets[exporter]
        metadata = spec.metadata or args.size == "full"
        export(built, path, exporter, opset, training=spec.training, metadata=metadata)
    except Exception as error:
        reason = (str(error).strip() or "no message").splitlines()[0]
        print(f"{path.name}: {type(error).__name__}: {reason}", file=sys.stderr)
        return 1
    return _report(path, built, time.perf_counter() - started)


def _report(path: Path, built: Built, seconds: float) -> int:
    """Print what was built and how its outputs behave; 1 when they are unfit for comparing models."""
    import onnx

    from .probe import module_differs, probe, steps_differ

    ops = Counter(node.op_type for node in onnx.load(path).graph.node)
    print(
        f"{path.name}: {ops.total()} nodes, {ops['Dropout']} Dropout, {ops['Identity']} Identity, "
        f"{path.stat().st_size / 2**20:.2f} MiB, {seconds:.0f} s"
    )
    results = probe(path)
    for r in results:
        verdict = "ok" if r.ok else "UNFIT"
        print(f"  {r.output}: std {r.std:.3g}, inputs move it {r.moved:.3g}, rows differ {r.rows:.3g}: {verdict}")
    fit = all(r.ok for r in results)
    differences = {"from its module": module_differs(path, built), "in steps": steps_differ(path)}
    for words, difference in differences.items():
        if difference is not None:
            same = difference <= SAME
            fit = fit and same
            print(f"  differs {words} by {difference:.1e}: {'ok' if same else 'WRONG'}")
    return 0 if fit else 1


if __name__ == "__main__":
    sys.exit(main())
