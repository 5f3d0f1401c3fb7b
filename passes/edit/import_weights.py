"""Weights from a file."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Literal

from surgery import Checkpoint, FilePath, Graph, Parity, Renames, TensorNames, UsageError, Value, graph_pass

from ._bits import same_bits


@graph_pass("import-weights", parity=Parity.INTENDED)
def import_weights(
    graph: Graph,
    *,
    file: FilePath,
    names: Renames | None = None,
    transpose: TensorNames | None = None,
    unknown: Literal["error", "ignore"] = "error",
) -> None:
    r"""Replace the elements of initializers by tensors of a file: .safetensors, .npz, .pt, .gguf, an index of shards.

    A tensor of the file replaces the initializer of the same name, which must have the same type and dims; otherwise
    the step fails and nothing is imported. Initializers that are not in the file are kept, and so are those with equal
    bits. The file is mapped, not read, and copied when the model is saved.

    This changes the results, so they are not compared; the model must run.

    Options:
        file: the file with the tensors.
        names: names in the model by names in the file, where they differ; globs and regular expressions are allowed,
            `{'bert.*': '*'}`.
        transpose: initializers, by name or glob, that hold the transpose of the tensor in the file, as the weight of
            a MatMul does for a Linear layer of PyTorch.
        unknown: what to do with tensors of the file for which the model has no initializer.
    """
    tensors = graph.read_tensors(file)
    told = (names or Renames()).expand(f"tensor in {file.name}", tensors.entries)
    known = _initializers(graph)
    among = [value for values in known.values() for value in values]
    turned = set(graph.tensors(transpose, among=among, kind="initializer") if transpose else ())
    targets: dict[Value, str] = {}
    for name in sorted(tensors.entries):
        wanted = told.get(name, name)
        if wanted not in known and unknown == "ignore":
            continue
        if wanted not in known:
            graph.tensors([wanted], among=among, kind="initializer")
        if len(known[wanted]) > 1:
            raise UsageError(f"initializers of several subgraphs are called '{wanted}'", todo="rename them first")
        target = known[wanted][0]
        if targets.setdefault(target, name) != name:
            raise UsageError(f"'{targets[target]}' and '{name}' of {file.name} would both go into '{wanted}'")
    for target, name in targets.items():
        _require_alike(target, name, tensors, target in turned)
    with graph.site() as new:
        for target, name in targets.items():
            tensor = tensors.tensor(name)
            elements = tensor.numpy().T if target in turned else tensor.numpy()
            held = target.held
            if held is not None and not same_bits(held.numpy(), elements):
                new.set_tensor(target, elements if target in turned else tensor)


def _initializers(graph: Graph) -> dict[str, list[Value]]:
    """List the initializers of all scopes by name, including those that a caller may override."""
    found: dict[str, list[Value]] = defaultdict(list)
    for scope in graph.scopes:
        for value in scope.initializers.values():
            found[value.name or ""].append(Value(graph, value))
    return dict(found)


def _require_alike(target: Value, name: str, tensors: Checkpoint, turned: bool) -> None:
    """Raise UsageError if a tensor of a file does not fit an initializer."""
    entry = tensors.entries[name]
    dims = entry.dims[::-1] if turned else entry.dims
    if (target.dtype, _dims(target)) == (entry.dtype, dims):
        return
    hint = f"name it under 'transpose: [{target.name}]'" if _dims(target) == dims[::-1] else None
    raise UsageError(
        f"'{name}' of {tensors.path.name} is {_shown(entry.dtype, entry.dims)}, "
        f"and the initializer '{target.name}' {_shown(target.dtype, _dims(target))}",
        todo=hint,
    )


def _dims(value: Value) -> tuple[int, ...]:
    """Return the dims of the tensor of an initializer."""
    tensor = value.held
    return () if tensor is None else tuple(tensor.shape.numpy())


def _shown(dtype: Any, dims: Iterable[Any]) -> str:
    return f"{dtype.name.lower()}[{','.join(map(str, dims))}]"
