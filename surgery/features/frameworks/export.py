"""Export a PyTorch module or program, compare the model with it, clean it up, compare again, and write it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import UsageError
from surgery.base.json_record import Record
from surgery.base.views import view
from surgery.engine.pipeline import runner
from surgery.features.frameworks import parity, programs
from surgery.features.frameworks.parity import ModuleParity
from surgery.features.frameworks.request import Exporter, ModuleInputs
from surgery.features.frameworks.torch_side import TorchSide
from surgery.model import storage
from surgery.verification.inputs.spec import InputsSpec, TensorSpec, VerifySpec

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import Result
    from surgery.engine.recipe import Recipe
    from surgery.engine.recipe.from_python import Given

FORMAT_VERSION = 1
_PROGRAM = ".pt2"


@dataclass(frozen=True)
class Stage(Record, keys="stage=name text seconds:3"):
    """One stage of an export: its name, its result as text, and its duration in seconds."""

    name: str
    text: str
    seconds: float


@dataclass
class Exported(Record, keys="ok target file=written exporter stages warnings exported cleanup=cleanup_report result"):
    """The result of an export. `written` is the file, None if the verdict is negative and not accepted.

    `exported` is the comparison of the model from the exporter, and `result` that of the model after the recipe.
    """

    target: str
    stages: list[Stage] = field(default_factory=list)
    exporter: str = ""
    warnings: tuple[str, ...] = ()
    exported: ModuleParity | None = None
    cleanup: Result | None = None
    cleanup_report: dict[str, Any] | None = None
    result: ModuleParity | None = None
    accepts: bool = False
    written: Path | None = None

    def __repr__(self) -> str:
        """Return a line for a prompt."""
        verdict = "" if self.final is None else f", {self.final.verdict.status}"
        return f"<Exported {self.target!r}: {'ok' if self.ok else 'not ok'}{verdict}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        rows = [(stage.name, stage.text) for stage in self.stages]
        tone = "ok" if self.ok else "bad"
        return view("listed")(repr(self)[1:-1], tone, self.warnings, ("Stage", "Result"), rows, "stages")

    @property
    def final(self) -> ModuleParity | None:
        """The final comparison."""
        return self.result or self.exported

    @property
    def ok(self) -> bool:
        """Whether the model agrees with the module, or is unverified and that is accepted."""
        if self.final is None or (self.cleanup is not None and not self.cleanup.ok):
            return False
        verdict = self.final.verdict
        return verdict.passed or (self.accepts and verdict.is_unverified)

    def to_json(self) -> dict[str, Any]:
        """Return plain values.

        `stages` lists the stages, with seconds. `exported` and `result` are verdicts as in `surgery verify`, with
        `turned`: the lines that branch on a tensor value and took another branch than in the export; `unturned`: those
        that never did; `left_out`: inputs that the module refuses. `cleanup` is the report of the recipe.
        """
        return {"format_version": FORMAT_VERSION, **super().to_json()}

    @contextmanager
    def stage(self, name: str, show: Callable[[str], object]) -> Iterator[list[str]]:
        """Time a stage; texts appended to the list are its result."""
        show(name)
        said: list[str] = []
        started = time.perf_counter()
        yield said
        self.stages.append(Stage(name, "; ".join(said), time.perf_counter() - started))


def export(
    target: str,
    output: str | Path | None = None,
    *,
    inputs: ModuleInputs | None = None,
    exporter: Exporter = "auto",
    opset: int | None = None,
    recipe: Given | None = None,
    verify: VerifySpec | None = None,
    trust: bool = False,
    force: bool = False,
    show: Callable[[str], object] = lambda _: None,
) -> Exported:
    """Export `MODULE:CALLABLE`, `FILE.py:CALLABLE` or a .pt2 program to ONNX, compare both, and write the model.

    The callable returns a module, or a module with example inputs; otherwise `inputs` describes the inputs. `recipe`,
    which is what `surgery.apply` takes, cleans up the model. PyTorch runs in a separate process. `show` receives each
    stage.

    Raises UsageError if the target is not trusted or cannot be loaded or exported, RecipeError for mistakes in the
    recipe, OutputError if `output` exists and is not to be replaced by `force`, and WorkerError for a crash. A negative
    verdict raises no error: look at `Exported.ok`.
    """
    from surgery.engine.recipe.from_python import read

    _require_trust(target, trust)
    if output is not None:
        storage.check_target(Path(output), force=force)
    cleanup = None if recipe is None else read(recipe, trust=trust)
    given, spec = inputs or ModuleInputs(), verify or VerifySpec()
    made = Exported(target, accepts=spec.unverified == "accept")
    with (
        TorchSide(target, timeout=spec.timeout, memory=spec.memory) as side,
        tempfile.TemporaryDirectory(prefix="surgery-export-") as folder,
    ):
        with made.stage("load", show) as said:
            side.load(given)
            said.append(f"{side.module} with {_listed(side.inputs)}; torch {side.torch}")
        path = Path(folder, "exported.onnx")
        with made.stage("export", show) as said:
            said.append(_exported(made, side, path, exporter, opset, given.outputs))
        stored = storage.load(path)
        _finish(made, side, stored, given, spec, cleanup, show)
        if output is not None and made.ok:
            proto = stored.proto if made.cleanup is None else made.cleanup.proto
            weights = stored.weights if made.cleanup is None else made.cleanup.stored.weights
            made.written = storage.save(proto, Path(output), weights, force=force)[0]
    return made


def _finish(
    made: Exported,
    side: TorchSide,
    stored: storage.StoredModel,
    given: ModuleInputs,
    spec: VerifySpec,
    recipe: Recipe | None,
    show: Callable[[str], object],
) -> None:
    """Compare, clean up, compare again."""
    known = InputsSpec(
        dims={name: tuple(sizes) for name, sizes in given.dims.items()},
        tensors={one.name: TensorSpec(range=one.range) for one in side.inputs if one.range is not None},
    )
    example = side.example()
    names = [output.name for output in stored.proto.graph.output]
    with made.stage("compare", show) as said:
        model = storage.without_alias(stored.proto).SerializeToString(deterministic=True)
        made.exported = parity.compare(side, model, names, example, known, spec)
        said.append(verdict_line(made.exported))
    if recipe is None or made.exported.verdict.is_different:
        return
    with made.stage("clean up", show) as said:
        inputs = replace(recipe.inputs, dims=known.dims, tensors=known.tensors)
        made.cleanup = runner.run(stored, replace(recipe, inputs=inputs, verify=_joined(recipe, spec)))
        result = made.cleanup
        # The report includes the hash of the exporter's file, which is deleted after the export.
        made.cleanup_report = result.to_json()
        said.append(f"{recipe.name}: {result.input.nodes} -> {result.output.nodes} nodes")
    with made.stage("compare the result", show) as said:
        model = storage.without_alias(made.cleanup.proto).SerializeToString(deterministic=True)
        made.result = parity.compare(side, model, names, example, known, spec)
        said.append(verdict_line(made.result))


def _joined(recipe: Recipe, spec: VerifySpec) -> VerifySpec:
    """Return the verification settings of the recipe, with the seed and the limits of the command."""
    return replace(recipe.verify, seed=spec.seed, timeout=spec.timeout, memory=spec.memory, unverified=spec.unverified)


def verdict_line(found: ModuleParity) -> str:
    """Return the result of a comparison in one line."""
    verdict = found.verdict
    sets = sum("refused" not in one for one in found.bindings) - len(found.left_out)
    return f"{verdict.status.value} on {sets} input sets: {verdict.message}"


def _exported(
    made: Exported, side: TorchSide, path: Path, exporter: Exporter, opset: int | None, outputs: Sequence[str]
) -> str:
    """Export with the requested exporter, or else the first one that succeeds."""
    program = side.target.endswith(_PROGRAM)
    wanted = {"auto": ("dynamo",) if program else ("dynamo", "torchscript")}.get(exporter, (exporter,))
    failed: list[str] = []
    for name in wanted:
        try:
            made.warnings = side.export(path, name, opset, outputs)  # type: ignore[arg-type]
        except UsageError as error:
            failed.append(error.what)
            continue
        made.exporter = name
        return f"with {name}" + (f", as {failed[0]}" if failed else "")
    raise UsageError("; ".join(failed), where=side.target, todo=None if len(wanted) > 1 else "try --exporter auto")


def _listed(inputs: Sequence[Any]) -> str:
    return ", ".join(f"{one.name} {one.dtype}[{','.join(map(str, one.dims))}]" for one in inputs)


def _require_trust(target: str, trust: bool) -> None:
    """Raise UsageError for code that the user has not agreed to run."""
    if target.endswith(_PROGRAM):
        if not Path(target).is_file():
            raise UsageError("no such file", where=target)
        found = None if trust else programs.find_code(Path(target))
        if found:
            raise UsageError(f"loading it would run code: {found}", where=target, todo="pass --trust if you trust it")
        return
    home, colon, name = target.rpartition(":")
    if not colon or not home or not name:
        todo = "name MODULE:CALLABLE, FILE.py:CALLABLE or a .pt2 program"
        raise UsageError(f"'{target}' does not name a callable", todo=todo)
    if trust or (home.endswith(".py") and _is_trusted(Path(home))):
        return
    raise UsageError(f"to export it, the code of '{home}' has to be run", where=target, todo="pass --trust to allow it")


def _is_trusted(path: Path) -> bool:
    from surgery.engine.recipe import trust

    return path.is_file() and trust.trusted(path, trust.entries())
