"""The recipe keys for inputs, verification and accuracy; see `model`."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema

from surgery.engine.recipe.data_files import PYTHON, TENSOR_FILES, DataSets, function_of, place_of
from surgery.engine.recipe.draft import Draft, NamedError, NotedError, TakesError
from surgery.engine.recipe.fields import (
    Flag,
    Frozen,
    OneOrMore,
    Section,
    Unsigned,
    Whole,
    Word,
    entries,
    key,
    needed,
    read_text,
    reads,
    takes,
    text,
    value_of,
)
from surgery.engine.recipe.plugins import read_local
from surgery.engine.recipe.recipe_paths import below, is_file
from surgery.engine.registry.options import SizeUnit, parse_size
from surgery.engine.yaml.yaml_nodes import Listing, Table, YamlNode, describe, key_text, plain, quoted
from surgery.verification.accuracy import budget, user_metric
from surgery.verification.accuracy.metrics import METRICS
from surgery.verification.inputs.spec import (
    AccuracySpec,
    Better,
    Compare,
    Deployment,
    GeneratorSpec,
    InputsSpec,
    MetricLimit,
    MetricSpec,
    Mode,
    SampleSpec,
    TensorSpec,
    Unverified,
    VerifySpec,
)

# Inputs

_A_TENSOR = "the path of a .npy, .npz or .pb file"
_FUNCTION = "the path of a Python file and the name of a function in it, such as inputs.py:make"
_METRIC = "the path of a Python file and the name of a function in it, such as metric.py:score"


def _values(node: YamlNode, draft: Draft) -> tuple[Any, ...]:
    if not isinstance(node, Listing) or not node.items:
        raise TakesError("a list such as [0, 1]")
    wrong = next((item for item in node.items if value_of(item) is None), None)
    if wrong is not None:
        draft.problem(wrong, f"'values' lists numbers, bools or texts, not {describe(wrong)}")
        raise NotedError
    return tuple(plain(item) for item in node.items)


def _range(node: YamlNode, draft: Draft) -> tuple[float, float]:
    values = [plain(item) for item in node.items] if isinstance(node, Listing) else []
    numbers = [one for one in values if isinstance(one, int | float) and not isinstance(one, bool)]
    if not len(values) == len(numbers) == 2 or not all(map(math.isfinite, numbers)):
        raise TakesError("the least and the greatest value, such as [0, 9]")
    if numbers[0] > numbers[1]:
        raise ValueError(f"'range' starts above its end; did you mean [{numbers[1]}, {numbers[0]}]?")
    return numbers[0], numbers[1]


def _tensor_file(name: str, info: ValidationInfo[Draft]) -> Path:
    path = below(info.context.folder, name)
    if path.suffix not in TENSOR_FILES:
        raise TakesError(_A_TENSOR)
    if not is_file(path):
        raise ValueError(f"no file {quoted(name)} in the recipe's folder")
    return path


def _generator(node: YamlNode, draft: Draft) -> GeneratorSpec:
    return GeneratorSpec(*function_of(node, draft, _FUNCTION), place_of(draft, node))


def pattern(expression: str) -> WithJsonSchema:
    """Return the JSON schema of text with a pattern."""
    return WithJsonSchema({"type": "string", "pattern": expression})


class Tensor(Section):
    """How to fill one input. Exactly one of these keys is given."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})
    wanted = "a mapping such as {values: [0, 1]} or {range: [0, 9]}"

    values: Annotated[tuple[float | bool | str, ...], Field(min_length=1), reads(_values)] = key(
        "The values to choose among."
    )
    range: Annotated[tuple[float, ...], Field(min_length=2, max_length=2), reads(_range)] = key(
        "The least and the greatest value, both included for integers."
    )
    file: Annotated[Any, AfterValidator(_tensor_file), text(_A_TENSOR), pattern(r"\.(npy|npz|pb)$")] = key(
        "A .npy, .npz or .pb file with the values."
    )

    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> TensorSpec:
        """Make the specification of the input."""
        if node.open or any(key_text(at) not in self.keys() for at, _ in node.pairs):
            raise NotedError
        if len(given) != 1:
            raise NamedError(f"input {{}} takes one of {', '.join(self.keys())}; here are {len(given)}")
        return TensorSpec(**given, place=place_of(draft, node))


_Extent = Annotated[int, Field(ge=1), takes("a whole number or a list of them", int)]


class Inputs(Section):
    """The inputs of the model."""

    makes = InputsSpec
    wanted = "a mapping such as {dims: {batch: 1}}"

    dims: Annotated[
        dict[str, Annotated[tuple[_Extent, ...], OneOrMore("dim {} lists no extent")]],
        entries("a mapping such as {batch: [1, 3]}"),
        Frozen,
    ] = key("The sizes to try for each dynamic dim, by name.")
    tensors: Annotated[dict[str, Tensor], entries("a mapping such as {mask: {values: [0, 1]}}"), Frozen] = key(
        "How to fill single inputs, by name."
    )
    data: DataSets = key(
        "Complete sets of inputs: .npz files, folders with input_0.pb, folders of these, folders of images, mappings "
        "that describe these, or functions such as data.py:batches that return dicts of arrays, which need trust."
    )
    generator: Annotated[Any, reads(_generator), pattern(PYTHON)] = key(
        "A function of a Python file that makes inputs, such as inputs.py:make. It is code, and needs trust."
    )
    only_given: Flag = key("Use the given inputs only; generate none.")


# Verification


def _memory(node: YamlNode, _: Draft) -> int:
    try:
        size = parse_size(value_of(node))
    except (ValueError, OverflowError):
        size = None
    if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
        raise TakesError("a size such as 512MB or 2GiB")
    return size


def _library(node: YamlNode, draft: Draft) -> Path:
    # Loading a library runs code, so it needs the caller's trust like Python code.
    return read_local(node, draft, read_text(node, "the paths of shared libraries"), "load")


def _provider(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9]+ExecutionProvider", name):
        raise ValueError(f"{quoted(name)} is not an execution provider such as 'CUDAExecutionProvider'")
    return name


class Verify(Section):
    """How strictly to verify."""

    makes = VerifySpec
    wanted = "a mapping such as {rtol: 1e-4, atol: 1e-5}"

    rtol: Unsigned = key("The relative tolerance. By default, it depends on the dtype and the pass.")
    atol: Unsigned = key("The absolute tolerance. By default, it depends on the dtype and the pass.")
    seed: Whole = key("The seed of the random inputs.")
    mode: Annotated[Mode, Word] = key("Verify after each step, once at the end, or never.")
    compare: Annotated[Compare, Word] = key(
        "Compare the changed region after each step and the whole model at the end, or the whole model after each "
        "step, or both: the changed region where the outputs of the whole model prove nothing."
    )
    deployment: Annotated[Deployment, Word] = key(
        "Also run the model as deployed, with the default options of ONNX Runtime and all its optimizations: once at "
        "the end, after each step, or never."
    )
    unverified: Annotated[Unverified, Word] = key("Whether a step that could not be verified fails.")
    timeout: Annotated[float, Field(gt=0), takes("a number of seconds", int, float)] = key(
        "The time limit of one run of the model, in seconds."
    )
    memory: Annotated[int, Field(ge=1), SizeUnit(), reads(_memory)] = key(
        "The memory limit of the process that runs the model, such as 2GiB. Of a model with more weights, only the "
        "regions of changes are run."
    )
    custom_op_library: Annotated[tuple[Annotated[Any, reads(_library), pattern(r"\S")], ...], OneOrMore()] = key(
        "Shared libraries with custom operators for ONNX Runtime, by path. They are code, and need trust."
    )
    providers: Annotated[
        tuple[Annotated[str, AfterValidator(_provider), text("the name of a provider")], ...], OneOrMore()
    ] = key(
        "Execution providers of ONNX Runtime that run the original and the result, such as CUDAExecutionProvider, in "
        "the order of preference; the CPU is always last. The tolerance follows the precision that they compute in."
    )


# Accuracy

_BUDGET = "a limit such as 'snr >= 30 dB', or limits by output such as {all: snr >= 30 dB, logits: top1 >= 99 %}"


def _limits(node: YamlNode, draft: Draft) -> tuple[MetricLimit, ...]:
    """Read limits for all outputs, or for outputs by name: one limit, or a list."""
    if not isinstance(node, Table):
        return _limits_of(node, None)
    return tuple(limit for at, value in node.pairs for limit in _limits_of(value, draft.key(at)))


def _limits_of(node: YamlNode, output: str | None) -> tuple[MetricLimit, ...]:
    items = node.items if isinstance(node, Listing) else [node]
    if not items:
        raise TakesError(_BUDGET)
    return tuple(_limit(item, output) for item in items)


def _limit(node: YamlNode, output: str | None) -> MetricLimit:
    written = value_of(node)
    if not isinstance(written, str):
        raise TakesError(_BUDGET)
    return budget.read_limit(written, output)


_LIMIT = {"type": "string", "pattern": rf"^\s*({'|'.join(METRICS)})\s*[<>]=\s*[0-9.eE+-]+\s*(dB|%)?\s*$"}
_ONE_OR_MORE: list[dict[str, Any]] = [_LIMIT, {"type": "array", "items": _LIMIT, "minItems": 1}]
_Sets = Annotated[int, Field(ge=1), takes("a whole number of at least 1", int)]


class Calibration(Section):
    """Representative inputs for calibration."""

    makes: ClassVar[Any] = SampleSpec
    wanted = "a mapping such as {data: calibration.npz}"

    data: DataSets = key(
        "Complete sets of inputs, as under `inputs`. Without any, those of `inputs` are used, or synthetic ones; "
        "accuracy is measured on the calibration data, if only that is given."
    )
    sets: _Sets = key(
        "The number of synthetic sets, or of those that the generator makes (default: 12 to 64, by the cost of a run)."
    )


def _drop(node: YamlNode, _: Draft) -> tuple[float, bool]:
    written = value_of(node)
    if isinstance(written, bool) or not isinstance(written, int | float | str):
        raise TakesError("a share such as 0.5 %, or a number such as 0.01")
    return user_metric.read_drop(str(written))


class Metric(Section):
    """A custom metric, and how much worse it may become."""

    makes: ClassVar[Any] = MetricSpec
    wanted = "a mapping such as {function: metric.py:score, drop: 0.5 %}"
    needs: ClassVar = {
        "function": "'metric' needs a function such as metric.py:score",
        "drop": "'metric' needs a drop such as 0.5 %",
    }

    function: Annotated[
        Any, reads(lambda node, draft: (*function_of(node, draft, _METRIC), place_of(draft, node))), pattern(PYTHON)
    ] = needed(
        "A function of a Python file, such as metric.py:score. It is called with two lists that have a dict of arrays "
        "for each set under `data`, the outputs of the model and all arrays of the set, and returns a number. It is "
        "code, and needs trust."
    )
    drop: Annotated[
        Any,
        reads(_drop),
        WithJsonSchema(
            {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^\s*[0-9.eE+-]+\s*%?\s*$"}]}
        ),
    ] = needed(
        "How much worse it may be than that of the model before the first lossy pass: a share such as `0.5 %`, "
        "or a number."
    )
    better: Annotated[Better, Word] = key("Whether a `higher` (the default) or a `lower` value is better.")

    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> MetricSpec:
        """Make the metric."""
        (file, function, place), (drop, relative) = given["function"], given["drop"]
        return MetricSpec(file, function, drop, relative, given.get("better") == "lower", place)


class Accuracy(Calibration):
    """The accuracy limits of lossy passes: `budget`, `metric`, or both."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": ["budget"]}, {"required": ["metric"]}]})
    makes: ClassVar[Any] = AccuracySpec
    wanted = "a mapping such as {budget: snr >= 30 dB}"

    budget: Annotated[
        Any,
        reads(_limits),
        WithJsonSchema({"anyOf": [*_ONE_OR_MORE, {"type": "object", "additionalProperties": {"anyOf": _ONE_OR_MORE}}]}),
    ] = key(
        "The limits that all outputs, or outputs by name, must meet, relative to the model before the first lossy "
        f"pass: {', '.join(f'`{name} {one.sign} {one.example}` ({one.about})' for name, one in METRICS.items())}."
    )

    metric: Metric = key("A custom metric over all sets under `data`, and its allowed drop.")

    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> AccuracySpec:
        """Make the budget with the inputs on which it is measured."""
        limits, metric = given.pop("budget", None), given.pop("metric", None)
        if limits is None and metric is None and not node.open:
            raise NamedError("{} needs a budget such as 'snr >= 30 dB', or a metric")
        return AccuracySpec(limits or (), SampleSpec(**given), metric)
