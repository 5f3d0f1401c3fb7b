"""Runs of a model in a worker, as results or failures."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from surgery.base.errors import UsageError, WorkerError, require_machine
from surgery.base.workers import (
    OUT_OF_MEMORY,
    TIMEOUT,
    Worker,
    default_memory,
    faults,
    half_of_memory,
    shorten,
    tells_of_memory,
)
from surgery.base.workers.installed import require_runtime
from surgery.base.workers.process_memory import return_free
from surgery.model.runtime.executed import Executed
from surgery.model.runtime.metadata import without_metadata
from surgery.model.runtime.setup import SessionSetup
from surgery.model.targets.target import Elsewhere

LIMITS = (TIMEOUT, OUT_OF_MEMORY)
"""The signals of a crash that say nothing of the model: a limit of time or memory ended the run."""

ELSEWHERE: tuple[Elsewhere, ...] = get_args(Elsewhere)

EngineName = Literal["onnxruntime", "reference", "float64"] | Elsewhere
Outputs = Mapping[str, Any]
T = TypeVar("T")

ANALYSIS_TIMEOUT = 30.0
"""Time limit in seconds for shape inference or inlining; if it is exceeded, inputs are found by trial."""

FEW_WEIGHTS = 64 << 20
"""Bytes of weights up to which it does not matter when nodes that depend only on weights are computed."""


class _EngineKind(NamedTuple):
    """How models run in an engine: its name in messages, the module whose `run` does it, and what else that imports."""

    title: str
    module: str
    preload: tuple[str, ...] = ()


_KINDS: dict[EngineName, _EngineKind] = {
    "onnxruntime": _EngineKind(
        "ONNX Runtime", "surgery.model.runtime.sessions", ("surgery.model.shapes.declarations",)
    ),
    "reference": _EngineKind(
        "the reference evaluator",
        "surgery.model.runtime.reference_runs",
        ("onnx.reference", "onnx.reference.ops._op_list", "onnx.reference.ops.aionnxml._op_list"),
    ),
    "float64": _EngineKind("float64", "surgery.model.runtime.float64"),
    "openvino": _EngineKind("OpenVINO", "surgery.model.runtime.openvino_runs"),
    "ort-web": _EngineKind("ONNX Runtime Web", "surgery.model.runtime.web_runs"),
}
TITLES = {name: kind.title for name, kind in _KINDS.items()}

_SOURCE = re.compile(r"\S+\.(?:cc|h):\d+ [^()]+\([^()]*\)(?: const)? ")
"""A C++ source file, line and function, as the prefix of runtime messages."""

_CALL = re.compile(r'In Node, \("([^"]*)", (\w+), "([^"]*)", .*?\) -> \(.*?\) ?, (?:Error )?', re.DOTALL)
"""A node with all its inputs and outputs, before what is wrong with it: its name, operator and domain."""

_NODE = re.compile(r"while running (\w+) node\. Name:'([^']+)'")
"""The operator and the name of the node that failed."""


@dataclass
class RunOutcome:
    """The outcome of running a model with some inputs.

    One of: `runs` (for each input set, either outputs by name or the error message of the runtime); `unsupported` (the
    runtime does not support the model); `invalid` (the runtime considers the model invalid); `crash` (how the process
    died). `narrow` has the operators that ran in float32 although float64 was requested, `executed` the nodes that the
    first run of a deployed model executed. `title` is the name and release of a runtime other than ONNX Runtime.
    """

    runs: list[Outputs | str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    unsupported: str | None = None
    invalid: str | None = None
    crash: WorkerError | None = None
    narrow: tuple[str, ...] = ()
    executed: Executed | None = None
    title: str = ""

    @property
    def failure(self) -> str | None:
        """The short reason why there are no runs."""
        if self.crash is not None:
            return self.crash.what
        return self.unsupported or self.invalid

    @property
    def lacks_memory(self) -> bool:
        """Whether a run ended for lack of memory."""
        if self.crash is not None:
            return self.crash.signal == OUT_OF_MEMORY
        texts = (self.failure, *(run for run in self.runs if isinstance(run, str)))
        return any(text is not None and tells_of_memory(text) for text in texts)


def most_weights(memory: int | None) -> int:
    """Return the maximum bytes of weights of a model to run, given the memory limit of its process, if any.

    More than half of the memory of the machine would be read from disk again in each run.
    """
    return half_of_memory() if memory is None else memory


def most_to_measure(memory: int | None) -> int:
    """Return the maximum bytes of weights of a model whose speed is measured, given the memory limit of its process.

    A session that runs at full speed holds its weights in memory, partly twice.
    """
    return (default_memory() if memory is None else memory) // 2


class Engine:
    """One worker that runs models in ONNX Runtime, in the reference evaluator of onnx, in float64 with either, or in
    another runtime as deployed.

    `setup` is the setup of ONNX Runtime sessions. With `deployed`, ONNX Runtime has its default options.
    """

    def __init__(
        self,
        name: EngineName,
        timeout: float,
        memory: int | None,
        weights: int,
        setup: SessionSetup | None = None,
        *,
        deployed: bool = False,
    ) -> None:
        require_runtime()
        self.name: EngineName = name
        self._deployed = deployed and name == "onnxruntime"
        self._setup = setup or SessionSetup()
        self._libraries = {str(path.absolute()): str(path) for path in self._setup.libraries}
        # Mapped weights count towards the limit, because ONNX Runtime maps them copy-on-write.
        memory = memory if memory is not None else default_memory()
        # Memory that a device driver maps does not belong to the model.
        limit = sys.maxsize if self._setup.leaves_cpu else memory + 2 * weights
        # Outputs are in memory twice, in the worker and in its caller.
        self._output_limit = min(1 << 30, memory // 8)
        self._late = weights > FEW_WEIGHTS
        self._kind = _KINDS[name]
        self._worker = Worker(timeout=timeout, memory=limit, preload=(self._kind.module, *self._kind.preload))
        self._timeout = timeout

    def kill(self) -> None:
        """Kill the worker; a run in another thread then fails."""
        self._worker.kill()

    @property
    def title(self) -> str:
        """The name in messages."""
        return self._kind.title

    def run(
        self, skeleton: bytes, feeds: Sequence[Mapping[str, Any]], *, keep: bool = False, bare: bool = False
    ) -> RunOutcome:
        """Run a model once for each dict of inputs; with `keep`, the session is kept for the next call.

        With `bare`, ONNX Runtime's outputs of floats have zeros in the place of their elements, which are not sent.

        Raises UsageError if a library of custom operators cannot be loaded, or an execution provider or another runtime
        is unavailable.
        """
        arguments = self._arguments(feeds, keep) | ({"bare": True} if bare and self.name == "onnxruntime" else {})
        self._worker.timeout = self._timeout
        with tempfile.TemporaryDirectory() if self._deployed else nullcontext() as folder:
            try:
                profile = {"profile": folder} if folder is not None else {}
                answer = self._worker.call(
                    f"{self._kind.module}:run", skeleton=without_metadata(skeleton), **arguments, **profile
                )
            except WorkerError as error:
                require_machine(error)
                return RunOutcome(crash=error)
        return self._outcome(answer)

    def run_each(
        self, skeletons: Sequence[bytes], feeds: Sequence[Mapping[str, Any]], *, room: int | None = None
    ) -> list[RunOutcome]:
        """Run models in ONNX Runtime on the same inputs, which are sent only once unless a run crashes the worker.

        With `room`, the models run on the first of the inputs only, as soon as the outputs of the first model on these
        take more than so many bytes.
        """
        self._worker.timeout = self._timeout
        try:
            arguments = self._arguments(feeds, keep=False) | {"room": room}
            answers = self._worker.call(
                f"{_KINDS['onnxruntime'].module}:run_each", skeletons=list(skeletons), **arguments
            )
        except WorkerError:
            return [self.run(skeleton, feeds) for skeleton in skeletons]
        first, *others = [self._outcome(answer) for answer in answers]
        for answer, outcome in zip(answers[1:], others):
            for number, names in enumerate(answer.get("same", ())):
                mine, theirs = first.runs[number], outcome.runs[number]
                if not isinstance(mine, str) and not isinstance(theirs, str):
                    outcome.runs[number] = {**theirs, **{name: mine[name] for name in names}}
        return [first, *others]

    def _arguments(self, feeds: Sequence[Mapping[str, Any]], keep: bool) -> dict[str, object]:
        arguments: dict[str, object] = {"feeds": [dict(feed) for feed in feeds]}
        if self.name != "reference":
            arguments["limit"] = self._output_limit
        if self.name in ("onnxruntime", "float64"):
            arguments["libraries"] = list(self._libraries)
        if self.name == "ort-web":
            arguments["folder"] = str(Path.cwd())
        if self.name == "onnxruntime":
            arguments["providers"] = list(self._setup.providers)
            arguments |= {"keep": keep, "late": self._late}
        return arguments

    def _outcome(self, answer: Mapping[str, Any]) -> RunOutcome:
        if "library" in answer:
            path = answer["library"]
            reason = shorten_native(answer["reason"]).rpartition("with error: ")[2].removeprefix(f"{path}: ")
            what = f"not a library of custom operators that ONNX Runtime can load: {reason}"
            raise UsageError(what, where=self._libraries[path])
        if "missing" in answer:
            raise UsageError(answer["missing"], todo=answer["todo"])
        if "provider" in answer:
            raise UsageError(f"no {answer['provider']}: {answer['reason']}", todo="install a build with this provider")
        return RunOutcome(
            runs=[shorten_native(run) if isinstance(run, str) else run for run in answer.get("runs", [])],
            seconds=answer.get("seconds", []),
            unsupported=answer.get("unsupported"),
            invalid=shorten_native(answer["invalid"]) if "invalid" in answer else None,
            narrow=tuple(answer.get("narrow", ())),
            executed=Executed.of(answer["executed"]) if answer.get("executed") is not None else None,
            title=answer.get("title", ""),
        )

    def draw(
        self, skeleton: bytes, feed: Mapping[str, Any], seeds: Sequence[int], repeats: int, seconds: float
    ) -> Mapping[str, Sequence[Any]]:
        """Run a model in ONNX Runtime on the same inputs with many seeds of its random operators, see `sampling.draw`.

        Returns an empty dict if that fails in any way.
        """
        self._worker.timeout = self._timeout
        how = {"seeds": list(seeds), "repeats": repeats, "seconds": seconds, "libraries": list(self._libraries)}
        how["providers"] = list(self._setup.providers)
        try:
            drawn: Mapping[str, Sequence[Any]] = self._worker.call(
                "surgery.model.runtime.sampling:draw", skeleton=skeleton, feed=dict(feed), **how
            )
        except WorkerError as error:
            faults.found("sampling", error)
            return {}
        return drawn

    def analyse(self, function: Callable[..., T], *, skeleton: bytes, **arguments: object) -> T | None:
        """Run a function of an importable module on a model in the same worker; return None if it fails in any way.

        An exception that is not about the model is remembered in `faults`.
        """
        self._worker.timeout = min(ANALYSIS_TIMEOUT, self._timeout)
        name = f"{function.__module__}:{function.__name__}"
        try:
            found: T = self._worker.call(name, skeleton=without_metadata(skeleton), **arguments)
            return found
        except WorkerError as error:
            faults.found(f"the analysis '{function.__name__}'", error)
            return None

    def rest(self) -> None:
        """End the worker until the next call, and return free memory of this process, which held its results."""
        self._worker.close()
        return_free()

    def close(self) -> None:
        """End the worker."""
        self._worker.close()


def _called(found: re.Match[str]) -> str:
    name, op, domain = found.groups()
    return f"{f'{domain}::' if domain else ''}{op} '{name}': "


def shorten_native(message: str) -> str:
    """Return the informative part of a native message, without codes, source files and C++ signatures.

    The name of the node that failed comes first.
    """
    text = shorten(_CALL.sub(_called, _SOURCE.sub("", message)))
    node = _NODE.search(message)
    for marker in (
        "Status Message: ",
        "This is an invalid model. ",
        " was false. ",
        "Exception during initialization: ",
    ):
        _, found, rest = text.partition(marker)
        if found and rest:
            text = rest
    if text.startswith("[ONNXRuntimeError]"):
        text = text.split(" : ", 3)[-1]
    text = f"{node.group(1)} '{node.group(2)}': {text.strip()}" if node is not None else text.strip()
    return f"{OUT_OF_MEMORY}: {text}" if tells_of_memory(text) and OUT_OF_MEMORY not in text else text
