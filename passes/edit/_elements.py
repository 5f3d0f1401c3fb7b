"""Constants given in a recipe."""

from typing import Any

import numpy as np

from surgery import UsageError


def elements(given: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Convert a number or (nested) lists to an array; UsageError if the type cannot hold it."""
    try:
        array = np.asarray(given)
        made = array.astype(dtype)
    except (TypeError, ValueError, OverflowError):
        array = made = np.asarray(None)
    fits = array.dtype.kind in "biuf" and (array.dtype.kind == "f" or np.array_equal(array, made))
    if not fits or (array.dtype.kind == "f" and made.dtype.kind in "biu"):
        raise UsageError(
            f"{given} is not a value of the type {dtype.name}", todo="write numbers that the type can hold"
        )
    return made
