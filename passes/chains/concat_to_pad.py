"""Concats with tensors of equal elements."""

from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

from ._shared import has_parameters

Array = np.ndarray[Any, Any]

MOST = 1 << 22
"""Maximum number of elements of a constant that is examined."""

FIRST_WITH_INPUTS = 11
"""The opset from which Pad reads the amounts and the element from inputs, and pads other types than floats."""


@graph_pass("concat-to-pad", parity=Parity.EXACT)
def concat_to_pad(graph: Graph) -> None:
    """Turn a Concat of a tensor and tensors whose elements are all the same number, such as zeros, into a Pad.

    Right because a Pad of mode "constant" adds elements of one value before and after those of its input, along any
    axis; the other dims are the same for all inputs of a Concat. The added tensors are constants, or are filled by
    ConstantOfShape or an Expand of one element, and have a known extent along the axis. All must have the same element;
    0.0 and -0.0 differ. It saves the constants, the nodes that fill them, and the computation of their shape. Vectors
    of integers stay: they are shapes, which passes and runtimes read.

    Example:
        g (float[N,2,4] x) => (float[N,5,4] y) <float[1,3,4] zeros = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}> {
            y = Concat<axis = 1>(x, zeros)
        }
    """
    for node in graph.nodes("Concat"):
        elements = [None if value is None else element_of(value) for value in node.inputs]
        places = [place for place, element in enumerate(elements) if element is None]
        has_one_type = len({value.dtype for value in node.inputs if value is not None}) == 1
        if len(elements) > 1 and len(places) == 1 and has_one_type:
            with graph.site(node) as new:
                _pad(node, places[0], [element for element in elements if element is not None], new)


def element_of(value: Value) -> Array | None:
    """Return the element that all elements of a tensor are equal to, as an array of one; None if there is none."""
    node = value.producer
    if value.is_constant:
        tensor = value.tensor
        array = None if tensor is None or not 0 < tensor.size <= MOST else value.constant
        return None if array is None or array.dtype == object else _single(array)
    if node is None or node.op not in ("ConstantOfShape", "Expand") or has_parameters(node):
        return None
    if node.op == "Expand":
        data = node.required_input(0)
        return element_of(data) if data.is_constant and data.size == 1 else None
    filled = node.attr("value")
    return np.zeros(1, np.float32) if filled is None else np.asarray(filled.numpy()).reshape(1)


def _single(array: Array) -> Array | None:
    flat = np.ascontiguousarray(array).reshape(-1)
    bits = flat.view(np.uint8).reshape(flat.size, -1)
    return flat[:1] if bool((bits == bits[0]).all()) else None


def _pad(node: Node, place: int, elements: list[Array], new: Builder) -> None:
    data, opset = node.required_input(place), node.opset
    new.require(opset >= 4 and not node.attributes["axis"].is_ref(), "the axis is not known")
    new.require(len({element.tobytes() for element in elements}) == 1, "the added elements differ")
    shapes = [value.shape for value in node.inputs if value is not None and value != data]
    new.require(all(shape is not None for shape in shapes), "the added tensors have no known rank")
    rank = max(len(shape) for shape in shapes if shape is not None)
    new.require(rank > 1 or data.dtype is None or data.dtype.is_floating_point(), "a vector of integers may be a shape")
    axis = node.attr("axis") % rank
    extents = [shape[axis] for shape in shapes if shape is not None]
    known = [extent for extent in extents if isinstance(extent, int)]
    new.require(len(known) == len(extents), "the number of added elements is not known")
    new.require(
        new.target.computes("Pad", data.dtype, opset) and (opset >= FIRST_WITH_INPUTS or _is_float(data)),
        "runtimes do not pad this type",
    )
    pads = [0] * (2 * rank)
    pads[axis], pads[rank + axis] = sum(known[:place]), sum(known[place:])
    new.replace(node.outputs[0], _padded(data, pads, elements[0], opset, new))


def _is_float(value: Value) -> bool:
    return value.dtype is not None and value.dtype.name == "FLOAT"


def _padded(data: Value, pads: list[int], element: Array, opset: int, new: Builder) -> Value:
    if opset < FIRST_WITH_INPUTS:
        return new.node("Pad", data, pads=pads, value=float(element[0]), mode="constant")
    is_zero = not any(element.tobytes())
    added = None if is_zero else new.constant(element.reshape(()), "element")
    return new.node("Pad", data, new.constant(np.array(pads, np.int64), "pads"), added, mode="constant")
