"""Comparison of an exported model with its module.

The module is the original, and the model is verified like any changed one: on inputs drawn for its graph, at several
sizes of each dynamic dim, with the same tolerances, and with the module in float64 if rounding is in doubt. Three
problems specific to exports are checked:

- a size that the module accepts and the model refuses: a dim that tracing froze;
- a branch that differs from the example: the values that the module reads from tensors are recorded for each run,
  and further inputs are tried to find one that takes the other branch;
- a branch that was the same on all inputs, so that its other side was not tested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from surgery.base.errors import UsageError
from surgery.base.json_record import Record
from surgery.base.promises import Parity
from surgery.features.frameworks.torch_side import Ran, TensorRead, TorchSide
from surgery.verification.comparing.compare import same_bits
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN, OutputJudge, describe
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.spec import DataSpec, InputsSpec, VerifySpec

_MOST_REFUSED = 6
"""Maximum number of sizes refused by the model that are tried on the module."""


@dataclass(frozen=True)
class Turned:
    """A decision that differs from that on the example inputs, and the inputs on which it does."""

    decision: TensorRead
    before: Any
    inputs: str

    def __str__(self) -> str:
        return f"{self.decision.place} was {self.before} when it was exported and is {self.decision.value}{self.inputs}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**self.decision.to_json(), "exported": self.before, "inputs": self.inputs.strip(" ()")}


@dataclass(frozen=True)
class ModuleParity(Record, keys="*verdict bindings turned unturned left_out"):
    """The verdict on an exported model, the inputs, and the branches of the module on tensor values.

    `turned`: decisions that differed on some inputs. `unturned`: decisions that never did. `left_out`: inputs that the
    module refuses.
    """

    verdict: Verdict
    bindings: tuple[dict[str, Any], ...] = ()
    turned: tuple[Turned, ...] = ()
    unturned: tuple[TensorRead, ...] = ()
    left_out: tuple[str, ...] = ()


def compare(
    side: TorchSide,
    model: bytes,
    outputs: Sequence[str],
    example: Mapping[str, Any],
    inputs: InputsSpec,
    spec: VerifySpec,
) -> ModuleParity:
    """Compare a model, given as the bytes of a skeleton, with the module that it was exported from.

    `outputs` are the names of its outputs, in the order of the module; `example` has the inputs of the export.
    """
    exported = side.run([example])[0]
    if exported.refused is not None:
        raise UsageError(f"the module rejects its example inputs: {exported.refused}", where=side.target)
    if len(exported.outputs) != len(outputs):
        text = f"the module has {len(exported.outputs)} outputs, and the model {len(outputs)}"
        return ModuleParity(Verdict(Status.DIFFERENT, message=text))
    given = replace(inputs, data=(*inputs.data, DataSpec(Path("the example inputs"), dict(example), found=True)))
    found = _ModuleComparison(side, outputs, exported.decisions).judge(model, given, spec)
    if exported.decisions and not found.turned and not found.verdict.is_different:
        further = _turning(side, example, exported.decisions)
        if further:
            given = replace(given, data=(*given.data, *further))
            found = _ModuleComparison(side, outputs, exported.decisions).judge(model, given, spec)
    return found


class _ModuleComparison:
    """One comparison of the module with a model."""

    def __init__(self, side: TorchSide, outputs: Sequence[str], decisions: Sequence[TensorRead]) -> None:
        self._side = side
        self._outputs = outputs
        self._decisions = decisions
        self._turned: dict[tuple[str, int], Turned] = {}
        self._seen: set[tuple[str, int]] = set()
        self._left_out: list[str] = []

    def judge(self, model: bytes, inputs: InputsSpec, spec: VerifySpec) -> ModuleParity:
        """Run both, and return the verdict."""
        original = ReferenceRun(model, inputs, spec)
        original.prepare()
        if original.problem is not None:
            return self._made(Verdict(Status.UNVERIFIED, NOT_RUN, message=original.problem), original)
        ran = self._side.run([run.feed for run in original.runs])
        taken = {number: one for number, one in enumerate(ran) if one.refused is None}
        for number, one in enumerate(ran):
            where = describe(original.runs[number])
            if one.refused is not None:
                self._left_out.append(f"{where.strip(' ()')}: {one.refused}")
            self._note(one, where)
        narrow = self._narrowed(original)
        if narrow is not None:
            return self._made(narrow, original)
        if not taken:
            text = f"the module rejects all inputs that the model accepts: {self._left_out[0]}"
            return self._made(Verdict(Status.UNVERIFIED, NOT_RUN, message=text), original)
        results = {number: self._named(one) for number, one in taken.items()}
        module = original.computed_elsewhere(results, self._unsteady(original, taken))
        feeds = [run.feed for run in module.runs]
        judge = OutputJudge(module, lambda: self._side.in_float64(feeds, self._outputs))
        verdict = judge.judge(module.runs, [original.runs[number].outputs for number in sorted(taken)], Parity.CLOSE)
        return self._made(self._blamed(verdict), original)

    def _named(self, ran: Ran) -> dict[str, Any]:
        return dict(zip(self._outputs, ran.outputs))

    def _unsteady(self, original: ReferenceRun, taken: Mapping[int, Ran]) -> frozenset[str]:
        """Run the module again, and return the outputs that differ between runs, which prove nothing."""
        number, first = next(iter(taken.items()))
        again = self._side.run([original.runs[number].feed])[0]
        if again.refused is not None:
            return frozenset(self._outputs)
        pairs = zip(self._outputs, first.outputs, again.outputs)
        return frozenset(name for name, one, other in pairs if not same_bits(one, other))

    def _narrowed(self, original: ReferenceRun) -> Verdict | None:
        """Return a negative verdict if the module accepts sizes that the model refuses, else None."""
        seen: list[Mapping[str, int]] = [run.binding.dims for run in original.runs]
        tried = 0
        for binding, message in original.refused:
            if binding.dims in seen or tried >= _MOST_REFUSED:
                continue
            seen.append(binding.dims)
            tried += 1
            one = self._side.run([original.inputs.feed(binding)])[0]
            if one.refused is None:
                where = _sizes(binding)
                self._note(one, f" ({where})")
                text = f"the model rejects {where}, which the module accepts: {' '.join(message.split())[:200]}"
                return self._blamed(Verdict(Status.DIFFERENT, message=text))
        return None

    def _note(self, ran: Ran, where: str) -> None:
        """Compare the decisions of a run with those of the example."""
        for before, now in zip(self._decisions, ran.decisions):
            place = now.file, now.line
            if (before.file, before.line) != place:
                break  # from here on, the run follows another branch
            self._seen.add(place)
            if before.value != now.value:
                self._turned.setdefault(place, Turned(now, before.value, where))

    def _blamed(self, verdict: Verdict) -> Verdict:
        """Add the branches that tracing froze to a negative verdict."""
        flags = [one for one in self._turned.values() if isinstance(one.before, bool)] or [*self._turned.values()]
        if not verdict.is_different or not flags:
            return verdict
        return replace(verdict, message=f"{verdict.message}; tracing froze {'; '.join(map(str, flags[:3]))}")

    def _made(self, verdict: Verdict, original: ReferenceRun) -> ModuleParity:
        flags = [one for one in self._decisions if isinstance(one.value, bool)]
        unturned = {(one.file, one.line): one for one in flags if (one.file, one.line) not in self._turned}
        return ModuleParity(
            verdict,
            tuple(original.bindings),
            tuple(self._turned.values()),
            tuple(unturned.values()),
            tuple(self._left_out),
        )


def _sizes(binding: Binding) -> str:
    return ", ".join(f"{name}={extent}" for name, extent in binding.dims.items()) or "its inputs"


def _turning(side: TorchSide, example: Mapping[str, Any], decisions: Sequence[TensorRead]) -> tuple[DataSpec, ...]:
    """Return inputs on which the module branches differently: the example negated, scaled or shifted; zeros; ones."""
    kinds = {name: np.asarray(array).dtype.kind for name, array in example.items()}
    floats = [name for name, kind in kinds.items() if kind == "f"]
    counts = [name for name, kind in kinds.items() if kind in "iub"]
    found: list[DataSpec] = []
    changes: dict[str, Callable[[Any], Any]] = {
        "negated example inputs": lambda array: -array,
        "zeros": np.zeros_like,
        "example inputs times 100": lambda array: array * np.array(100, array.dtype),
        "example inputs times -100": lambda array: array * np.array(-100, array.dtype),
        "example inputs times 10000": lambda array: array * np.array(10000, array.dtype),
        "example inputs over 1000": lambda array: array / np.array(1000, array.dtype),
        "absolute example inputs": np.abs,
        "negative example inputs": lambda array: -np.abs(array),
        "example inputs plus 10": lambda array: array + np.array(10, array.dtype),
    }
    tried = [(title, change, floats) for title, change in changes.items()]
    tried += [(title, change, counts) for title, change in (("ones", np.ones_like), ("zeros", np.zeros_like))]
    before = [one.value for one in decisions]
    for title, change, chosen in tried:
        for names in [chosen, *([name] for name in chosen)] if len(chosen) > 1 else [chosen] * len(chosen):
            feed = {name: change(array) if name in names else array for name, array in example.items()}
            ran = side.run([feed])[0]
            if ran.refused is None and [one.value for one in ran.decisions] != before:
                found.append(DataSpec(Path(title), feed, found=True))
                break
    return tuple(found)
