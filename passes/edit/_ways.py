"""Values that replace others."""

from surgery import UsageError, Value


def require_alike(old: Value, new: Value) -> None:
    """Raise UsageError if one value certainly cannot replace another."""
    if old.dtype is not None and new.dtype is not None and old.dtype != new.dtype:
        what = f"its type is {new.dtype.name.lower()}, not {old.dtype.name.lower()}"
        raise UsageError(f"'{new.name}' cannot replace '{old.name}': {what}", todo="choose a value of that type")
    before, after = old.shape, new.shape
    if before is None or after is None:
        return
    differ = any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(before, after))
    if differ or len(before) != len(after):
        what = f"its shape is {_text(after)}, not {_text(before)}"
        raise UsageError(f"'{new.name}' cannot replace '{old.name}': {what}", todo="choose a value of that shape")


def _text(shape: tuple[int | str | None, ...]) -> str:
    return f"[{','.join('?' if dim is None else str(dim) for dim in shape)}]"
