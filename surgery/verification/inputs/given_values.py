"""Values given by the user, read from files and fitted to the inputs of a model.

The formats are Numpy's `.npy` and `.npz` (without pickled objects), and the protobufs of ONNX test sets: TensorProto,
SequenceProto or OptionalProto, by the type of the input.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from surgery.base.errors import Problem, RecipeError, UsageError
from surgery.base.operators.dtypes import ONNX_TYPES, Array, is_float, is_integer, limits
from surgery.base.operators.message_tensors import to_array
from surgery.model.runtime.reference_runs import external_tensors
from surgery.verification.inputs.spec import InputsSpec, Place, TensorSpec

if TYPE_CHECKING:
    import onnx

    from surgery.verification.inputs.input_port import InputPort

_TEXT_LENGTH = 200
_NUMBERED = re.compile(r"(input|output)_(\d+)\.pb")
_NOT_IN_NUMPY = frozenset(ONNX_TYPES.values())


class MisfitError(Exception):
    """Given data cannot be read or does not fit the model: what is wrong, and what to do about it."""

    def __init__(self, what: str, todo: str = "") -> None:
        super().__init__(f"{what}; {todo}" if todo else what)

    def complain(self, place: Place | None, subject: str) -> NoReturn:
        """Raise the error for the user: at a place in a recipe, else about a file or another subject."""
        if place is not None:
            raise RecipeError([Problem(place.path, place.line, place.column, f"{subject}: {self}")]) from self
        raise UsageError(str(self), where=subject) from self


@dataclass
class FileValues:
    """Values by input name, the outputs that belong to them, and arrays with other names."""

    inputs: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)


def shape_of(value: Any) -> tuple[int, ...] | None:
    """Return the shape of a tensor, or of the first tensor of a sequence; None if there is no tensor."""
    if isinstance(value, list):
        return shape_of(value[0]) if value else None
    return None if value is None else tuple(int(extent) for extent in value.shape)


# Fitting


def fit(value: Any, port: InputPort) -> Any:
    """Convert a value to the form that an input takes; raise MisfitError if its type, rank or fixed extents differ."""
    if value is None and port.kind == "optional":
        return None
    wants_list = "sequence" in (port.kind, port.inner)
    if wants_list != isinstance(value, (list, tuple)):
        raise MisfitError(f"'{port.name}' is {'one tensor' if wants_list else 'a list'}, the model takes {_kind(port)}")
    if wants_list:
        return [_fit_tensor(item, port) for item in value]
    return _fit_tensor(value, port)


def _kind(port: InputPort) -> str:
    return "a sequence" if "sequence" in (port.kind, port.inner) else "one tensor"


def _fit_tensor(value: Any, port: InputPort) -> Array:
    try:
        array = np.asarray(value)
    except Exception as error:
        raise MisfitError(f"'{port.name}' is not an array: {_short(error)}") from error
    if port.dtype is None:
        raise MisfitError(f"'{port.name}' has an unsupported type in the model")
    array = _fit_elements(array, port.dtype, port.name)
    if not port.ranked:
        return array
    if array.ndim != len(port.dims):
        raise MisfitError(
            f"'{port.name}' has rank {array.ndim}, not {len(port.dims)}: its shape is {list(array.shape)}, the model "
            f"takes {_spell(port)}"
        )
    if any(isinstance(want, int) and want != extent for want, extent in zip(port.dims, array.shape)):
        raise MisfitError(f"'{port.name}' has shape {list(array.shape)}, the model takes {_spell(port)}")
    return array


def _fit_elements(array: Array, wanted: np.dtype[Any], name: str) -> Array:
    """Convert an array to the wanted dtype, if its meaning is preserved."""
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if wanted.kind == "O":
        if array.dtype.kind in "US":
            array = np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
            return array.astype(object)
        if array.dtype.kind == "O" and all(isinstance(item, str) for item in array.reshape(-1)):
            return array
    if array.dtype == wanted and array.dtype.kind != "O":
        return array
    if wanted in _NOT_IN_NUMPY:
        # Numpy writes the types that it lacks as opaque bytes. Users without such a type give a wider one.
        if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
            return array.view(wanted)
        whole = is_integer(array.dtype)
        if (is_float(wanted) and is_float(array.dtype)) or (is_integer(wanted) and whole and _within(array, wanted)):
            return array.astype(wanted)
    given = "text" if array.dtype.kind in "OUS" else array.dtype.name
    if wanted.kind == "O":
        other = next((type(item).__name__ for item in array.reshape(-1) if not isinstance(item, str)), "")
        given = f"an array with elements of type '{other}'" if array.dtype.kind == "O" else given
        raise MisfitError(f"'{name}' is {given}, the model takes text")
    hint = "" if array.dtype.kind in "OUSV" else f"convert it with .astype('{wanted.name}')"
    raise MisfitError(f"'{name}' is {given}, the model takes {wanted.name}", hint)


def _within(array: Array, wanted: np.dtype[Any]) -> bool:
    low, high = limits(wanted)
    return array.size == 0 or (int(array.min()) >= low and int(array.max()) <= high)


def _spell(port: InputPort) -> str:
    dims = ("?" if isinstance(extent, str) and extent.startswith(f"{port.name}[") else extent for extent in port.dims)
    return f"[{', '.join(map(str, dims))}]"


def fit_all(
    values: Mapping[str, Any], ports: Sequence[InputPort], defaults: Sequence[InputPort] = (), *, complete: bool = True
) -> dict[str, Any]:
    """Fit values to the inputs with their names; raise MisfitError for unknown names, and missing ones if `complete`.

    Inputs in `defaults` may be missing.
    """
    known = {port.name: port for port in (*ports, *defaults)}
    for name in values:
        if name not in known:
            raise unknown_input(name, known)
    missing = [port.name for port in ports if port.name not in values and port.kind != "optional"]
    if missing and complete:
        names = ", ".join(f"'{name}'" for name in missing)
        raise MisfitError(
            f"no value is given for input {names}", f"the model takes {', '.join(port.name for port in ports)}"
        )
    found = {name: fit(values[name], port) for name, port in known.items() if name in values}
    if complete:
        found |= {port.name: None for port in ports if port.name not in values}
    return found


def unknown_input(name: str, known: Iterable[str]) -> MisfitError:
    """Return the error that the model has no such input."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"its inputs are {', '.join(names) or 'none'}"
    return MisfitError(f"the model has no input '{name}'", hint)


# Reading


def read_arrays(path: Path) -> dict[str, Array] | Array:
    """Read a `.npy` as an array, a `.npz` as arrays by name."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except Exception as error:
        # Numpy takes any file that is not in one of its own formats for pickled objects.
        pickled = "pickle" in str(error) or "Object arrays" in str(error)
        reason = "it contains no numpy arrays, or Python objects" if pickled else _short(error)
        raise MisfitError(f"cannot be read: {reason}") from error


def read_proto(path: Path, kind: str) -> tuple[str, Any]:
    """Read a protobuf of a test set; return the name stored in it and its value."""
    import onnx
    from onnx import numpy_helper

    def items(sequence: onnx.SequenceProto) -> Any:
        is_plain = sequence.elem_type == onnx.SequenceProto.TENSOR
        return [*map(to_array, sequence.tensor_values)] if is_plain else numpy_helper.to_list(sequence)

    def present(optional: onnx.OptionalProto) -> Any:
        is_plain = optional.elem_type == onnx.OptionalProto.TENSOR
        return to_array(optional.tensor_value) if is_plain else numpy_helper.to_optional(optional)

    readers: dict[str, tuple[Any, Any]] = {
        "tensor": (onnx.TensorProto, to_array),
        "sequence": (onnx.SequenceProto, items),
        "optional": (onnx.OptionalProto, present),
    }
    if kind not in readers:
        raise MisfitError(f"{path.name} is for a {kind}, which cannot be fed or compared")
    message, convert = readers[kind]
    try:
        proto = message()
        proto.ParseFromString(path.read_bytes())
        if any(True for _ in external_tensors(proto)):
            raise ValueError("its data is in another file")
        # An empty optional may declare the type of its missing element, which the reader does not expect.
        is_empty = kind == "optional" and not any(field.name.endswith("_value") for field, _ in proto.ListFields())
        return proto.name, None if is_empty else convert(proto)
    except Exception as error:
        raise MisfitError(f"{path.name} cannot be read as a {message.__name__}: {_short(error)}") from error


def _short(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return text if len(text) <= _TEXT_LENGTH else f"{text[:_TEXT_LENGTH]}…"


def read_value(path: Path, port: InputPort) -> Any:
    """Read the value of one input from a `.npy`, a `.npz` (by its name, or the only array in it) or a `.pb`."""
    if path.suffix == ".pb":
        return fit(read_proto(path, port.kind)[1], port)
    loaded = read_arrays(path)
    if not isinstance(loaded, dict):
        return fit(loaded, port)
    if port.name not in loaded and len(loaded) != 1:
        raise MisfitError(f"it has no array '{port.name}'", f"it has {', '.join(loaded) or 'none'}")
    return fit(loaded[port.name] if port.name in loaded else next(iter(loaded.values())), port)


def read_tensors(spec: InputsSpec, ports: Sequence[InputPort], defaults: Sequence[InputPort] = ()) -> dict[str, Any]:
    """Read the files given for single inputs; check the names, and the other settings for inputs."""
    known = {port.name: port for port in (*ports, *defaults)}
    found = {}
    for name, tensor in spec.tensors.items():
        try:
            if name not in known:
                raise unknown_input(name, known)
            if tensor.file is not None:
                found[name] = read_value(tensor.file, known[name])
            else:
                _check_elements(tensor, known[name])
        except MisfitError as error:
            error.complain(tensor.place, str(tensor.file) if tensor.file is not None else "inputs")
    return found


def _check_elements(tensor: TensorSpec, port: InputPort) -> None:
    """Reject choices and ranges that the type of an input cannot hold."""
    if port.dtype is None:
        return
    items = tensor.values if tensor.values is not None else tensor.range or ()
    is_text = port.dtype.kind == "O"
    name = "text" if is_text else port.dtype.name
    for item in items:
        if isinstance(item, str) != is_text:
            raise MisfitError(f"'{port.name}' is {name} in the model, which {item!r} is not")
        if not isinstance(item, str) and is_integer(port.dtype):
            low, high = limits(port.dtype)
            if not low <= item <= high or int(item) != item:
                raise MisfitError(f"'{port.name}' is {name} in the model, which cannot hold {item:g}")


# Sets


def sets_in(path: Path) -> list[Path]:
    """Return the sets of inputs at a path: itself, or the `.npz` files and folders with `input_0.pb` in it."""
    if not path.is_dir():
        if not path.exists():
            raise MisfitError("no such file or folder")
        return [path]
    if is_set(path):
        return [path]
    found = [item for item in path.iterdir() if is_set(item) or (item.suffix == ".npz" and item.is_file())]
    if not found:
        raise MisfitError(
            "no inputs in this folder", "it takes input_0.pb and so on, folders such as test_data_set_0, or .npz files"
        )
    return sorted(found, key=natural)


def is_set(path: Path) -> bool:
    """Return whether a folder is an ONNX test set."""
    return path.is_dir() and any((path / name).is_file() for name in ("input_0.pb", "output_0.pb"))


def natural(path: Path) -> list[tuple[int, str]]:
    """Return a sort key that places `set_10` after `set_9`."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", path.name)]


def read_set(
    path: Path,
    ports: Sequence[InputPort],
    defaults: Sequence[InputPort],
    graph: onnx.GraphProto,
    *,
    labelled: bool = False,
) -> FileValues:
    """Read one set of inputs, and the outputs if it has any; a `.npz` may hold other arrays if `labelled`."""
    if path.is_dir():
        return _read_folder(path, ports, defaults, graph)
    if path.suffix in (".npy", ".pb"):
        if len(ports) != 1:
            names = ", ".join(port.name for port in ports) or "no input"
            raise MisfitError(f"a {path.suffix} holds one array, the model takes {names}", "give a .npz")
        return FileValues({ports[0].name: read_value(path, ports[0])})
    if path.suffix != ".npz":
        raise MisfitError(f"a '{path.suffix}' file is not an input set", "it takes a .npz, or a folder with input_0.pb")
    arrays = read_arrays(path)
    return split(arrays if isinstance(arrays, dict) else {}, ports, defaults, graph, labelled=labelled)


def split(
    arrays: Mapping[str, Any],
    ports: Sequence[InputPort],
    defaults: Sequence[InputPort],
    graph: onnx.GraphProto,
    *,
    labelled: bool = False,
) -> FileValues:
    """Separate inputs from outputs, and from other arrays if `labelled`, by their names, and fit the inputs."""
    inputs = {port.name for port in (*ports, *defaults)}
    outputs = {output.name for output in graph.output} - inputs
    found = {name: np.asarray(array) for name, array in arrays.items() if name in outputs}
    others = set(arrays) - inputs - outputs if labelled else set()
    # An optional input with a misspelt name would be taken for a label.
    others = {name for name in others if not difflib.get_close_matches(name, inputs - set(arrays), n=1)}
    given = {name: array for name, array in arrays.items() if name not in found and name not in others}
    labels = {name: np.asarray(array) for name, array in arrays.items() if name in others}
    return FileValues(fit_all(given, ports, defaults), found, labels)


def _read_folder(
    folder: Path, ports: Sequence[InputPort], defaults: Sequence[InputPort], graph: onnx.GraphProto
) -> FileValues:
    """Read `input_0.pb`, `output_0.pb` and so on: by the names in the files if all are known, else by position."""
    numbered: dict[str, dict[int, Path]] = {"input": {}, "output": {}}
    for path in folder.iterdir():
        matched = _NUMBERED.fullmatch(path.name)
        if matched is not None:
            numbered[matched.group(1)][int(matched.group(2))] = path
    files = numbered["input"]
    known = [(port.name, port.kind) for port in (*ports, *defaults)]
    order = known[: len(ports)]
    if len(files) > len(ports) and len(files) == len(graph.input):
        # Weights that are listed as inputs, as in old models, may have files too.
        order = [(value.name, _kind_of(value.type)) for value in graph.input]
    beyond = [path.name for index, path in sorted(files.items()) if index >= len(order)]
    if beyond:
        names = ", ".join(port.name for port in ports) or "no input"
        raise MisfitError(f"{beyond[0]} is unexpected", f"the model takes {names}")
    given = {name: value for name, value in _named(files, order, known).items() if name in dict(known)}
    kinds = [(output.name, _kind_of(output.type)) for output in graph.output]
    outputs = {index: path for index, path in numbered["output"].items() if index < len(kinds)}
    comparable = {
        index: path for index, path in outputs.items() if kinds[index][1] in ("tensor", "sequence", "optional")
    }
    return FileValues(fit_all(given, ports, defaults), _named(comparable, kinds, kinds))


def _named(
    files: Mapping[int, Path], order: Sequence[tuple[str, str]], known: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    """Read numbered files and name each value: by its own name, if all of these are known and different."""
    read = {index: read_proto(path, order[index][1]) for index, path in sorted(files.items())}
    own = [name for name, _ in read.values()]
    by_name = len(set(own)) == len(own) and set(own) <= set(dict(known)) and len({kind for _, kind in known}) == 1
    return {(name if by_name else order[index][0]): value for index, (name, value) in read.items()}


def _kind_of(proto: onnx.TypeProto) -> str:
    return str(proto.WhichOneof("value")).removesuffix("_type")
