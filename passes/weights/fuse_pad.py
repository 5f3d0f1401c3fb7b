"""Padding before a convolution or a pooling operator."""

import numpy as np

from surgery import Builder, Graph, Node, Parity, Refusal, Value, graph_pass

CONVOLUTIONS = {"Conv": None, "ConvInteger": 2, "QLinearConv": 2}
"""The operators that pad with zero, each with the position of its zero point."""

POOLS = ("AveragePool", "MaxPool")

NOT_NEGATIVE = {"Abs", "Exp", "HardSigmoid", "Relu", "Sigmoid", "Softmax", "Softplus", "Sqrt"}
"""Operators whose results are zero or positive."""


@graph_pass("fuse-pad", parity=Parity.CLOSE)
def fuse_pad(graph: Graph) -> None:
    """Merge a Pad into the Conv, AveragePool or MaxPool that reads it.

    Right for Conv because it pads with zeros (the integer forms with their zero point), so the Pad must add exactly
    these, around the spatial axes only. Right for AveragePool if the average includes the padding. Right for MaxPool if
    no padded element can be the maximum: it is minus infinity, or it is zero and the input is not negative. A Pad that
    crops or has other consumers stays.

    Example:
        g (float[N,1,4] x) => (float[N,1,4] y) <int64[6] around = {0, 0, 1, 0, 0, 1}, float[1,1,3] w = {1, 2, 3}> {
            p = Pad(x, around)
            y = Conv(p, w)
        }
    """
    for pad in graph.nodes("Pad"):
        readers = pad.outputs[0].consumers
        if not any(reader.op in (*CONVOLUTIONS, *POOLS) for reader in readers):
            continue
        with graph.site(pad) as new:
            new.require(
                not pad.outputs[0].is_output and all(_is_window(reader, pad) for reader in readers),
                "the padded tensor is read by others",
            )
            for reader in readers:
                _fuse(pad, reader, new)


def _is_window(reader: Node, pad: Node) -> bool:
    places = [place for place, value in enumerate(reader.inputs) if value == pad.outputs[0]]
    return reader.op in (*CONVOLUTIONS, *POOLS) and places == [0] and reader.scope is pad.scope


def _fuse(pad: Node, reader: Node, new: Builder) -> None:
    new.require(pad.attr("mode", "constant") == "constant", "the Pad does not add a constant")
    own = _own_padding(reader, new)
    added = _added(pad, len(own) // 2, new)
    if reader.op in POOLS:
        _require_pool(pad, reader, own, added, new)
    else:
        _require_zero(pad, reader, new)
    new.set_attribute(reader, "auto_pad", None)
    new.set_attribute(reader, "pads", [mine + more for mine, more in zip(own, added)])
    if reader.op == "AveragePool":
        new.set_attribute(reader, "count_include_pad", 1)
    new.set_input(reader, 0, pad.required_input(0))


def _own_padding(reader: Node, new: Builder) -> list[int]:
    """Return the reader's own padding: all starts, then all ends."""
    extents = reader.attr("kernel_shape")
    if extents is None:
        weight = reader.required_input(3 if reader.op == "QLinearConv" else 1)
        extents = [0] * (weight.rank - 2) if weight.rank is not None else None
    if extents is None:
        raise Refusal("the number of spatial axes is not known")
    mode = reader.attr("auto_pad", "NOTSET")
    new.require(mode in ("NOTSET", "VALID"), "the padding follows the size of the input")
    none = [0] * (2 * len(extents))
    return none if mode == "VALID" else list(reader.attr("pads", none))


def _added(pad: Node, spatial: int, new: Builder) -> list[int]:
    """Return the padding of a Pad in the order of the reader; refuse if it pads the batch or the channels."""
    amounts = _amounts(pad)
    rank = spatial + 2
    axes = _axes(pad, rank)
    new.require(len(amounts) == 2 * len(axes), "the Pad is not for tensors of this rank")
    starts, ends = [0] * rank, [0] * rank
    for position, axis in enumerate(axes):
        starts[axis], ends[axis] = amounts[position], amounts[position + len(axes)]
    new.require(not any([*starts[:2], *ends[:2]]), "the Pad adds to the batch or to the channels")
    new.require(min(amounts, default=0) >= 0, "the Pad crops")
    return [*starts[2:], *ends[2:]]


def _amounts(pad: Node) -> list[int]:
    if pad.opset < 11:
        return list(pad.attr("pads" if pad.opset > 1 else "paddings", []))
    amounts = pad.required_input(1).constant
    if amounts is None:
        raise Refusal("the pads of the Pad are not constant")
    return [int(amount) for amount in amounts]


def _axes(pad: Node, rank: int) -> list[int]:
    value = pad.input(3)
    if value is None:
        return list(range(rank))
    axes = value.constant
    if axes is None:
        raise Refusal("the axes of the Pad are not constant")
    return [int(axis) % rank for axis in axes]


def _filling(pad: Node) -> float | int:
    """Return the number that a Pad adds."""
    if pad.opset < 11:
        return float(pad.attr("value", 0.0))
    value = pad.input(2)
    if value is None:
        return 0
    found: float | int | None = value.scalar
    if found is None:
        raise Refusal("the number that the Pad adds is not constant")
    return found


def _require_zero(pad: Node, reader: Node, new: Builder) -> None:
    position = CONVOLUTIONS[reader.op]
    zero = None if position is None else reader.input(position)
    expected = 0 if zero is None else zero.scalar
    new.require(expected is not None and _filling(pad) == expected, "the Pad does not add zeros")


def _require_pool(pad: Node, pool: Node, own: list[int], added: list[int], new: Builder) -> None:
    kernel = list(pool.attr("kernel_shape"))
    new.require(
        not pool.attr("ceil_mode") and set(pool.attr("dilations", [1])) == {1}, "the windows are not plain ones"
    )
    # A window that contains only padding has no average and no maximum; ONNX Runtime does not accept it.
    fits = all(mine + more < extent for mine, more, extent in zip(own, added, kernel * 2))
    new.require(fits, "a window could be entirely in the padding")
    if pool.op == "AveragePool":
        new.require(_filling(pad) == 0, "the Pad does not add zeros")
        new.require(pool.opset >= 7, "before opset 7 averages never include the padding")
        new.require(not any(own) or pool.attr("count_include_pad"), "the average includes only a part of the padding")
        return
    new.require(len(pool.outputs) < 2 or not pool.outputs[1].is_used, "the positions of the maxima are read")
    filling = _filling(pad)
    loses = filling == -np.inf or (filling == 0 and _is_not_negative(pad.required_input(0)))
    new.require(loses, "the padding could be the maximum")


def _is_not_negative(value: Value) -> bool:
    producer = value.producer
    if producer is None:
        return False
    if producer.op != "Clip":
        return producer.op in NOT_NEGATIVE
    if producer.opset < 11:
        return bool(producer.attr("min") >= 0)
    low = producer.input(1)
    return low is not None and low.scalar is not None and bool(low.scalar >= 0)
