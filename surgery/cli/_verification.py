"""Flags about inputs and verification that several commands take."""

from __future__ import annotations

import argparse
import difflib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.errors import UsageError

if TYPE_CHECKING:
    from surgery.verification.inputs.spec import InputsSpec, VerifySpec


def add_arguments(parser: argparse.ArgumentParser, sets: str = "--inputs") -> None:
    """Declare what `apply`, `run` and `verify` take; `sets` is what the flag for sets of inputs is called."""
    group = parser.add_argument_group("verification")
    group.add_argument(
        sets,
        dest="inputs",
        metavar="PATH",
        action="append",
        default=[],
        help="a set of inputs: a .npz, a folder with input_0.pb, or a folder of such; may be repeated",
    )
    group.add_argument(
        "--dims", metavar="NAME=N[,N]", action="append", default=[], help="sizes of a dynamic dim; may be repeated"
    )
    add_library_argument(group)
    group.add_argument(
        "--unverified",
        choices=["refuse", "accept"],
        help="whether to fail when nothing could be shown (default: what the recipe says, else refuse)",
    )


def add_library_argument(parser: argparse._ActionsContainer) -> None:
    """Declare how ONNX Runtime gets custom operators."""
    parser.add_argument(
        "--custom-op-library",
        metavar="FILE",
        action="append",
        default=[],
        help="a shared library with custom operators for ONNX Runtime; may be repeated",
    )


def libraries(arguments: argparse.Namespace) -> tuple[Path, ...]:
    """Read the paths of libraries of custom operators."""
    return tuple(_library(path) for path in arguments.custom_op_library)


def combined(
    arguments: argparse.Namespace, model: Path, inputs: InputsSpec, verify: VerifySpec
) -> tuple[InputsSpec, VerifySpec]:
    """Add what the flags say to what a recipe says; where both speak of the same, the flags count."""
    from surgery.verification.inputs.spec import DataSpec, FrozenDict

    given = dims(arguments)
    if given:
        _require_dims(model, given)
        _require_room(model, given)
    data = tuple(DataSpec(Path(path)) for path in arguments.inputs)
    return (
        replace(inputs, dims=FrozenDict({**inputs.dims, **given}), data=data + inputs.data),
        replace(
            verify,
            custom_op_library=libraries(arguments) + verify.custom_op_library,
            unverified=arguments.unverified or verify.unverified,
        ),
    )


def dims(arguments: argparse.Namespace) -> dict[str, tuple[int, ...]]:
    """Read the sizes that `--dims` gives, by the name of the dim."""
    found: dict[str, tuple[int, ...]] = {}
    for text in arguments.dims:
        name, _, extents = text.rpartition("=")
        numbers = extents.split(",")
        if not name or not all(number.strip().isdecimal() and int(number) > 0 for number in numbers):
            raise UsageError(f"--dims {text}: not of the form NAME=N or NAME=N,N with sizes from 1")
        if name in found:
            raise UsageError(f"--dims gives '{name}' twice", todo=f"write --dims {name}=1,8 for several sizes")
        found[name.strip()] = tuple(int(number) for number in numbers)
    return found


def _require_dims(model: Path, dims: dict[str, tuple[int, ...]]) -> None:
    """Refuse sizes for a dim that the model does not have."""
    from surgery import storage
    from surgery.verification.inputs.dims import free_names
    from surgery.verification.inputs.plan import read_ports

    known = free_names(extent for port in read_ports(storage.load(model).proto) for extent in port.dims)
    for name in dims:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"its dynamic dims are {', '.join(known)}" if known else "its dims are all fixed"
            raise UsageError(
                f"the model has no dynamic dim '{name}'", todo=f"did you mean '{near[0]}'?" if near else hint
            )


def _require_room(model: Path, dims: dict[str, tuple[int, ...]]) -> None:
    """Refuse sizes for which an input alone takes more than a process may."""
    import math

    from surgery import storage, workers
    from surgery.verification.inputs.plan import read_ports

    most = workers.default_memory()
    for port in read_ports(storage.load(model).proto):
        sizes = [extent if isinstance(extent, int) else max(dims.get(extent, (1,))) for extent in port.dims]
        if math.prod(sizes) > most:
            raise UsageError(
                f"--dims: input '{port.name}' of {' x '.join(map(str, sizes))} takes more than {most >> 30} GiB",
                todo="give smaller sizes",
            )


def _library(path: str) -> Path:
    found = Path(path)
    if not found.is_file():
        raise UsageError("is a directory" if found.is_dir() else "no such file", where=path)
    return found


def start() -> None:
    """Start what runs native code, so that its imports overlap with those of this process."""
    from surgery import workers

    workers.start()
