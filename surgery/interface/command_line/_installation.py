"""Checks of the installation; each check tests a component directly.

`CHECKS` are the checks in order, and `CONFLICTS` are packages that exclude each other. A check yields findings; an
exception in a check is a finding too.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from surgery.base import workers
from surgery.base.errors import SurgeryError, WorkerError, internal
from surgery.base.json_record import Record
from surgery.base.workers.installed import INSTALL
from surgery.engine.provenance.packages import BUILDS, builds

Level = Literal["ok", "note", "broken"]

_GIB = 1 << 30
_FEW_FILES = 256
"""Number of open files that is sufficient for the models, their weights and the workers of a run."""
_LITTLE_SPACE = _GIB
_LITTLE_MEMORY = 2 * _GIB
_DISTRIBUTION = "onnx-surgery"
_TIMEOUT = 120.0
_TOOLS = ("onnxsim", "onnxoptimizer", "onnx_graphsurgeon", "onnx_shape_inference", "onnxscript", "onnxslim")
"""Modules used by steps of recipes; the last two are optional."""

CONFLICTS = (
    (BUILDS, "all of them install the module onnxruntime, and their files are mixed"),
    (("onnx", "onnx-weekly"), "both install the module onnx"),
    (("onnx-simplifier", "onnxsim"), "both install the module onnxsim"),
    (("onnx-graphsurgeon", "nvidia-onnx-graphsurgeon"), "both install the module onnx_graphsurgeon"),
    (("protobuf", "protobuf-nightly"), "both install the module google.protobuf"),
)
"""Distributions of which only one may be installed, with the reason."""


@dataclass(frozen=True)
class InstallationProblem:
    """A finding of a check: "broken" prevents commands from working, a "note" is worth knowing."""

    check: str
    level: Level
    text: str
    todo: str = ""


@dataclass(frozen=True)
class Diagnosis(Record, keys="ok findings"):
    """All findings, in the order of the checks."""

    findings: tuple[InstallationProblem, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is broken."""
        return all(finding.level != "broken" for finding in self.findings)


def diagnose() -> Diagnosis:
    """Run all checks."""
    found: list[InstallationProblem] = []
    for name, check in CHECKS.items():
        try:
            found += [InstallationProblem(name, *one) for one in check()]
        except Exception as error:
            found.append(InstallationProblem(name, "broken", internal(error)))
    return Diagnosis(tuple(found))


_Found = Iterator[tuple[Level, str, str]]


def _python() -> _Found:
    text = f"{platform.python_version()} ({platform.python_implementation()}) at {sys.executable}"
    if not sys.platform.startswith("linux"):
        yield "broken", f"{text}, on {platform.system()}", "surgery needs Linux"
    else:
        yield "ok", f"{text}, {platform.system()} {platform.release()}, {platform.machine()}", ""


def _packages() -> _Found:
    """Compare the installed packages with the requirements of surgery."""
    requirements = importlib.metadata.requires(_DISTRIBUTION) or []
    installed = []
    for text in requirements:
        if "extra ==" in text:
            continue
        found = re.match(r"([\w.-]+)\s*(.*)", text.partition(";")[0])
        name, wanted = (found[1], found[2].strip()) if found else (text, "")
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield "broken", f"{name} is not installed", f"pip install '{name}{wanted}'"
            continue
        if not _is_met(wanted, version):
            yield (
                "broken",
                f"{name} {version} is installed, but surgery needs {wanted}",
                f"pip install '{name}{wanted}'",
            )
        installed.append(f"{name} {version}")
    yield from _runtimes()
    yield "ok", ", ".join([f"surgery {importlib.metadata.version(_DISTRIBUTION)}", *installed]), ""


def _runtimes() -> _Found:
    """Compare the installed builds of ONNX Runtime with the oldest release that surgery supports."""
    found = builds()
    wanted = _runtime_requirement()
    if not found:
        yield "broken", "no build of ONNX Runtime is installed", INSTALL
    for name, version in found.items():
        if _is_met(wanted, version):
            yield "ok", f"{name} {version}", ""
        else:
            yield (
                "broken",
                f"{name} {version} is installed, but surgery needs {wanted}",
                f"pip install '{name}{wanted}'",
            )


def _runtime_requirement() -> str:
    """Return the releases of ONNX Runtime that the extra `cpu` allows."""
    for text in importlib.metadata.requires(_DISTRIBUTION) or []:
        found = re.match(r"onnxruntime\s*([^;]*);.*extra == ['\"]cpu['\"]", text)
        if found:
            return found[1].strip()
    return ""


def _is_met(wanted: str, version: str) -> bool:
    """Return whether a version meets a requirement; True if that cannot be determined."""
    try:
        from packaging.specifiers import SpecifierSet
    except ImportError:
        return True
    return SpecifierSet(wanted).contains(version, prereleases=True)


def _conflicts() -> _Found:
    there = {re.sub(r"[-_.]+", "-", name).lower() for name in _distributions()}
    for names, reason in CONFLICTS:
        both = [name for name in names if name in there]
        if len(both) > 1:
            todo = f"pip uninstall {' '.join(both)}, then install one of them"
            yield "broken", f"{' and '.join(both)} are installed: {reason}", todo
    if _protobuf() == "python":
        yield "note", "protobuf runs in Python, without its C code: reading models is slow", "pip install -U protobuf"


def _distributions() -> Iterator[str]:
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            yield name


def _protobuf() -> str:
    return str(importlib.import_module("google.protobuf.internal.api_implementation").Type())


def _workers() -> _Found:
    """Start a worker and let it crash; the crash must end only that process."""
    with workers.Worker(timeout=_TIMEOUT) as worker:
        if worker.call("surgery.base.workers.drill:echo", value=7) != 7:
            yield "broken", "a worker returns a wrong answer", ""
        try:
            worker.call("surgery.base.workers.drill:segfault")
        except WorkerError as error:
            if error.signal != "SIGSEGV":
                yield "broken", f"a crash is not recognised: {error}", ""
        else:
            yield "broken", "a crash went unnoticed", ""
        worker.call("surgery.base.workers.drill:echo", value=8)
    yield "ok", "worker processes start, and a crash ends only the worker", ""


def _tools() -> _Found:
    """Import the tools in a worker, because a broken tool may end the process."""
    for module in _TOOLS:
        with workers.Worker(timeout=_TIMEOUT) as worker:
            try:
                found = worker.call("surgery.interface.command_line._installation:try_module", name=module)
            except SurgeryError as error:
                yield "note", f"{module} cannot be imported: {error}", "reinstall it; steps that use it fail"
            else:
                if found is None and module in _TOOLS[:4]:
                    yield "note", f"{module} is not installed", "steps that use it fail"


def try_module(name: str) -> str | None:
    """Import a module; return its file, or None if it is not installed. Runs in a worker."""
    if importlib.util.find_spec(name) is None:
        return None
    return getattr(importlib.import_module(name), "__file__", "") or ""


def _runtime() -> _Found:
    """Query the providers of ONNX Runtime, and start each one."""
    with workers.Worker(timeout=_TIMEOUT, preload=["onnxruntime"]) as worker:
        version, known = worker.call("surgery.interface.command_line._installation:providers")
        yield "ok", f"onnxruntime {version} with {', '.join(known)}", ""
        for name in known:
            try:
                problem = worker.call("surgery.interface.command_line._installation:try_provider", name=name)
            except WorkerError as error:
                problem = str(error)
            if problem:
                level: Level = "broken" if name == "CPUExecutionProvider" else "note"
                yield level, f"{name} does not start: {problem}", "runs with --provider need it" * (level == "note")


def providers() -> list[Any]:
    """Return the version and the providers of ONNX Runtime. Runs in a worker."""
    import onnxruntime

    return [onnxruntime.__version__, list(onnxruntime.get_available_providers())]


def try_provider(name: str) -> str:
    """Run a model on a provider; return the problem, or an empty string. Runs in a worker."""
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(_relu(8, 13), providers=[name])
    if name not in session.get_providers():
        return "ONNX Runtime continues without it"
    (found,) = session.run(None, {"x": np.array([-1.0, 2.0], np.float32)})
    return "" if found.tolist() == [0.0, 2.0] else f"Relu of [-1, 2] is {found.tolist()}"


def _relu(ir_version: int, opset: int) -> bytes:
    import onnx

    value = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "relu", value[:1], value[1:])
    made = onnx.helper.make_model(graph, ir_version=ir_version, opset_imports=[onnx.helper.make_opsetid("", opset)])
    data: bytes = made.SerializeToString()
    return data


def _formats() -> _Found:
    """Compare the newest formats that onnx writes with the newest ones that ONNX Runtime loads."""
    with workers.Worker(timeout=_TIMEOUT, preload=["onnxruntime"]) as worker:
        found = worker.call("surgery.interface.command_line._installation:newest")
    text = f"onnx {found['onnx']} writes IR version {found['writes_ir']} and opset {found['writes_opset']}; "
    text += f"ONNX Runtime loads up to IR version {found['loads_ir']} and opset {found['loads_opset']}"
    older = found["loads_ir"] < found["writes_ir"] or found["loads_opset"] < found["writes_opset"]
    todo = "models made with the defaults of onnx.helper do not load; pass ir_version and opset_imports"
    yield "note" if older else "ok", text, todo if older else ""


def newest() -> dict[str, Any]:
    """Return the newest IR version and opset of onnx, and those that ONNX Runtime loads. Runs in a worker."""
    import onnx
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    ir, opset = int(onnx.IR_VERSION), int(onnx.defs.onnx_opset_version())

    def loads(ir_version: int, version: int) -> bool:
        try:
            onnxruntime.InferenceSession(_relu(ir_version, version), providers=["CPUExecutionProvider"])
        except Exception:
            return False
        return True

    # Tried one after another, because ONNX Runtime refuses newer versions or warns about them.
    loads_ir = next((one for one in range(ir, 2, -1) if loads(one, 13)), 0)
    loads_opset = next((one for one in range(opset, 6, -1) if loads(min(loads_ir, ir), one)), 0)
    return {
        "onnx": onnx.__version__,
        "writes_ir": ir,
        "writes_opset": opset,
        "loads_ir": loads_ir,
        "loads_opset": loads_opset,
    }


def _integers() -> _Found:
    from surgery.model.runtime.integer_products import saturates

    wrong = [f"{data} x {weight}" for data, weight in _PAIRS if saturates(data, weight)]
    if wrong:
        text = f"sums of 8-bit products saturate on this CPU, which has no VNNI: {', '.join(wrong)}"
        yield "note", text, "quantized models give different results than on newer CPUs; reduce_range avoids this"
    else:
        yield "ok", "8-bit products are exact on this CPU", ""


_PAIRS = (("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8"))


def _memory() -> _Found:
    limit = workers.default_memory()
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    text = f"{total / _GIB:.1f} GiB of memory; a worker may take {limit / _GIB:.1f} GiB"
    group = _group_limit()
    if group is not None and group < total:
        text += f"; this process and its workers together {group / _GIB:.1f} GiB (control group)"
    least = min(total, group or total)
    short = least < _LITTLE_MEMORY or (group is not None and group < limit)
    yield "note" if short else "ok", text, "the system ends a worker that takes more" if short else ""


def _group_limit() -> int | None:
    """Return the memory limit of the control group, for example of a container."""
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(name).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        return int(text) if text.isdecimal() else None
    return None


def _files() -> _Found:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} open files are allowed"
    if 0 <= soft < _FEW_FILES:
        yield "note", text, f"ulimit -n {hard if hard > soft else 4096}"
    else:
        yield "ok", text, ""


def _space() -> _Found:
    """Check the folders that runs write to."""
    for folder in dict.fromkeys((tempfile.gettempdir(), "/dev/shm", str(Path.cwd()))):
        problem = _unwritable(Path(folder))
        if problem:
            level: Level = "broken" if folder == tempfile.gettempdir() else "note"
            yield level, f"{folder} cannot be written: {problem}", "set TMPDIR" * (level == "broken")
            continue
        free = shutil.disk_usage(folder).free
        little = free < (_LITTLE_SPACE if folder != "/dev/shm" else 1 << 26)
        todo = "large new weights do not fit; free some space, or set TMPDIR" if little else ""
        yield "note" if little else "ok", f"{free / _GIB:.1f} GiB free in {folder}", todo


def _unwritable(folder: Path) -> str:
    """Return why no file can be created in a folder; empty if one can."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(b"x" * 4096)
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _passes() -> _Found:
    from surgery.engine.registry.catalog import catalog

    count = len(catalog.passes())
    for warning in catalog.warnings():
        yield "broken", warning, "update or uninstall that package"
    others = sorted({one.origin for one in catalog.passes().values() if not one.is_standard})
    yield "ok", f"{count} passes" + (f", some of them from {', '.join(others)}" if others else ""), ""


def _recipes() -> _Found:
    """Look for recipes and targets of packages that cannot be found by name."""
    from surgery.engine.recipe import recipe_lookup
    from surgery.model.targets import shipped as targets

    for warning in [*recipe_lookup.problems(), *targets.problems()]:
        yield "broken", warning, "update, rename or uninstall it"
    yield "ok", f"{len(recipe_lookup.names())} recipes and {len(targets.names())} targets", ""


def _trust() -> _Found:
    from surgery.engine.recipe import trust

    file = trust.config_file()
    yield "ok", f"{len(trust.entries())} entries of trust in {file}" if file.is_file() else f"no {file}", ""


def _run() -> _Found:
    """Apply a recipe to a small model, from file to file."""
    import onnx

    from surgery.engine.pipeline import runner

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.onnx"), Path(folder, "out.onnx")
        graph = onnx.parser.parse_graph("g (float[n] x) => (float[n] y) { a = Identity(x) y = Relu(a) }")
        model = onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 13)])
        onnx.save(model, source)
        result = runner.apply(source, "tidy", output=target)
        kept = [node.op_type for node in onnx.load(target).graph.node] if target.is_file() else []
    if not result.ok or kept != ["Relu"] or result.end is None or result.end.status != "equal":
        yield "broken", f"a run of tidy on Identity + Relu left {kept or 'no file'}", "run it with -vv"
    else:
        yield "ok", "a run from file to file is verified", ""


CHECKS: dict[str, Callable[[], _Found]] = {
    "python": _python,
    "packages": _packages,
    "conflicts": _conflicts,
    "workers": _workers,
    "tools": _tools,
    "runtime": _runtime,
    "formats": _formats,
    "integers": _integers,
    "memory": _memory,
    "files": _files,
    "space": _space,
    "passes": _passes,
    "recipes": _recipes,
    "trust": _trust,
    "run": _run,
}
"""The checks by name, in order."""
