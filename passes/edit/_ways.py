"""Values that take the place of others."""

from surgery import UsageError, Value


def require_alike(old: Value, new: Value) -> None:
    """Raise UsageError where one value can surely not take the place of another."""
    if old.dtype is not None and new.dtype is not None and old.dtype != new.dtype:
        what = f"{new.dtype.name.lower()} would take the place of {old.dtype.name.lower()}"
        raise UsageError(f"'{new.name}' cannot replace '{old.name}': {what}", todo="choose a value of that type")
    before, after = old.shape, new.shape
    if before is None or after is None:
        return
    differ = any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(before, after))
    if differ or len(before) != len(after):
        what = f"{_told(after)} would take the place of {_told(before)}"
        raise UsageError(f"'{new.name}' cannot replace '{old.name}': {what}", todo="choose a value of that shape")


def _told(shape: tuple[int | str | None, ...]) -> str:
    return f"[{','.join('?' if dim is None else str(dim) for dim in shape)}]"
