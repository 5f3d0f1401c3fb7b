"""Flags for inputs and verification, shared by several commands."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints

from surgery.base.errors import UsageError, closest
from surgery.interface.command_line import _excepted, _places, _targets

if TYPE_CHECKING:
    from surgery.engine.recipe.schema import Recipe
    from surgery.verification.inputs.spec import DataSpec, ImageSpec, InputsSpec, MetricLimit, MetricSpec, VerifySpec


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
        help="also run on these inputs: a .npz file, a folder with input_0.pb, a folder of either, a folder of images, "
        "or FILE.py:FUNCTION; may be repeated",
    )
    add_image_argument(group)
    group.add_argument(
        "--dims",
        metavar="NAME=N[,N]",
        action="append",
        default=[],
        help="use these sizes of a dynamic dim; may be repeated",
    )
    add_library_argument(group)
    add_unverified_argument(group)
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
        help="the accuracy budget of outputs, such as 'snr >= 30 dB', 'cosine >= 0.999', 'max_rel <= 0.05' or "
        "'top1 >= 99 %%', for one output 'logits: top1 >= 99 %%'; may be repeated",
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
        help="measure accuracy on these inputs: a .npz file, a folder of images, or others as for --inputs; may be "
        "repeated (default: those of --calibration)",
    )
    group.add_argument(
        "--calibration",
        metavar="PATH",
        type=_places.data,
        action="append",
        default=[],
        help="calibrate passes with these inputs, as for --evaluation; may be repeated",
    )


def accuracy(arguments: argparse.Namespace, inputs: InputsSpec, verify: VerifySpec) -> tuple[InputsSpec, VerifySpec]:
    """Combine the specs of a recipe with the flags about accuracy, which take precedence."""
    limits = accuracy_limits(arguments)
    if limits:
        verify = replace(verify, accuracy=replace(verify.accuracy, limits=limits))
    metric = user_metric(arguments, verify.accuracy.metric)
    if metric is not None:
        # The limits of the recipe concern other metrics; with --accuracy, both apply.
        verify = replace(verify, accuracy=replace(verify.accuracy, metric=metric, limits=limits))
    if arguments.evaluation:
        samples = replace(verify.accuracy.samples, data=data_specs(arguments, arguments.evaluation))
        verify = replace(verify, accuracy=replace(verify.accuracy, samples=samples))
    if arguments.calibration:
        found = data_specs(arguments, arguments.calibration)
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


def add_unverified_argument(group: argparse._ActionsContainer) -> None:
    """Add `--unverified`."""
    group.add_argument(
        "--unverified",
        choices=["refuse", "accept"],
        help="whether an unverified result is a failure (default: as the recipe specifies, else refuse)",
    )


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
    from surgery.base.frozen_dict import FrozenDict

    given = dims(arguments)
    if given:
        _require_dims(model, given)
        _require_room(model, given)
    data = data_specs(arguments, arguments.inputs)
    _require_images(arguments)
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


def _require_images(arguments: argparse.Namespace) -> None:
    """Refuse a description of images without data."""
    paths = [*arguments.inputs, *getattr(arguments, "evaluation", ()), *getattr(arguments, "calibration", ())]
    if arguments.image and not paths:
        flag = "--calibration" if "calibration" in arguments else "--inputs"
        raise UsageError("--image describes a folder of images, and none is given", todo=f"pass {flag} FOLDER")


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


def add_image_argument(parser: argparse._ActionsContainer) -> None:
    """Add the argument that describes folders of images."""
    parser.add_argument(
        "--image",
        metavar="OPTION=VALUE",
        action="append",
        default=[],
        help="describe the folders of images among the inputs: mean=0.485,0.456,0.406, std=0.229,0.224,0.225, "
        "scale=1/255, layout=NHWC, size=224x224, fit=stretch|crop|pad, resize=256, channels=BGR, "
        "interpolation=bicubic, limit=128; may be repeated",
    )


def _image_spec(given: Iterable[str]) -> ImageSpec | None:
    """Return what `--image` describes; None if it is not given."""
    from surgery.verification.inputs.spec import ImageSpec

    kinds = get_type_hints(ImageSpec)
    known = [one.name for one in fields(ImageSpec)]
    found: dict[str, Any] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in known or not value:
            near = closest(name, known)
            todo = f"did you mean '{near}'?" if near and near != name else f"write OPTION=VALUE with {', '.join(known)}"
            raise UsageError(f"--image {text}: expected an option of images", todo=todo)
        try:
            read: Callable[[str, Any], Any] = _READERS.get(name, _word)
            found[name] = read(value, kinds[name])
        except (ValueError, ZeroDivisionError) as error:
            raise UsageError(f"--image {text}: {_expected(name, kinds[name])}") from error
    return ImageSpec(**found) if found else None


def data_specs(arguments: argparse.Namespace, paths: Iterable[str]) -> tuple[DataSpec, ...]:
    """Return sets of inputs that the command line names; `--image` describes the folders among them."""
    from surgery.verification.inputs.spec import DataSpec

    images = _image_spec(arguments.image)
    return tuple(DataSpec.of(path, images if Path(path).is_dir() else None) for path in paths)


def _numbers(text: str, _: Any) -> tuple[float, ...]:
    return tuple(float(part) for part in text.strip("[]").split(","))


def _ratio(text: str, _: Any) -> float:
    dividend, *divisor = text.split("/", 1)
    return float(dividend) / float(divisor[0] if divisor else 1)


def _size(text: str, _: Any) -> tuple[int, int]:
    parts = [int(part) for part in text.lower().replace(",", "x").split("x")]
    height, width = parts * 2 if len(parts) == 1 else parts
    return height, width


def _whole(text: str, _: Any) -> int:
    return int(text)


def _word(text: str, kind: Any) -> str:
    if text not in _words(kind):
        raise ValueError(text)
    return text


def _words(kind: Any) -> list[str]:
    """Return the words of a choice, which may be optional."""
    return [word for one in get_args(kind) for word in ([one] if isinstance(one, str) else _words(one))]


_READERS: Final[dict[str, Callable[[str, Any], Any]]] = {
    "mean": _numbers,
    "std": _numbers,
    "scale": _ratio,
    "size": _size,
    "resize": _whole,
    "limit": _whole,
}


def _expected(name: str, kind: Any) -> str:
    if name in ("mean", "std"):
        return f"expected one number, or one per channel: {name}=0.485,0.456,0.406"
    if name == "size":
        return "expected height and width: size=224, or size=224x320"
    if name == "scale":
        return "expected a number: scale=1/255"
    words = _words(kind)
    return f"expected {', '.join(words[:-1])} or {words[-1]}" if words else "expected a whole number"
