"""The worker of PyTorch: load a module or a program, export it, run it. All of this runs in a worker process.

The loaded objects are kept in this module for the lifetime of the worker.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from surgery.base.workers import stage
from surgery.features.frameworks.decisions import recorded

_BFLOAT16 = "bfloat16"


@dataclass
class _Loaded:
    """A module with example inputs: `leaves` are all values in them, `tensors` the positions of the tensors to feed."""

    module: Any
    program: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: list[Any] = field(default_factory=list)
    structure: Any = None
    tensors: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    double: Any = None


_state: dict[str, _Loaded] = {}


class ExportError(RuntimeError):
    """An error that the user can fix; the message explains how."""


def load(target: str, folder: str, inputs: Sequence[Mapping[str, Any]], data: Mapping[str, Any]) -> dict[str, Any]:
    """Import a module and call its function, or load a program; return the description of its inputs.

    `inputs` describes example inputs if the function returns none, or the names of their dims; `data` has arrays.
    """
    stage("importing torch")
    try:
        import torch
    except ImportError as error:
        raise ExportError("export needs PyTorch: pip install 'onnx-surgery[torch]'") from error
    # The two processes run alternately, and their threads would wait for each other.
    torch.set_num_threads(1)
    os.chdir(folder)
    stage(f"loading {target}")
    loaded = _program(target) if target.endswith(".pt2") else _module(target)
    if not loaded.args and not loaded.kwargs:
        loaded.args = _examples(inputs, data)
    _describe(loaded, [str(one["name"]) for one in inputs if one.get("name")])
    _state["loaded"] = loaded
    return {
        "torch": torch.__version__,
        "module": type(loaded.module).__name__,
        "inputs": [
            {"name": name, **_shape(loaded.leaves[at])} for name, at in zip(loaded.names, loaded.tensors, strict=True)
        ],
        "dims": _program_dims(loaded),
    }


def _module(target: str) -> _Loaded:
    import torch

    home, _, name = target.rpartition(":")
    function: Any = _imported(home)
    for part in name.split("."):
        if not hasattr(function, part):
            known = ", ".join(sorted(word for word in vars(function) if not word.startswith("_"))[:8])
            raise ExportError(f"'{home}' has no '{name}'; it has {known or 'nothing'}")
        function = getattr(function, part)
    made = function if isinstance(function, torch.nn.Module) else function()
    module, given = made if isinstance(made, tuple) and len(made) == 2 else (made, ())
    if not isinstance(module, torch.nn.Module):
        raise ExportError(
            f"'{target}' returns {type(module).__name__}; it must return a torch.nn.Module, or (module, inputs)"
        )
    module.eval()
    if isinstance(given, Mapping):
        return _Loaded(module, None, (), dict(given))
    return _Loaded(module, None, tuple(given) if isinstance(given, tuple | list) else (given,), {})


def _imported(home: str) -> Any:
    if not home.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        try:
            return importlib.import_module(home)
        except ModuleNotFoundError as error:
            if error.name != home.split(".")[0]:
                raise
            raise ExportError(f"there is no module '{home}'; name it as in an import, or its file") from error
    path = Path(home)
    if not path.is_file():
        raise ExportError(f"no such file: {home}")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _program(target: str) -> _Loaded:
    import torch

    program = torch.export.load(target)
    args, kwargs = program.example_inputs or ((), {})
    module = program.module()
    return _Loaded(module, program, tuple(args), dict(kwargs))


def _examples(inputs: Sequence[Mapping[str, Any]], data: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return example inputs: the given arrays, or else random numbers."""
    import torch

    if data:
        names = [one["name"] for one in inputs] or list(data)
        missing = [name for name in names if name not in data]
        if missing:
            raise ExportError(f"the file of inputs has no array '{missing[0]}'; it has {', '.join(data)}")
        return tuple(_tensor(data[name]) for name in names)
    generator = torch.Generator().manual_seed(0)
    made = []
    for one in inputs:
        dims, dtype = one["sizes"], getattr(torch, one["dtype"], None)
        if not isinstance(dtype, torch.dtype):
            raise ExportError(f"PyTorch has no type '{one['dtype']}', the type of input '{one['name']}'")
        if dtype.is_floating_point:
            made.append(torch.randn(dims, generator=generator).to(dtype))
        else:
            low, high = one.get("range") or (0, 1)
            made.append(torch.randint(int(low), int(high) + 1, dims, generator=generator).to(dtype))
    return tuple(made)


def _describe(loaded: _Loaded, names: Sequence[str]) -> None:
    """Determine the tensors among the inputs, and their names."""
    import torch
    from torch.utils import _pytree as pytree

    loaded.leaves, loaded.structure = pytree.tree_flatten((loaded.args, loaded.kwargs))
    loaded.tensors = [at for at, leaf in enumerate(loaded.leaves) if isinstance(leaf, torch.Tensor)]
    if not loaded.tensors:
        raise ExportError("there are no example inputs; let the function return (module, inputs), or use --inputs")
    given = list(names)
    if len(given) != len(loaded.tensors):
        if given:
            raise ExportError(f"--inputs names {len(given)} inputs, but the module gets {len(loaded.tensors)}")
        given = _argument_names(loaded)
    loaded.names = given


def _argument_names(loaded: _Loaded) -> list[str]:
    """Return names of inputs from the arguments of `forward`; tensors within one argument are numbered."""
    import torch
    from torch.utils import _pytree as pytree

    try:
        bound = inspect.signature(loaded.module.forward).bind(*loaded.args, **loaded.kwargs).arguments
    except (TypeError, ValueError):
        bound = {}
    order = {id(leaf): None for leaf in loaded.leaves if isinstance(leaf, torch.Tensor)}
    named: dict[int, str] = {}
    for name, value in bound.items():
        inner = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        for number, leaf in enumerate(inner):
            named.setdefault(id(leaf), name if len(inner) == 1 and leaf is value else f"{name}_{number}")
    if len(order) != len(loaded.tensors) or len(set(named.values())) != len(loaded.tensors):
        return [f"input_{number}" for number in range(len(loaded.tensors))]
    return [named[id(loaded.leaves[at])] for at in loaded.tensors]


def _shape(tensor: Any) -> dict[str, Any]:
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "dims": list(tensor.shape)}


def _program_dims(loaded: _Loaded) -> dict[str, list[int]]:
    """Return the axes of inputs that a program leaves dynamic."""
    import torch

    if loaded.program is None:
        return {}
    users = set(loaded.program.graph_signature.user_inputs)
    metas = [
        node.meta.get("val") for node in loaded.program.graph.nodes if node.op == "placeholder" and node.name in users
    ]
    tensors = [meta for meta in metas if isinstance(meta, torch.Tensor)]
    return {
        name: [axis for axis, extent in enumerate(meta.shape) if not isinstance(extent, int)]
        for name, meta in zip(loaded.names, tensors)
    }


def export(
    path: str, exporter: str, opset: int | None, dims: Mapping[str, Mapping[str, str]], outputs: Sequence[str]
) -> dict[str, Any]:
    """Write the module as ONNX, and return the warnings; `dims` has the names of dynamic dims by input and axis."""
    import torch

    loaded = _state["loaded"]
    stage(f"exporting with {exporter}")
    axes = {name: {int(axis): dim for axis, dim in of.items()} for name, of in dims.items()}
    common: dict[str, Any] = {
        "input_names": loaded.names,
        "output_names": list(outputs) or None,
        "opset_version": opset,
        "verbose": False,
    }
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        try:
            if exporter == "dynamo":
                _dynamo(loaded, path, axes, common)
            else:
                _torchscript(loaded, path, axes, common)
        except Exception as error:
            raise ExportError(f"{exporter} cannot export it: {_reason(error)}") from error
    return {"warnings": _told(caught)}


def _dynamo(loaded: _Loaded, path: str, axes: Mapping[str, Mapping[int, str]], common: dict[str, Any]) -> None:
    import torch
    from torch.utils import _pytree as pytree

    if loaded.program is not None:
        made = torch.onnx.export(loaded.program, dynamo=True, optimize=False, **common)
    else:
        flat: list[Any] = [None] * len(loaded.leaves)
        for name, at in zip(loaded.names, loaded.tensors):
            flat[at] = dict(axes.get(name, {})) or None
        args, kwargs = pytree.tree_unflatten(flat, loaded.structure)
        shapes = None
        if axes:
            bound = inspect.signature(loaded.module.forward).bind(*args, **kwargs).arguments
            shapes = dict(bound)
        made = torch.onnx.export(
            loaded.module,
            loaded.args,
            kwargs=loaded.kwargs,
            dynamo=True,
            optimize=False,
            dynamic_shapes=shapes,
            **common,
        )
    if made is None:
        raise ExportError("the exporter returned nothing")
    made.save(path, external_data=False)


def _torchscript(loaded: _Loaded, path: str, axes: Mapping[str, Mapping[int, str]], common: dict[str, Any]) -> None:
    import torch

    if loaded.program is not None:
        raise ExportError("a .pt2 program is exported with dynamo only")
    torch.onnx.export(
        loaded.module,
        loaded.args,
        path,
        kwargs=loaded.kwargs or None,
        dynamo=False,
        do_constant_folding=False,
        dynamic_axes={name: dict(of) for name, of in axes.items()},
        **common,
    )


def _reason(error: BaseException) -> str:
    """Return the root cause of an exporter's error in one line, with the line of the user's code."""
    chain: list[BaseException] = []
    here: BaseException | None = error
    while here is not None and here not in chain:
        chain.append(here)
        here = here.__cause__ or here.__context__
    texts = [line.strip() for one in chain for line in str(one).splitlines() if line.strip()]
    guards = [line for line in texts if line.startswith("Could not") and "data-dependent" in line]
    plain = [line for line in texts if "Failed to export" not in line and not line.startswith("<class")]
    words = (guards or plain or [type(error).__name__])[0]
    place = _last_own_line(chain)
    return f"{words[:300]}{f', at {place}' if place else ''}"


def _last_own_line(chain: Sequence[BaseException]) -> str:
    """Return the innermost line of an error's traceback outside of PyTorch and this package."""
    import torch

    homes = str(Path(torch.__file__).parent), str(Path(__file__).parents[2]), "<"
    for one in chain:
        frames = traceback.extract_tb(one.__traceback__)
        for frame in reversed(frames):
            if not frame.filename.startswith(homes) and "site-packages" not in frame.filename:
                return f"{Path(frame.filename).name}:{frame.lineno} `{frame.line}`"
    return ""


def _told(caught: Sequence[warnings.WarningMessage]) -> list[dict[str, Any]]:
    """Return the warnings of tracing: values that it treated as constants."""
    import torch

    found = [one for one in caught if issubclass(one.category, torch.jit.TracerWarning)]
    places = {(one.filename, one.lineno): str(one.message).splitlines()[0] for one in found}
    return [{"file": file, "line": line, "message": message} for (file, line), message in places.items()]


# Running


def example() -> dict[str, Any]:
    """Return the example inputs as arrays by name."""
    loaded = _state["loaded"]
    return {name: _array(loaded.leaves[at]) for name, at in zip(loaded.names, loaded.tensors)}


def run(feeds: Sequence[Mapping[str, Any]], double: bool = False) -> list[dict[str, Any]]:
    """Run the module on sets of inputs, by name.

    Each result has `outputs`, arrays in order, with `decisions`, or `refused`. With `double`, the module and the floats
    of the inputs are in float64.
    """
    loaded = _state["loaded"]
    module = _doubled(loaded) if double else loaded.module
    return [_run_one(loaded, module, feed, double) for feed in feeds]


def _doubled(loaded: _Loaded) -> Any:
    import copy

    import torch

    if loaded.program is not None:
        raise ExportError("a program has fixed types")
    if loaded.double is None:
        loaded.double = copy.deepcopy(loaded.module).to(torch.float64)
    return loaded.double


def _run_one(loaded: _Loaded, module: Any, feed: Mapping[str, Any], double: bool) -> dict[str, Any]:
    import torch
    from torch.utils import _pytree as pytree

    stage("running the module")
    leaves = list(loaded.leaves)
    for name, at in zip(loaded.names, loaded.tensors):
        if name in feed:
            tensor = _tensor(feed[name])
            leaves[at] = tensor.to(torch.float64) if double and tensor.is_floating_point() else tensor
    args, kwargs = pytree.tree_unflatten(leaves, loaded.structure)
    try:
        with torch.no_grad(), _quiet(), recorded() as decisions:
            made = module(*args, **kwargs)
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    outputs = [leaf for leaf in pytree.tree_leaves(made) if isinstance(leaf, torch.Tensor)]
    return {"outputs": [_array(output) for output in outputs], "decisions": decisions}


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _tensor(array: Any) -> Any:
    import torch

    array = np.asarray(array)
    if array.dtype.name == _BFLOAT16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    import torch

    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return np.asarray(tensor.view(torch.int16).numpy()).view(ml_dtypes.bfloat16)
    found: np.ndarray[Any, Any] = tensor.resolve_conj().resolve_neg().numpy()
    return found
