"""The elements of a weight."""

from collections.abc import Iterator
from typing import Any, Literal

from surgery import FilePath, Graph, Keeps, Parity, UsageError, Value, data_type, graph_pass, literal_tensor

from ._asked import asked
from ._bits import same_bits


@graph_pass("set-initializer", parity=Parity.INTENDED, changes=("types", "dims"))
def set_initializer(
    graph: Graph,
    *,
    name: str,
    value: Any = None,
    file: FilePath | None = None,
    entry: str | None = None,
    allow: tuple[Literal["dtype", "dims"], ...] = (),
    dtype: str | None = None,
    keeps: Keeps = "nothing",
) -> None:
    """Set the elements of an initializer or a Constant node, inline or from a file.

    They must have its type and dims, unless `allow` permits others; dependent types and dims are then declared anew. A
    file is mapped, not read, and the needed part of it is copied when the model is saved. A single inline number fills
    the whole tensor.

    This changes the results, unless `keeps` declares otherwise.

    Example:
        # options: {name: w, value: [3, 4]}
        g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }

    Options:
        name: the initializer, also in a subgraph, or the output of a Constant node.
        value: a number, a string, true or false, or lists of them at any depth.
        file: a .npy, .npz or .safetensors file, or the index of shards.
        entry: the name of the tensor in the file; by default that of the initializer, or the only one.
        allow: the properties that may differ from those of the initializer.
        dtype: the type for the elements of `value`, such as float16, if another type is allowed.
        keeps: the promise about the results, which is verified; by default, results are not compared.
    """
    if (value is None) == (file is None):
        raise UsageError("give either a value or a file")
    if dtype is not None and (file is not None or "dtype" not in allow):
        raise UsageError("dtype requires permission to change the type", todo="add 'allow: [dtype]'")
    target = graph.tensors([name], among=list(_constants(graph)), kind="initializer or Constant")[0]
    held: Any = target.held if target.is_initializer else target.tensor
    if file is not None:
        made = _from_file(graph, file, entry, name)
    else:
        fill = None if "dims" in allow else tuple(held.shape)
        made = literal_tensor(value, held.dtype if dtype is None else data_type(dtype), fill)
    if held.dtype != made.dtype and "dtype" not in allow:
        _refuse(name, "dtype", held.dtype.name.lower(), made.dtype.name.lower())
    if tuple(held.shape) != tuple(made.shape) and "dims" not in allow:
        _refuse(name, "dims", list(held.shape), list(made.shape))
    if _same(held, made):
        return
    with asked(graph) as new:
        new.outdates(target)
        if target.is_initializer:
            new.set_tensor(target, made)
        elif (node := target.producer) is not None:
            for attribute in node.attributes:
                new.set_attribute(node, attribute, None)
            new.set_attribute(node, "value", made)


def _same(held: Any, made: Any) -> bool:
    """Return whether two tensors are bit-identical."""
    alike = (held.dtype, tuple(held.shape)) == (made.dtype, tuple(made.shape))
    return alike and same_bits(held.numpy(), made.numpy())


def _refuse(name: str, what: Literal["dtype", "dims"], has: object, given: object) -> None:
    raise UsageError(
        f"'{name}' has the {what} {has}, and the elements {given}", todo=f"'allow: [{what}]' lets them differ"
    )


def _constants(graph: Graph) -> Iterator[Value]:
    """Yield the initializers of all scopes, including those that a caller can override, and results of Constants."""
    for scope in graph.scopes:
        yield from (Value(graph, value) for value in scope.initializers.values())
    for node in graph.nodes("Constant"):
        if node.outputs[0].tensor is not None:
            yield node.outputs[0]


def _from_file(graph: Graph, file: FilePath, entry: str | None, name: str) -> Any:
    """Return a tensor of a file without reading its elements."""
    tensors = graph.read_tensors(file)
    known = list(tensors.entries)
    wanted = entry if entry is not None else (known[0] if len(known) == 1 else name)
    if wanted not in tensors.entries:
        listed = f"it has {', '.join(known[:8])}{' ...' if len(known) > 8 else ''}" if known else "it has none"
        raise UsageError(f"there is no tensor '{wanted}' in it", where=str(file), todo=f"{listed}; name one by 'entry'")
    return tensors.tensor(wanted)
