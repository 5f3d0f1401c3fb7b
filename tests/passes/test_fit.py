"""A weight that takes in a factor, block by block, is what one calculation in float64 makes of the whole of it."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from surgery.passes.weights._shared import BLOCK, ROUNDOFF, fit

from surgery import Refusal

Array = np.ndarray[Any, Any]
SIDE = BLOCK // 5


def weight(rows: int, columns: int, dtype: Any, order: str) -> Array:
    rng = np.random.default_rng(3)
    drawn = rng.uniform(0.5, 2, (rows, columns)) * rng.choice([-1, 1], (rows, columns))
    return np.asarray(drawn.astype(dtype), order=order)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("rows", "columns"), [(0, 3), (3, 0), (1, 1), (7, 5), (SIDE, 7), (7, SIDE), (2 * BLOCK + 3, 1), (1, 2 * BLOCK + 3)]
)
def test_a_product_is_rounded_once(rows: int, columns: int, dtype: Any, order: str) -> None:
    array = weight(rows, columns, dtype, order)
    for factor in (0.75, np.linspace(0.5, 3, columns), np.linspace(0.5, 3, rows)[:, None]):
        expected = (array.astype(np.float64) * factor).astype(dtype)
        found = fit(array, factor, array)
        assert found.dtype == array.dtype
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("place", [0, SIDE // 2, SIDE - 1])
@pytest.mark.parametrize("number", [np.inf, np.nan, 1e38])
def test_a_non_finite_element_is_refused_at_any_position(number: float, place: int) -> None:
    array = weight(SIDE, 9, np.float32, "C")
    array[place, 4] = number
    with pytest.raises(Refusal, match="not finite"):
        fit(array, 100.0, array)


def test_a_column_that_is_too_small_for_its_type_is_refused() -> None:
    array = weight(SIDE, 9, np.float16, "C")
    factors = np.ones(9)
    assert fit(array, factors, array).shape == array.shape
    factors[6] = 1e-6
    with pytest.raises(Refusal, match="too small"):
        fit(array, factors, array)


def test_underflow_next_to_large_numbers_is_accepted() -> None:
    array = weight(SIDE, 2, np.float16, "F")
    array[-1, 0] = 2.0**-20
    lost = float(array[-1, 0]) * 2.0**-5
    assert lost < ROUNDOFF["float16"] * float(np.abs(array[:, 0]).max())
    assert fit(array, 2.0**-5, array)[-1, 0] == 0
