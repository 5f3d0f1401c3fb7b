"""What the passes over constants agree on."""

from surgery import Node, Value

RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


def in_training(node: Node) -> bool:
    """Tell whether a Dropout drops anything: it is in training mode, or nobody knows.

    The mode is an attribute that must say so before opset 7, absent from then on, and an input since opset 12.
    """
    if node.opset < 7:
        return not node.has_attr("is_test") or node.attr("is_test") == 0
    mode = node.input(2)
    return mode is not None and mode.scalar is not False


def is_large(value: Value, limit: int) -> bool:
    """Tell whether a tensor is known to take more than `limit` bytes."""
    size = value_bytes(value)
    return size is not None and size > limit


def value_bytes(value: Value) -> int | None:
    """Return the bytes that a tensor takes in a file, as far as its shape is known."""
    if value.dtype is None or value.size is None or value.dtype.name == "STRING":
        return None
    return int(-(-value.size * value.dtype.bitwidth // 8))
