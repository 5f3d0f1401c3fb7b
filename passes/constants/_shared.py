"""What the passes over constants agree on."""

from surgery import Value


def value_bytes(value: Value) -> int | None:
    """Return the bytes that a tensor takes in a file, as far as its type and shape are known."""
    if value.dtype is None or value.size is None or value.dtype.name in ("STRING", "UNDEFINED"):
        return None
    return int(-(-value.size * value.dtype.bitwidth // 8))
