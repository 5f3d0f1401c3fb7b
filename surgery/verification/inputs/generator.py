"""Inputs made by a user's functions, called in a worker because they may raise, hang or end its process.

One kind of function makes a set for given dims and a seed, another returns sets of real inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from surgery.base.errors import WorkerError
from surgery.base.workers import Worker, stage
from surgery.model.shapes.declarations import Extent
from surgery.verification.inputs.dims import evaluate
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.given_values import MisfitError, fit_all, shape_of
from surgery.verification.inputs.input_port import InputPort
from surgery.verification.inputs.local_function import LocalFunctionError, find, raised
from surgery.verification.inputs.spec import GeneratorSpec, InputsSpec, VerifySpec


class Generator:
    """A user's function that makes inputs.

    It may leave out inputs, which are then drawn. `complete` says, after a call, whether it made all of them.
    """

    def __init__(
        self,
        spec: GeneratorSpec,
        ports: Sequence[InputPort],
        defaults: Sequence[InputPort],
        required: Sequence[str],
        verify: VerifySpec,
    ) -> None:
        self.spec = spec
        self.defaults = tuple(defaults)
        self.ports = tuple(ports)
        self.required = tuple(required)
        self.complete = False
        self._steady = False
        self._worker = Worker(timeout=verify.timeout, memory=verify.memory)

    @classmethod
    def of(
        cls,
        inputs: InputsSpec,
        ports: Sequence[InputPort],
        defaults: Sequence[InputPort],
        verify: VerifySpec,
    ) -> Generator | None:
        """Return the generator that a recipe names; None if it names none."""
        spec = inputs.generator
        if spec is None:
            return None
        # Under only_given, the function may leave out only those inputs for which the recipe has settings.
        required = [port.name for port in ports if port.name not in inputs.tensors] if inputs.only_given else []
        return cls(spec, ports, defaults, required, verify)

    @property
    def title(self) -> str:
        """The name used in messages."""
        return f"{self.spec.file.name}:{self.spec.function}"

    def make(self, dims: Mapping[str, int], seed: int) -> dict[str, Any]:
        """Make the inputs for extents and a seed; raise RecipeError or UsageError if they do not fit."""
        try:
            made = self._call(dims, seed)
            if not self._steady:
                self._require_same(made, self._call(dims, seed))
                self._steady = True
            feed = fit_all(made, self.ports, self.defaults, complete=False)
            self._require_shapes(feed, dims)
            missing = [name for name in self.required if name not in feed]
            if missing:
                raise MisfitError(f"it returns no '{missing[0]}'", "only_given asks for all inputs")
        except MisfitError as error:
            error.complain(self.spec.place, self.title)
        self.complete = all(port.name in feed for port in self.ports)
        return feed

    def number(self, bindings: Sequence[Binding], first: int) -> list[Binding]:
        """Give each set a separate seed, because sets with the same dims differ only in their seeds."""
        bindings = [replace(binding, seed=first + index) for index, binding in enumerate(bindings)]
        return [replace(binding, character="generator") for binding in bindings] if self.complete else bindings

    def close(self) -> None:
        """Stop the worker."""
        self._worker.close()

    def _call(self, dims: Mapping[str, int], seed: int) -> dict[str, Any]:
        spec = self.spec
        try:
            answer = self._worker.call(
                "surgery.verification.inputs.generator:generate",
                file=str(spec.file.absolute()),
                function=spec.function,
                folder=str(Path.cwd()),
                dims=dict(dims),
                seed=seed,
            )
        except WorkerError as error:
            raise MisfitError(error.what.removeprefix(f"{self.title} ")) from error
        if "problem" in answer:
            raise MisfitError(answer["problem"], f"called with dims {dict(dims)}" if answer["ran"] else "")
        return {name: array for name, array in answer["arrays"].items() if name not in spec.gone}

    def _require_same(self, first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
        """Require the function to return the same arrays for the same seed."""
        if _bits(first) != _bits(second):
            raise MisfitError(
                "it returns different arrays when called again with the same seed",
                "draw from np.random.default_rng(seed) only",
            )

    def _require_shapes(self, feed: Mapping[str, Any], dims: Mapping[str, int]) -> None:
        for port in self.ports:
            shape = shape_of(feed.get(port.name))
            for extent, actual in zip(port.dims, shape or ()):
                if _extent(extent, dims) not in (None, actual):
                    raise MisfitError(
                        f"it returns '{port.name}' of shape {list(shape or ())} for dims {dict(dims)}",
                        f"take the sizes from dims, or fix them: inputs: {{dims: {{{extent}: {actual}}}}}",
                    )


def _extent(extent: Extent, dims: Mapping[str, int]) -> int | None:
    return evaluate(extent, dims) if isinstance(extent, int) or extent in dims else None


def _bits(values: Mapping[str, Any]) -> list[Any]:
    """Return a form of arrays that is equal if all their bits are."""

    def one(value: Any) -> Any:
        if isinstance(value, list):
            return [one(item) for item in value]
        if value is None:
            return None
        array = np.asarray(value)
        data = array.tolist() if array.dtype.kind in "OUS" else array.tobytes()
        return array.dtype.name, array.shape, data

    return sorted((name, one(value)) for name, value in values.items())


def generate(file: str, function: str, folder: str, dims: dict[str, int], seed: int) -> dict[str, Any]:
    """Call a user's function, in a worker process and in the caller's folder.

    Returns `{"arrays": ...}`, or `{"problem": text, "ran": bool}` with a text for the user.
    """
    try:
        found = find(file, function, folder)
    except LocalFunctionError as error:
        return {"problem": str(error), "ran": False}
    stage(f"{Path(file).name}:{function}")
    try:
        return _packed(found(dims, seed))
    except BaseException as error:
        return {"problem": raised(error, file), "ran": True}


def _packed(made: Any) -> dict[str, Any]:
    """Convert the result of a function into plain data."""
    if not isinstance(made, Mapping) or not all(isinstance(name, str) for name in made):
        return {"problem": f"it returns a {type(made).__name__}, not a dict of arrays by input name", "ran": True}
    arrays: dict[str, Any] = {}
    for name, value in made.items():
        items = value if isinstance(value, (list, tuple)) else [value]
        converted = [None if item is None else np.asarray(item) for item in items]
        if any(item is not None and item.dtype.kind in "OM" and not _is_text(item) for item in converted):
            return {"problem": f"its value for '{name}' is not an array of numbers or text", "ran": True}
        arrays[name] = converted if items is value else converted[0]
    return {"arrays": arrays}


def _is_text(array: Any) -> bool:
    return all(isinstance(item, str) for item in array.reshape(-1).tolist())


# Sets

_MOST: Final = 10_000
"""Maximum number of sets, because a generator may never end."""

_SECONDS: Final = 600.0
"""The time limit of all sets together."""


def sets_of(file: Path, function: str) -> Sequence[Mapping[str, Any]]:
    """Return the sets that a function makes; raise MisfitError if it fails. An unchanged file is called once."""
    if not file.is_file():
        raise MisfitError("no such file")
    return _sets(str(file.absolute()), function, str(Path.cwd()), file.stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _sets(file: str, function: str, folder: str, _: int) -> Sequence[Mapping[str, Any]]:
    worker = Worker(timeout=_SECONDS)
    try:
        answer = worker.call(
            "surgery.verification.inputs.generator:collect", file=file, function=function, folder=folder
        )
    except WorkerError as error:
        raise MisfitError(error.what) from error
    finally:
        worker.close()
    if "problem" in answer:
        raise MisfitError(answer["problem"])
    return tuple(answer["sets"])


def collect(file: str, function: str, folder: str) -> dict[str, Any]:
    """Call a user's function, in a worker process and in the caller's folder, and collect the sets that it returns.

    Returns `{"sets": ...}`, or `{"problem": text}` with a text for the user.
    """
    try:
        found = find(file, function, folder)
    except LocalFunctionError as error:
        return {"problem": str(error)}
    stage(f"{Path(file).name}:{function}")
    sets: list[Any] = []
    try:
        for item in islice(_items(found()), _MOST + 1):
            one = _packed(item)
            if "problem" in one:
                return {"problem": f"set {len(sets) + 1}: {one['problem'].replace('it returns', 'it is')}"}
            sets.append(one["arrays"])
    except BaseException as error:
        return {"problem": raised(error, file)}
    if len(sets) > _MOST:
        return {"problem": f"it returns more than {_MOST} sets"}
    return {"sets": sets} if sets else {"problem": "it returns no sets"}


def _items(made: Any) -> Iterator[Any]:
    """Iterate over the result of a function: sets, one set, or a CalibrationDataReader of ONNX Runtime."""
    if callable(getattr(made, "get_next", None)):
        return iter(made.get_next, None)
    return iter([made]) if isinstance(made, Mapping) else iter(made)
