"""The requests to `set-dims`: names and numbers for dims of the inputs and outputs of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from surgery import Graph, UsageError, Value

from ._ports import Dim

Wish = int | str


@dataclass(frozen=True)
class Freed:
    """A dim of an input with a fixed size, and its requested name or size."""

    port: Value
    axis: int
    size: int
    wish: Wish


class Wishes:
    """The requests, with each dim once.

    `names` maps named dims to their new name or size, wherever they are declared. `declared` holds the dims of ports
    that had open dims. `freed` lists the fixed dims that change.
    """

    def __init__(
        self,
        graph: Graph,
        dims: Mapping[str, Wish],
        ports: Mapping[str, Sequence[Wish | None]],
        batch: Wish | None = None,
    ) -> None:
        self.names: dict[str, Wish] = {}
        self.declared: dict[Value, list[Dim]] = {}
        self.freed: list[Freed] = []
        if batch is not None:
            leading = _leading(graph, dims)
            dims = dims if leading is None else {**dims, leading: batch}
            ports = ports if leading is not None else {**_open_batches(graph, batch), **ports}
        if not dims and not ports:
            raise UsageError("nothing to do: set 'dims', 'ports' or 'rebatch'")
        self._dims = dict(dims)
        for wish in (*dims.values(), *(wish for wishes in ports.values() for wish in wishes if wish is not None)):
            _require_dim(wish)
        asked = {value: wishes for name, wishes in ports.items() for value in _ports(graph, name)}
        inputs = graph.inputs()
        for value in dict.fromkeys([*inputs, *graph.outputs()]):
            self._read(value, asked.get(value), is_input=value in inputs)
        self._require_known(graph)

    def _read(self, value: Value, asked: Sequence[Wish | None] | None, *, is_input: bool) -> None:
        """Record the requests for the dims of one port."""
        old = value.declared_dims
        if old is None:
            if asked is not None:
                raise UsageError(f"the rank of '{value.name}' is not known", todo="declare its shape first")
            return
        if asked is not None and len(asked) != len(old):
            raise UsageError(f"'{value.name}' has {len(old)} dims, {_shown(old)}, and {len(asked)} are given")
        new = list(old)
        for axis, dim in enumerate(old):
            wish = None if asked is None else asked[axis]
            if isinstance(dim, str):
                self._rename(value, dim, wish)
            elif dim is None:
                new[axis] = wish
            elif is_input:
                self._free(value, axis, dim, wish)
            elif wish not in (None, dim):
                what = f"dim {axis} of the output '{value.name}' is {dim}, and follows from the inputs"
                raise UsageError(what, todo="set the dims of the inputs")
        if tuple(new) != old:
            self.declared[value] = new

    def _rename(self, value: Value, dim: str, wish: Wish | None) -> None:
        if wish is None or wish == dim:
            return
        if not any(character.isalnum() for character in dim):
            raise UsageError(f"the dim '{dim}' of '{value.name}' has no name")
        if _is_expression(dim):
            raise UsageError(f"the dim '{dim}' of '{value.name}' follows from others", todo="set the dims in it")
        if self.names.setdefault(dim, wish) != wish or self._dims.get(dim, wish) != wish:
            other = self._dims.get(dim, self.names[dim])
            raise UsageError(f"the dim '{dim}' would be {other} and {wish}", todo="a dim has the same size everywhere")

    def _free(self, value: Value, axis: int, size: int, wish: Wish | None) -> None:
        if wish is None and axis == 0:
            wish = self._dims.get(str(size))
        if wish not in (None, size):
            assert wish is not None
            self.freed.append(Freed(value, axis, size, wish))

    def _require_known(self, graph: Graph) -> None:
        """Raise UsageError for names and numbers of dims that do not occur."""
        leading = {str(dims[0]) for value in graph.inputs() if (dims := value.declared_dims)}
        known = dict.fromkeys(graph.dim_names())
        for name, wish in self._dims.items():
            if name in known:
                self.names[name] = wish
            elif name not in leading:
                there = ", ".join([name for name in known if name.isidentifier()])
                what = f"no input begins with a dim of {name}" if name.isdecimal() else f"there is no dim '{name}'"
                raise UsageError(what, todo=f"the dims of the model: {there}" if there else "no dim has a name")


def _leading(graph: Graph, dims: Mapping[str, Wish]) -> str | None:
    """Return the batch, which is the first dim of the first input with a shape, as a name or number; None if open."""
    shapes = [found for value in graph.inputs() if (found := value.declared_dims)]
    if not shapes:
        raise UsageError("no input has a declared shape with a batch", todo="declare their shapes first")
    first = shapes[0][0]
    if first is None:
        return None
    if str(first) in dims:
        raise UsageError(f"'dims' and 'rebatch' both set {first}", todo="set it once")
    return str(first)


def _open_batches(graph: Graph, batch: Wish) -> dict[str, list[Wish | None]]:
    """Return the requests for the first dims of inputs that are neither a name nor a number."""
    shapes = {value.name: found for value in graph.inputs() if (found := value.declared_dims)}
    return {name: [batch, *[None] * (len(dims) - 1)] for name, dims in shapes.items() if dims[0] is None}


def _ports(graph: Graph, name: str) -> Iterable[Value]:
    ports = [*graph.inputs(), *graph.outputs()]
    return graph.tensors([name], among=ports, kind="input or output of the model")


def _require_dim(wish: Wish) -> None:
    """Raise UsageError unless a wish is a valid size or name."""
    if isinstance(wish, int) and wish < 1:
        raise UsageError(f"a dim cannot be {wish}", todo="use a size of at least 1, or a name")
    if isinstance(wish, str) and not wish.isidentifier():
        raise UsageError(f"'{wish}' is not a valid name of a dim", todo="use letters, digits and _")


def _is_expression(dim: str) -> bool:
    """Return whether a dim is an expression in other dims, such as `2*sequence`."""
    return not dim.isidentifier() and any(sign in dim for sign in "+*/()%")


def _shown(dims: Sequence[Dim]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"
