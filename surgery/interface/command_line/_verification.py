"""Flags for inputs and verification, shared by several commands."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.base.errors import UsageError
from surgery.interface.command_line import _excepted, _places, _targets

if TYPE_CHECKING:
    from surgery.engine.recipe.schema import Recipe
    from surgery.verification.inputs.spec import InputsSpec, MetricLimit, MetricSpec, VerifySpec


DROP = "0.5 %"
"""The allowed drop of a metric that is given without one."""

_SIZES = re.compile(r"(.+?)=(\s*[0-9]+\s*(?:,\s*[0-9]+\s*)*)(?:,(?=.)|$)")
"""The name and sizes of one dim, up to the next name or the end."""


def add_arguments(parser: argparse.ArgumentParser, sets: str = "--inputs") -> None:
    """Add the verification arguments; `sets` is the name of the flag for input sets."""
    group = parser.add_argument_group("verification")
    group.add_argument(
        sets,
        dest="inputs",
        metavar="PATH",
        type=_places.data,
        action="append",
        default=[],
        help="also run on these inputs: a .npz file, a folder with input_0.pb, or a folder of either; may be repeated",
    )
    group.add_argument(
        "--dims",
        metavar="NAME=N[,N]",
        action="append",
        default=[],
        help="use these sizes of a dynamic dim; may be repeated",
    )
    add_library_argument(group)
    group.add_argument(
        "--unverified",
        choices=["refuse", "accept"],
        help="whether an unverified result is a failure (default: as the recipe specifies, else refuse)",
    )
    group.add_argument(
        "--no-deployment",
        action="store_true",
        help="do not also run the result with the default options of ONNX Runtime, as its users will",
    )


def add_accuracy_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the accuracy budget and the calibration of lossy passes."""
    group = parser.add_argument_group("accuracy of lossy passes")
    group.add_argument(
        "--accuracy",
        metavar="LIMIT",
        action="append",
        default=[],
        help="the accuracy budget of outputs: 'snr >= 30 dB', 'cosine >= 0.999', 'max_rel <= 0.05', 'top1 >= 99 "
        "%%', for one "
        "output 'logits: top1 >= 99 %%'; may be repeated",
    )
    group.add_argument(
        "--metric",
        metavar="FILE.py:FUNCTION",
        help="limit the drop of a custom metric instead of the metrics of the recipe: a function that takes the "
        "outputs and arrays of all sets of --evaluation as two lists of dicts and returns a number; higher is better",
    )
    group.add_argument(
        "--drop",
        metavar="DROP",
        help="the allowed drop of --metric: a share such as '0.5 %%', or a number (default: 0.5 %%)",
    )
    group.add_argument("--lower-is-better", action="store_true", help="lower values of --metric are better")
    group.add_argument(
        "--evaluation",
        metavar="PATH",
        type=_places.data,
        action="append",
        default=[],
        help="measure accuracy on these inputs: a .npz file or a folder as for --inputs; may be repeated",
    )
    group.add_argument(
        "--calibration",
        metavar="PATH",
        type=_places.data,
        action="append",
        default=[],
        help="calibrate passes with these inputs; may be repeated",
    )


def accuracy(arguments: argparse.Namespace, inputs: InputsSpec, verify: VerifySpec) -> tuple[InputsSpec, VerifySpec]:
    """Combine the specs of a recipe with the flags about accuracy, which take precedence."""
    from surgery.verification.inputs.spec import DataSpec

    limits = accuracy_limits(arguments)
    if limits:
        verify = replace(verify, accuracy=replace(verify.accuracy, limits=limits))
    metric = user_metric(arguments, verify.accuracy.metric)
    if metric is not None:
        # The limits of the recipe concern other metrics; with --accuracy, both apply.
        verify = replace(verify, accuracy=replace(verify.accuracy, metric=metric, limits=limits))
    if arguments.evaluation:
        samples = replace(verify.accuracy.samples, data=tuple(DataSpec(Path(path)) for path in arguments.evaluation))
        verify = replace(verify, accuracy=replace(verify.accuracy, samples=samples))
    if arguments.calibration:
        found = tuple(DataSpec(Path(path)) for path in arguments.calibration)
        inputs = replace(inputs, calibration=replace(inputs.calibration, data=found))
    return inputs, verify


def user_metric(arguments: argparse.Namespace, known: MetricSpec | None = None) -> MetricSpec | None:
    """Return the metric given by `--metric` and `--drop`; `--drop` alone changes the drop of the recipe's metric."""
    from surgery.verification.accuracy.user_metric import read_drop
    from surgery.verification.inputs.spec import MetricSpec

    if arguments.metric is None and known is None:
        if arguments.drop is not None or arguments.lower_is_better:
            flag = "--drop" if arguments.drop is not None else "--lower-is-better"
            raise UsageError(f"{flag} needs --metric FILE.py:FUNCTION")
        return None
    try:
        drop, relative = read_drop(arguments.drop or DROP)
    except ValueError as error:
        raise UsageError(f"--drop '{arguments.drop}': {error}") from error
    if arguments.metric is None:
        return replace(known, drop=drop, relative=relative) if known is not None and arguments.drop else None
    file, _, function = arguments.metric.rpartition(":")
    if not file.endswith(".py") or not function.isidentifier():
        raise UsageError(f"--metric {arguments.metric}: expected FILE.py:FUNCTION")
    if not Path(file).is_file():
        raise UsageError("no such file", where=file)
    return MetricSpec(Path(file), function, drop, relative, arguments.lower_is_better)


def accuracy_limits(arguments: argparse.Namespace) -> tuple[MetricLimit, ...]:
    """Return the limits of `--accuracy`; UsageError for text that is not a limit."""
    from surgery.verification.accuracy.budget import read_argument

    limits: list[MetricLimit] = []
    for text in arguments.accuracy:
        try:
            limits += read_argument(text)
        except ValueError as error:
            raise UsageError(f"--accuracy '{text}': {error}") from error
    return tuple(limits)


def add_library_argument(parser: argparse._ActionsContainer) -> None:
    """Add the arguments for sessions of ONNX Runtime."""
    parser.add_argument(
        "--custom-op-library",
        metavar="FILE",
        action="append",
        default=[],
        help="load a shared library of custom operators into ONNX Runtime; may be repeated",
    )
    add_provider_argument(parser)


def add_provider_argument(parser: argparse._ActionsContainer) -> None:
    """Add the argument for execution providers of ONNX Runtime."""
    parser.add_argument(
        "--provider",
        metavar="NAME",
        action="append",
        default=[],
        help="run on an execution provider of ONNX Runtime, such as CUDAExecutionProvider, where it has kernels; "
        "may be repeated (default: the CPU)",
    )


def libraries(arguments: argparse.Namespace) -> tuple[Path, ...]:
    """Return the paths of libraries of custom operators; UsageError for a missing file."""
    return tuple(_library(path) for path in arguments.custom_op_library)


def applied(recipe: Recipe, arguments: argparse.Namespace, model: Path) -> Recipe:
    """Return a recipe with the flags for inputs, verification, target and excepted nodes applied."""
    inputs, verify = combined(arguments, model, recipe.inputs, recipe.verify)
    if "excepted" in arguments:
        recipe = _excepted.excepting(recipe, arguments)
    return _targets.aimed(replace(recipe, inputs=inputs, verify=verify), arguments)


def combined(
    arguments: argparse.Namespace, model: Path, inputs: InputsSpec, verify: VerifySpec
) -> tuple[InputsSpec, VerifySpec]:
    """Combine the specs of a recipe with the flags, which take precedence."""
    from surgery.verification.inputs.spec import DataSpec, FrozenDict

    given = dims(arguments)
    if given:
        _require_dims(model, given)
        _require_room(model, given)
    data = tuple(DataSpec(Path(path)) for path in arguments.inputs)
    if "accuracy" in arguments:
        inputs, verify = accuracy(arguments, inputs, verify)
    return (
        replace(inputs, dims=FrozenDict({**inputs.dims, **given}), data=data + inputs.data),
        replace(
            verify,
            custom_op_library=libraries(arguments) + verify.custom_op_library,
            providers=tuple(arguments.provider) or verify.providers,
            unverified=arguments.unverified or verify.unverified,
            deployment="off" if arguments.no_deployment else verify.deployment,
        ),
    )


def dims(arguments: argparse.Namespace) -> dict[str, tuple[int, ...]]:
    """Return the sizes given by `--dims`, by dim name. One flag may name several dims: `batch=1,sequence=128`."""
    found: dict[str, tuple[int, ...]] = {}
    for text in arguments.dims:
        for name, extents in _sizes(text):
            if name in found:
                raise UsageError(f"--dims gives '{name}' twice", todo=f"pass --dims {name}=1,8 for several sizes")
            found[name] = extents
    return found


def sizes(arguments: argparse.Namespace) -> dict[str, int]:
    """Return the sizes given by `--dims`, one for each dim."""
    found = dims(arguments)
    for name, given in found.items():
        if len(given) > 1:
            raise UsageError(f"--dims gives '{name}' {len(given)} sizes", todo="pass one")
    return {name: size for name, (size,) in found.items()}


def _sizes(text: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the names and sizes of a flag `--dims`."""
    place = 0
    while place < len(text) or not place:
        part = _SIZES.match(text, place)
        extents = () if part is None else tuple(map(int, part.group(2).split(",")))
        if part is None or min(extents) < 1:
            raise UsageError(f"--dims {text}: expected NAME=N or NAME=N,N with sizes of at least 1")
        yield part.group(1).strip(), extents
        place = part.end()


def _require_dims(model: Path, dims: dict[str, tuple[int, ...]]) -> None:
    """Refuse sizes for a dim that the model does not have."""
    from surgery.model import storage
    from surgery.verification.inputs.dims import free_names
    from surgery.verification.inputs.feed_plan import read_ports

    known = free_names(extent for port in read_ports(storage.load(model).proto) for extent in port.dims)
    for name in dims:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"its dynamic dims are {', '.join(known)}" if known else "its dims are all fixed"
            raise UsageError(
                f"the model has no dynamic dim '{name}'", todo=f"did you mean '{near[0]}'?" if near else hint
            )


def _require_room(model: Path, dims: dict[str, tuple[int, ...]]) -> None:
    """Refuse sizes for which a single input exceeds the memory limit of a process."""
    import math

    from surgery.base import workers
    from surgery.model import storage
    from surgery.verification.inputs.feed_plan import read_ports

    most = workers.default_memory()
    for port in read_ports(storage.load(model).proto):
        sizes = [extent if isinstance(extent, int) else max(dims.get(extent, (1,))) for extent in port.dims]
        if math.prod(sizes) > most:
            raise UsageError(
                f"--dims: input '{port.name}' of {' x '.join(map(str, sizes))} takes more than {most >> 30} GiB",
                todo="pass smaller sizes",
            )


def _library(path: str) -> Path:
    found = Path(path)
    if not found.is_file():
        raise UsageError("is a directory" if found.is_dir() else "no such file", where=path)
    return found


def start() -> None:
    """Start the worker processes, whose imports then overlap with those of this process."""
    from surgery.base import workers

    workers.start()
