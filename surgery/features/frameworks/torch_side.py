"""The client of the PyTorch worker, which converts errors to user errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from surgery.base.errors import UsageError
from surgery.base.json_record import Record
from surgery.base.workers import Worker, WorkerRaised
from surgery.features.frameworks.request import Exporter, ModuleInput, ModuleInputs
from surgery.model.runtime.engine import RunOutcome

_HOME = "surgery.features.frameworks.torch_worker"


@dataclass(frozen=True)
class TensorRead(Record):
    """A value that the module read from a tensor during a run, and the line that read it."""

    file: str
    line: int
    text: str
    value: Any

    @property
    def place(self) -> str:
        """The line number with the text of the line."""
        return f"{Path(self.file).name}:{self.line}{f' `{self.text}`' if self.text else ''}"


@dataclass(frozen=True)
class Ran:
    """The result of a module on one set of inputs: outputs in order, or the reason why it refuses the inputs."""

    outputs: tuple[Any, ...] = ()
    decisions: tuple[TensorRead, ...] = ()
    refused: str | None = None


class TorchSide:
    """A module or program in a worker process. Raises UsageError for errors that its author must fix."""

    def __init__(self, target: str, *, timeout: float, memory: int | None) -> None:
        self.target = target
        self.torch = self.module = ""
        self.inputs: tuple[ModuleInput, ...] = ()
        self._worker = Worker(timeout=timeout, memory=memory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._worker.close()

    def load(self, given: ModuleInputs) -> None:
        """Load the module or program, with its example inputs."""
        found = self._call("load", target=self.target, folder=str(Path.cwd()), **_plain(given))
        self.torch, self.module = found["torch"], found["module"]
        free = found["dims"]
        said = {one.name: one for one in given.inputs}
        self.inputs = tuple(_merged(one, said.get(one["name"]), free.get(one["name"], [])) for one in found["inputs"])

    def export(self, path: Path, exporter: Exporter, opset: int | None, outputs: Sequence[str]) -> tuple[str, ...]:
        """Write an ONNX file, and return the warnings of tracing."""
        axes = ModuleInputs(self.inputs).axes()
        found = self._call("export", path=str(path), exporter=exporter, opset=opset, dims=axes, outputs=list(outputs))
        return tuple(f"{Path(one['file']).name}:{one['line']}: {one['message']}" for one in found["warnings"])

    def example(self) -> dict[str, Any]:
        """Return the example inputs as arrays by name."""
        found: dict[str, Any] = self._call("example")
        return found

    def run(self, feeds: Sequence[Mapping[str, Any]]) -> list[Ran]:
        """Run the module on sets of inputs."""
        return [_ran(self._call("run", feeds=[dict(feed)])[0]) for feed in feeds]

    def in_float64(self, feeds: Sequence[Mapping[str, Any]], names: Sequence[str]) -> RunOutcome:
        """Run the module in float64; the outputs are named by `names`."""
        runs: list[Any] = []
        for feed in feeds:
            try:
                one = _ran(self._call("run", feeds=[dict(feed)], double=True)[0])
            except UsageError as error:
                return RunOutcome(unsupported=f"the module does not run in float64: {error.what}")
            if one.refused is not None:
                return RunOutcome(unsupported=f"the module does not run in float64: {one.refused}")
            runs.append(dict(zip(names, one.outputs)))
        return RunOutcome(runs=runs)

    def _call(self, function: str, **arguments: Any) -> Any:
        try:
            return self._worker.call(f"{_HOME}:{function}", **arguments)
        except WorkerRaised as error:
            if error.type_name == "ExportError":
                what, _, todo = error.message.partition("; ")
                raise UsageError(what, where=self.target, todo=todo or None) from error
            text = " ".join(error.message.split())[:400]
            raise UsageError(f"{error.stage} raised {error.type_name}: {text}", where=self.target) from error


def _plain(given: ModuleInputs) -> dict[str, Any]:
    return {"inputs": given.described(), "data": dict(given.arrays)}


def _merged(found: Mapping[str, Any], said: ModuleInput | None, free: Sequence[int]) -> ModuleInput:
    """Combine the information on an input: its example, the file, and the axes that a program leaves dynamic."""
    dims: tuple[int | str, ...] = tuple(found["dims"])
    if said is not None and said.dims:
        if len(said.dims) != len(dims):
            raise UsageError(
                f"input '{said.name}' has {len(dims)} dims in the example, and {len(said.dims)} in --inputs"
            )
        dims = tuple(extent if isinstance(extent, str) else size for extent, size in zip(said.dims, dims))
    dims = tuple(
        f"{found['name']}_{axis}" if axis in free and isinstance(dim, int) else dim for axis, dim in enumerate(dims)
    )
    return ModuleInput(found["name"], dims, found["dtype"], None if said is None else said.range)


def _ran(found: Mapping[str, Any]) -> Ran:
    if "refused" in found:
        return Ran(refused=found["refused"])
    return Ran(tuple(found["outputs"]), tuple(TensorRead(**one) for one in found["decisions"]))
