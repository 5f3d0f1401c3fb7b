"""Measure models on inputs that the first of them accepts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from surgery.base.errors import UsageError
from surgery.verification.benchmarking.bench_spec import BenchSpec
from surgery.verification.benchmarking.measurements import Comparison
from surgery.verification.benchmarking.paired_runs import compare
from surgery.verification.benchmarking.profiling import measure_executed, measure_nodes
from surgery.verification.benchmarking.subjects import Subject, require_same_inputs, subject
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.inputs.given import first_sets
from surgery.verification.inputs.spec import InputsSpec, SampleSpec, VerifySpec

_MOST_SETS = 4
"""Maximum number of sets of typical inputs."""


def bench(
    *models: Any,
    inputs: InputsSpec | None = None,
    spec: BenchSpec | None = None,
    decide: float | None = None,
    memory: bool = True,
    profile: bool = False,
) -> Comparison:
    """Run models (files or ModelProto) alternately on the same inputs and compare their times.

    The first model is the baseline. `inputs` describes its inputs: sizes of dynamic dims, and input sets, which are
    then the only ones used; without sets, one is generated that the model accepts. `decide` ends the measurement as
    soon as it is known whether each model is faster or slower than that ratio. `memory` and `profile` measure the
    memory and the operators of each model. Outputs are not compared: use `surgery.verify` for that.

    Raises UsageError for models that do not run or have other inputs, ModelFileError if one cannot be read, and
    TransferError if a connection breaks.
    """
    spec = spec or BenchSpec()
    subjects = [subject(model) for model in models]
    if not subjects:
        raise UsageError("no model to measure is given")
    require_same_inputs(subjects)
    feeds, described = legal_feeds(subjects[0], inputs or InputsSpec(), spec)
    return compare(subjects, feeds, spec, decide=decide, memory=memory, profile=profile, inputs=described)


def profile_nodes(model: Any, sizes: Mapping[str, int], settings: Mapping[str, Any] | None = None) -> dict[str, float]:
    """Return the seconds of the nodes of a model by name, in a run without optimizations on generated inputs.

    `sizes` are those of dynamic dims, and `settings` fields of `BenchSpec`. Raises UsageError if the model cannot be
    run.
    """
    measured, spec = subject(model), BenchSpec(**(settings or {}))
    feeds, _ = legal_feeds(measured, InputsSpec(dims={name: (size,) for name, size in sizes.items()}), spec)
    return measure_nodes(measured, feeds, spec)


def profile_executed(model: Any, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the nodes that ONNX Runtime executes with its optimizations, each with its execution provider.

    A node that the runtime made has a name of its own. Raises UsageError if the model cannot be run.
    """
    measured, spec = subject(model), BenchSpec(**settings)
    feeds, _ = legal_feeds(measured, InputsSpec(), spec)
    return measure_executed(measured, feeds, spec)


def legal_feeds(
    subject: Subject, inputs: InputsSpec, spec: BenchSpec
) -> tuple[list[Mapping[str, Any]], list[dict[str, Any]]]:
    """Return the given input sets for a model, or else one that it accepts; and descriptions of their origin."""
    inputs = replace(inputs, only_given=inputs.only_given or bool(inputs.data))
    verify = VerifySpec(
        seed=spec.seed,
        timeout=spec.timeout,
        memory=spec.memory,
        custom_op_library=spec.custom_op_library,
        providers=spec.providers,
    )
    reference = ReferenceRun(subject.skeleton(), inputs, verify)
    reference.prepare()
    if reference.problem is not None:
        raise UsageError(f"cannot be run: {reference.problem}", where=subject.name)
    runs = reference.runs if inputs.data else reference.runs[:1]
    return [run.feed for run in runs], [run.binding.as_json() for run in runs]


def typical_inputs(inputs: InputsSpec, evaluation: SampleSpec, original: Subject) -> InputsSpec:
    """Return inputs of the sizes in actual use, which decide the speed, if a user gave such inputs for any purpose.

    These are the sets given for verification, else the first ones for measuring accuracy, else for calibration.
    Raises a SurgeryError if they cannot be read.
    """
    given = evaluation.data or inputs.calibration.data
    if not given or not all(one.found for one in inputs.data):
        return inputs
    # Not all of them are read: there may be thousands.
    return replace(inputs, data=first_sets(original.skeleton(), given, _MOST_SETS))
