"""Helpers shared by the passes over constants."""

from surgery import Value


def value_bytes(value: Value) -> int | None:
    """Return the bytes of a tensor in a file, or None if its type or shape is not known."""
    if value.dtype is None or value.size is None or value.dtype.name in ("STRING", "UNDEFINED"):
        return None
    return int(-(-value.size * value.dtype.bitwidth // 8))
