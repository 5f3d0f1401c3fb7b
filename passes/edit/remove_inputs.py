"""Inputs that callers no longer provide."""

from typing import Any

import numpy as np

from surgery import Builder, Graph, Parity, TensorNames, UsageError, Value, graph_pass

from ._asked import asked, outermost
from ._elements import elements


@graph_pass("remove-inputs", parity=Parity.EXACT, changes=("inputs",))
def remove_inputs(graph: Graph, *, inputs: dict[str, Any] | TensorNames) -> None:
    """Remove inputs of the model and replace each by a constant.

    The value is given in the recipe: `inputs: {mask: 1, scale: [0.5, 2]}`. A single number fills the whole tensor; a
    free dim of the tensor is taken from another input that has a dim of the same name. Inputs listed without a value,
    `inputs: [w]`, must either be initializers, which keep their default value, or be unused.

    Right because the model computes the same as for a caller who passed that value: it is compared with the original at
    that value.

    Options:
        inputs: The inputs with their values, or inputs with a default value, by name or glob.

    Example:
        # options: {inputs: {s: 2}}
        g (float[n,4] x, float[4] s) => (float[n,4] y) { y = Mul(x, s) }
    """
    given = inputs if isinstance(inputs, dict) else dict.fromkeys(inputs)
    ports = graph.inputs()
    found = {
        value: bound
        for name, bound in given.items()
        for value in graph.tensors([name], among=ports, kind="input of the model")
    }
    staying = [value for value in ports if value not in found]
    for value, bound in found.items():
        if bound is None and value.is_used and not value.is_overridable:
            raise UsageError(f"'{value.name}' has no default value", todo=f"give one: inputs: {{{value.name}: 0}}")
        readers = outermost(graph, value.consumers)
        with asked(graph, readers[0] if readers else None) as new:
            if bound is None or not value.is_used:
                new.drop_input(value)
            else:
                _bind(new, value, bound, staying)


def _bind(new: Builder, value: Value, given: Any, others: list[Value]) -> None:
    """Bind an input to a constant value."""
    if value.dtype is None or value.shape is None:
        raise UsageError(f"type or dims of '{value.name}' are not declared, so it can be bound to nothing")
    array, shape = elements(given, value.dtype.numpy()), value.static_shape
    if shape is None and array.shape == ():
        new.replace(value, _filled(new, value, array, others))
        new.drop_input(value)
        return
    if array.shape not in ((), shape):
        wanted = ", ".join(str(dim) for dim in value.shape)
        raise UsageError(f"the value of '{value.name}' has the dims {list(array.shape)}, not [{wanted}]")
    whole = np.broadcast_to(array, shape or ()).copy()
    new.drop_input(value, whole)
    if value.is_overridable:
        # The original has its own default value, which is not the one to compare with.
        new.relate_input(value, "bound = Identity(given)", given=whole)


def _filled(new: Builder, value: Value, number: np.ndarray[Any, Any], others: list[Value]) -> Value:
    """Build a tensor filled with one number in the dims of an input, and declare the relation for verification."""
    if value.graph.opset < 8:
        todo = "fix the dims with 'set-dims', or run upgrade-opset before this step"
        raise UsageError(f"'{value.name}' has free dims, and nothing fills such a tensor before opset 8", todo=todo)
    lines: list[str] = []
    names: dict[str, Any] = {"number": number}
    dims: list[Value] = []
    for axis, dim in enumerate(value.shape or ()):
        if isinstance(dim, int):
            extent = names[f"d{axis}"] = np.array([dim])
            dims.append(new.constant(extent, "dim"))
            continue
        source, place = _with_dim(value, dim, others)
        lines += [f"s{axis} = Shape(x{axis})", f"d{axis} = Gather(s{axis}, i{axis})"]
        names |= {f"x{axis}": source, f"i{axis}": np.array([place])}
        dims.append(new.node("Gather", new.node("Shape", source), new.constant(np.array([place]), "axis")))
    listed = ", ".join(f"d{axis}" for axis in range(len(dims)))
    lines += [f"dims = Concat<axis = 0>({listed})", "filled = Expand(number, dims)"]
    new.relate_input(value, "\n".join(lines), **names)
    return new.node("Expand", new.constant(number, value.name), new.node("Concat", *dims, axis=0))


def _with_dim(value: Value, dim: str | None, others: list[Value]) -> tuple[Value, int]:
    """Find another input that has a dim of the same name, and the axis."""
    for other in others:
        if dim is not None and dim in (other.shape or ()):
            return other, (other.shape or ()).index(dim)
    free = "a dim without a name" if dim is None else f"the free dim '{dim}', which no other input has"
    raise UsageError(f"'{value.name}' has {free}", todo="fix it first with 'set-dims'")
