"""Write `surgery/model/targets/cpu_kernels.json`: CPU kernels and contrib operators of releases of ONNX Runtime.

    python tests/support/kernel_table.py 1.20.1 1.21.1 1.22.1 ...

Each release is installed into a temporary folder by pip, and lists its own registries in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

_LISTING = """
import json
from onnxruntime.capi import onnxruntime_pybind11_state as native
kernels = [
    [kernel.domain, kernel.op_name, *kernel.version_range, {k: sorted(v) for k, v in kernel.type_constraints.items()}]
    for kernel in native.get_all_opkernel_def() if kernel.provider == "CPUExecutionProvider"
]
schemas = {
    f"{schema.domain}::{schema.name}": [len(schema.inputs), schema.min_output, sorted(schema.attributes)]
    for schema in native.get_all_operator_schema() if schema.domain == "com.microsoft"
}
print(json.dumps([kernels, schemas]))
"""
_TABLE = Path(__file__).resolve().parents[2] / "surgery" / "model" / "targets" / "cpu_kernels.json"
_MANY = 2**31 - 1


def listed(release: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the kernels of a release and the schemas of its contrib operators, as its registries list them."""
    with tempfile.TemporaryDirectory() as folder:
        install = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, f"onnxruntime=={release}"]
        subprocess.run([sys.executable, *install], check=True)
        code = f"import sys; sys.path.insert(0, {folder!r}){_LISTING}"
        kernels, schemas = json.loads(subprocess.check_output([sys.executable, "-c", code]))
        return kernels, schemas


def table(releases: list[str]) -> dict[str, Any]:
    """Return the table of releases, given from the oldest to the newest."""
    seen: dict[str, list[int]] = {}
    schemas = []
    for number, release in enumerate(releases):
        kernels, of_release = listed(release)
        schemas.append(of_release)
        for row in kernels:
            seen.setdefault(json.dumps(row, sort_keys=True), []).append(number)
    types: list[list[str]] = []
    rows = []
    for text, numbers in sorted(seen.items()):
        domain, op, first, last, kinds = json.loads(text)
        for kind in kinds.values():
            if kind not in types:
                types.append(kind)
        assert numbers == list(range(numbers[0], numbers[-1] + 1)), f"{op} comes and goes"
        until = releases[numbers[-1]] if numbers[-1] < len(releases) - 1 else None
        variables = {name: types.index(kind) for name, kind in kinds.items()}
        rows.append([domain, op, first, None if last == _MANY else last, variables, releases[numbers[0]], until])
    return {"releases": releases, "types": types, "rows": rows, "forms": forms(releases, schemas)}


def forms(releases: list[str], schemas: list[dict[str, Any]]) -> list[Any]:
    """Return the older forms of contrib operators: the last release with each, and what the newest has in addition."""
    found = []
    for op, (_, _, newest) in sorted(schemas[-1].items()):
        having = [(release, of[op]) for release, of in zip(releases, schemas) if op in of]
        for (release, form), (_, following) in pairwise(having):
            if form != following:
                inputs, least, attributes = form
                found.append([op, release, inputs, least, sorted({*newest} - {*attributes})])
    return found


def write(found: dict[str, Any]) -> None:
    """Write the table, one row a line."""
    parts = [f'"releases": {json.dumps(found["releases"])}']
    for key in ("types", "rows", "forms"):
        lines = ",\n".join(json.dumps(one) for one in found[key])
        parts.append(f'"{key}": [\n{lines}\n]')
    _TABLE.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    write(table(sys.argv[1:]))
