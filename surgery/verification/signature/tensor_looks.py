"""The values of tensors inside two models, which run on the same inputs although their signatures may differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.errors import UsageError
from surgery.base.operators.dtypes import Array, is_float
from surgery.model.proto.dataflow import Flow
from surgery.model.proto.extract import only
from surgery.model.proto.signature import signature
from surgery.verification.accuracy.tensor_difference import TensorDifference
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.inputs.feed_plan import read_ports
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.signature.tracker import match_by_order

if TYPE_CHECKING:
    import onnx

    from surgery.model.storage import Weights

_MOST_SETS = 8
"""Maximum number of sets of inputs that models run on to look at values."""

Feed = Mapping[str, Any]


@dataclass(frozen=True)
class TensorLook:
    """The values of a tensor, one array for each set of inputs that both models ran on.

    `before` are those in the original and `after` those in the changed model, None where there is no such tensor. If
    the models are the same, the original is all there is, and `is_original`. `sets` are the titles of the inputs.
    """

    name: str
    before: tuple[Array, ...] | None
    after: tuple[Array, ...] | None
    sets: tuple[str, ...]
    verify: VerifySpec
    is_original: bool = False

    @cached_property
    def difference(self) -> TensorDifference | None:
        """How far the models are apart; None if only one of them has the tensor."""
        if self.before is None or self.after is None:
            return None
        return TensorDifference.of(self.name, self.before, self.after, self.sets, self.verify)

    @cached_property
    def numbers(self) -> tuple[tuple[Array, ...] | None, tuple[Array, ...] | None]:
        """The values of both models as float64, None where there are none, or where they are no numbers."""
        return _numbers(self.before), _numbers(self.after)


def _numbers(arrays: Sequence[Array] | None) -> tuple[Array, ...] | None:
    if not arrays or not (is_float(arrays[0].dtype) or arrays[0].dtype.kind in "biu"):
        return None
    return tuple(array.astype(np.float64) for array in arrays)


@dataclass(frozen=True)
class ModelPair:
    """The original and a changed model without weights, as bytes, and how they are run."""

    original: bytes
    changed: bytes
    weights: Weights
    inputs: InputsSpec
    verify: VerifySpec


@dataclass(frozen=True)
class _Fed:
    """A model that is looked at, and the sets of inputs under the names of its inputs."""

    proto: onnx.ModelProto
    feeds: Sequence[Feed]

    def has(self, name: str) -> bool:
        return name in Flow(self.proto.graph)


class InnerValues:
    """Runs models in workers of its own to look at tensors inside them. The inputs of the last pair are kept."""

    def __init__(self) -> None:
        self._reference: tuple[tuple[bytes, InputsSpec, str], ReferenceRun] | None = None

    def look(self, name: str, pair: ModelPair) -> TensorLook:
        """Return the values of a tensor. Raises UsageError if no model has it, or if one of them does not run."""
        run, sides = self._fed(pair)
        is_original = pair.original == pair.changed
        shown = [side for side in sides[: 1 if is_original else 2] if side.has(name)]
        if not shown:
            raise UsageError(f"neither the original nor the changed model has a tensor '{name}'")
        made = {id(side): _values(run, side, name, pair.weights) for side in shown}
        kept = _common(list(made.values()))
        before, after = (_picked(made.get(id(side)), kept) for side in sides)
        titles = tuple(_title(run, number) for number in kept)
        return TensorLook(name, before, after, titles, pair.verify, is_original)

    def _fed(self, pair: ModelPair) -> tuple[ReferenceRun, tuple[_Fed, _Fed]]:
        """Return the run that inputs come from, and both models with their inputs.

        Drawn inputs are those of the changed model if its signature differs, since it may accept less.
        """
        import onnx

        first, second = (onnx.load_model_from_string(data) for data in (pair.original, pair.changed))
        before, after = signature(first), signature(second)
        names = {port.name: port.name for port in before.inputs} | match_by_order(before, after)
        spec = pair.inputs
        is_narrower = bool(before.compare(after, names)) and not (spec.data or spec.tensors or spec.generator)
        run = self._run(pair.changed if is_narrower else pair.original, pair)
        feeds = [one.feed for one in run.runs[:_MOST_SETS]]
        back = {theirs: mine for mine, theirs in names.items()}
        own = [_renamed(feed, back) for feed in feeds] if is_narrower else feeds
        its = feeds if is_narrower else [_renamed(feed, names) for feed in feeds]
        return run, (_Fed(first, _fitting(first, own)), _Fed(second, _fitting(second, its)))

    def _run(self, data: bytes, pair: ModelPair) -> ReferenceRun:
        """Return a model that has run on its inputs; the last one is kept."""
        key = data, pair.inputs, repr(pair.verify)
        if self._reference is None or self._reference[0] != key:
            self._reference = None
            run = ReferenceRun(data, pair.inputs, pair.verify)
            run.prepare()
            self._reference = key, run
        run = self._reference[1]
        if run.problem is not None:
            raise UsageError(f"the model does not run: {run.problem}")
        return run


def _renamed(feed: Feed, names: Mapping[str, str]) -> Feed:
    return {names.get(name, name): array for name, array in feed.items()}


def _fitting(proto: onnx.ModelProto, feeds: Sequence[Feed]) -> list[Feed]:
    """Return inputs without those that a model lacks, in its element types."""
    types = {port.name: port.dtype for port in read_ports(proto)}
    known = {value.name for value in proto.graph.input}
    return [{name: _cast(array, types.get(name)) for name, array in feed.items() if name in known} for feed in feeds]


def _cast(array: Any, dtype: np.dtype[Any] | None) -> Any:
    if dtype is None or not isinstance(array, np.ndarray) or array.dtype == dtype or array.dtype.kind in "OSU":
        return array
    return array.astype(dtype)


def _values(run: ReferenceRun, side: _Fed, name: str, weights: Weights) -> list[Array | str]:
    """Return the values of a tensor for each set of inputs, or why there are none."""
    if name in {value.name for value in side.proto.graph.input}:
        return [feed.get(name, "it is an input that was left out") for feed in side.feeds]
    constant = next((tensor for tensor in side.proto.graph.initializer if tensor.name == name), None)
    if constant is not None:
        return [weights.read(constant)] * len(side.feeds)
    with closing(run.engine_for(run.engine)) as engine:
        outcome = engine.run(only(side.proto, [name]).SerializeToString(), side.feeds)
    if outcome.crash is not None:
        raise outcome.crash
    if outcome.failure is not None:
        raise UsageError(f"the model does not run: {outcome.failure}")
    return [made if isinstance(made, str) else _array(made[name]) for made in outcome.runs]


def _array(value: Any) -> Array | str:
    return value if isinstance(value, np.ndarray) else "it is a sequence or an optional value, not a tensor"


def _common(sides: Sequence[Sequence[Array | str]]) -> list[int]:
    """Return the numbers of the sets of inputs with values on all sides. Raises UsageError if there are none."""
    rows = list(zip(*sides))
    found = [number for number, row in enumerate(rows) if not any(isinstance(one, str) for one in row)]
    if not found:
        raise UsageError(f"there are no values: {next(one for row in rows for one in row if isinstance(one, str))}")
    return found


def _picked(found: Sequence[Array | str] | None, kept: Sequence[int]) -> tuple[Array, ...] | None:
    if found is None:
        return None
    return tuple(one for number in kept if not isinstance(one := found[number], str))


def _title(run: ReferenceRun, number: int) -> str:
    binding = run.runs[number].binding
    dims = ", ".join(f"{name} = {extent}" for name, extent in binding.dims.items())
    return f"{binding.character} ({dims})" if dims else binding.character
