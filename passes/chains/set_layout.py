"""Another layout of inputs and outputs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from surgery import Builder, Graph, Node, Parity, TensorNames, UsageError, Value, graph_pass

from ._shared import has_parameters
from ._turned import Region, push, turn

OTHER = {"NHWC": "NCHW", "NCHW": "NHWC", "NDHWC": "NCDHW", "NCDHW": "NDHWC", "NWC": "NCW", "NCW": "NWC"}
"""The layout that a port has before it is changed to this one."""


@graph_pass("set-layout", parity=Parity.CLOSE, changes=("dims",))
def set_layout(
    graph: Graph,
    *,
    layout: Literal["NHWC", "NCHW", "NDHWC", "NCDHW", "NWC", "NCW"],
    inputs: TensorNames = TensorNames(),  # noqa: B008 - it is a tuple
    outputs: TensorNames = TensorNames(),  # noqa: B008
) -> None:
    """Change the layout of inputs and outputs to channels-last (NHWC) or channels-first (NCHW).

    Right because a Transpose at the port restores the old layout for the model, and no element is computed. If a
    Transpose reads or produces the port, the two become one, or none if they cancel, as at the input of a model that
    was exported from TensorFlow. Elementwise operators between two Transposes that cancel are transposed; this can
    change the last bit, because the kernel of Log, for example, rounds an element by its place in the buffer. Other
    Transposes are not moved into the model: a Conv is channels-first in ONNX, so one stays at an NHWC input of a
    convolutional model, and one at an output that is still an image.

    Options:
        layout: the new layout; the ports must have the opposite layout of the same rank.
        inputs: the inputs, by names or globs.
        outputs: the outputs, by names or globs.

    Example:
        # options: {layout: NCHW, inputs: x}
        g (float[N,8,8,3] x) => (float[N,3,8,8] y) <float[3] m = {1, 2, 3}>
        {
            a = Sub(x, m)
            b = Transpose<perm = [0, 3, 1, 2]>(a)
            y = Relu(b)
        }
    """
    if not inputs and not outputs:
        raise UsageError("nothing to do: set 'inputs' or 'outputs'")
    old = OTHER[layout]
    perm, back = ([a.index(letter) for letter in b] for a, b in ((old, layout), (layout, old)))
    taken = graph.tensors(inputs, among=graph.inputs(), kind="input of the model")
    given = graph.tensors(outputs, among=graph.outputs(), kind="output of the model")
    for value in (*taken, *given):
        _require_image(value, layout)
    for value in taken:
        _turn_input(graph, value, perm, back)
    for value in given:
        _turn_output(graph, value.name, perm, back)


def _require_image(value: Value, layout: str) -> None:
    if value.dtype is None:
        raise UsageError(f"'{value.name}' is not a tensor and has no layout")
    if value.rank != len(layout):
        known = "is not known" if value.rank is None else f"is {value.rank}"
        raise UsageError(f"the rank of '{value.name}' {known}, and {layout} is a layout of {len(layout)} dims")
    if value.is_input and value.is_output:
        raise UsageError(f"'{value.name}' is an input and an output", todo="insert an Identity between them")
    if value.is_overridable:
        raise UsageError(f"the input '{value.name}' has a default", todo="make it a constant or a plain input before")


def _turn_input(graph: Graph, port: Value, perm: list[int], back: list[int]) -> None:
    with _asked(graph, next(iter(graph.below([port])), None)) as new:
        inner = new.node("Transpose", port, perm=back)
        readers = [node for node in port.consumers if node.op == "Transpose" and not has_parameters(node)]
        if len(readers) < len(port.consumers):
            new.replace(port, inner)
        for reader in readers:
            axes = [back[axis] for axis in reader.attr("perm") or range(len(perm))[::-1]]
            new.replace(reader.outputs[0], _transposed(port, axes, new))
        new.set_port(port, dims=_permuted(port, perm))
        new.relate_input(port, f"x = Transpose<perm={back}>(y)", inverse=f"y = Transpose<perm={perm}>(x)", y=port)
    settled: set[Node] = set()
    for reader in port.consumers:
        if reader.op == "Transpose":
            push(graph, reader, settled)


def _turn_output(graph: Graph, name: str, perm: list[int], back: list[int]) -> None:
    port = next(value for value in graph.outputs() if value.name == name)
    maker, source, axes = port.producer, port, perm
    if maker is not None and maker.op == "Transpose" and not has_parameters(maker):
        before = maker.attr("perm") or list(range(len(perm)))[::-1]
        source, axes = maker.required_input(0), [before[axis] for axis in perm]
    with _asked(graph, None) as new:
        made = _transposed(source, axes, new)
        new.set_port(made, dims=_permuted(port, perm))
        new.drop_output(port)
        new.add_output(made, name)
        if made != source:
            new.relate_output(name, f"y = Transpose<perm={perm}>(x)", x=port)
    region = Region(back)
    if maker is not None and not maker.is_removed and region.turned(maker) is not None:
        turn(graph, region, maker)


@contextmanager
def _asked(graph: Graph, anchor: Node | None) -> Iterator[Builder]:
    """Open a site; if it is refused, raise UsageError with the reason."""
    before = len(graph.refusals)
    with graph.site(anchor) as new:
        yield new
    for refused in graph.refusals[before:]:
        raise UsageError(refused.reason)


def _transposed(value: Value, axes: list[int], new: Builder) -> Value:
    return value if axes == sorted(axes) else new.node("Transpose", value, perm=axes)


def _permuted(value: Value, perm: list[int]) -> list[int | str | None]:
    dims = value.declared_dims or ()
    return [dims[axis] for axis in perm]
