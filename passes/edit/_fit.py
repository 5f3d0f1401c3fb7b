"""Check whether one tensor can replace another."""

from surgery import UsageError, Value


def require_fit(value: Value, port: Value, what: str) -> None:
    """Raise UsageError if a tensor does not match `port` in type or dims, as far as they are known."""
    mine, theirs = value.shape, port.shape
    fits = value.type is None or port.type is None or value.type == port.type
    if fits and mine is not None and theirs is not None:
        numbers = [(a, b) for a, b in zip(mine, theirs) if isinstance(a, int) and isinstance(b, int)]
        fits = len(mine) == len(theirs) and all(a == b for a, b in numbers)
    if not fits:
        told = f"'{value.name}' is {_shown(value)}, and {what} {_shown(port)}"
        raise UsageError(told, todo="convert one of them first")


def _shown(value: Value) -> str:
    dims = "" if value.shape is None else f"[{','.join('?' if dim is None else str(dim) for dim in value.shape)}]"
    return f"{value.type if value.dtype is None else value.dtype.name.lower()}{dims}"
