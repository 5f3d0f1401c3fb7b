"""Build models of the zoo: `python -m models.build NAME... [--exporter dy|ts|both] [--size full|small]`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent


def cache_folder() -> Path:
    """Give the folder of full-size models: `$SURGERY_CACHE`, else `~/.cache/surgery/models`."""
    configured = os.environ.get("SURGERY_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "surgery" / "models"


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    p = argparse.ArgumentParser(prog="python -m models.build", description="Build models of the zoo.")
    p.add_argument("names", nargs="*", metavar="NAME", help="architectures (see --list); none means all")
    p.add_argument("--exporter", choices=["dy", "ts", "both"], default="both", help="dynamo, TorchScript or both")
    p.add_argument("--size", choices=["full", "small"], default="small", help="full size, or the same graph small")
    p.add_argument("--out", type=Path, help="folder (default: full size to the cache, small ones to this package)")
    p.add_argument("--opset", type=int, help="ask the exporters for this opset")
    p.add_argument("--no-traces", action="store_true", help="leave out the stack traces of the dynamo exporter")
    p.add_argument("--list", action="store_true", help="list the architectures and stop")
    return p


def main(argv: list[str] | None = None) -> int:
    """Build what the command line asks for, each export in a process of its own; return the exit code."""
    args = parser().parse_args(argv)
    os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported; nothing here comes from a hub
    from .catalog import ALL

    if args.list:
        for spec in ALL.values():
            print(f"{spec.name:14}{'+'.join(spec.exporters):7}{spec.about}")
        return 0
    unknown = [name for name in args.names if name not in ALL]
    if unknown:
        print(f"no model {', '.join(unknown)}; there are: {', '.join(ALL)}", file=sys.stderr)
        return 2
    jobs = [
        (name, exporter)
        for name in args.names or ALL
        for exporter in (ALL[name].exporters if args.exporter == "both" else (args.exporter,))
    ]
    if len(jobs) == 1:
        return _build_one(*jobs[0], args)
    # Memory of an export only returns with its process.
    return max(_spawn(name, exporter, args) for name, exporter in jobs)


def _spawn(name: str, exporter: str, args: argparse.Namespace) -> int:
    command = [sys.executable, "-m", __spec__.name, name, "--exporter", exporter, "--size", args.size]
    if args.out:
        command += ["--out", str(args.out)]
    if args.opset:
        command += ["--opset", str(args.opset)]
    if args.no_traces:
        command.append("--no-traces")
    return min(subprocess.run(command, check=False).returncode & 0xFF, 1)


def _build_one(name: str, exporter: str, args: argparse.Namespace) -> int:
    import onnx
    import torch

    from .catalog import ALL
    from .export import export
    from .probe import probe

    torch.set_num_threads(1)
    torch.manual_seed(0)  # the exporters see the same example arguments each time
    spec = ALL[name]
    folder = args.out or (cache_folder() if args.size == "full" else HERE)
    path = folder / spec.file_name(exporter, args.size)
    started = time.perf_counter()
    try:
        built = spec.build(args.size, exporter)
        opset = args.opset or spec.opset_for(exporter)
        export(built, path, exporter, opset, training=spec.training, traces=not args.no_traces)
    except Exception as error:
        print(f"{path.name}: {type(error).__name__}: {str(error).strip().splitlines()[0]}", file=sys.stderr)
        if os.environ.get("ZOO_TRACEBACK"):
            raise
        return 1
    seconds = time.perf_counter() - started
    model = onnx.load(path, load_external_data=False)
    ops = Counter(node.op_type for node in model.graph.node)
    print(
        f"{path.name}: {len(model.graph.node)} nodes, {ops['Dropout']} Dropout, {ops['Identity']} Identity, "
        f"{path.stat().st_size / 2**20:.2f} MiB, {seconds:.0f} s"
    )
    results = probe(path)
    for r in results:
        verdict = "ok" if r.ok else "UNFIT"
        print(f"  {r.output}: std {r.std:.3g}, inputs move it {r.moved:.3g}, rows differ {r.rows:.3g}: {verdict}")
    return 0 if all(r.ok for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
