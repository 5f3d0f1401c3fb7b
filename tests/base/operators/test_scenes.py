"""Kinds of data that resemble what models meet in use, rather than noise."""

from __future__ import annotations

import numpy as np
import pytest

from surgery.base.operators.domain import UNIT, Domain, draw, generator
from surgery.base.operators.dtypes import Array
from surgery.base.operators.scenes import SCENES

SHAPES = [(2, 3, 45, 37), (1, 45, 37, 3), (2, 30, 20), (4, 50), (7,), (1, 3, 1, 1), (2, 0, 5), ()]
F4 = np.dtype(np.float32)


def drawn(kind: str, shape: tuple[int, ...], domain: Domain | None = None) -> Array:
    return draw(domain or Domain(), F4, shape, kind, generator(0, "x", kind))


@pytest.mark.parametrize("kind", SCENES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_and_ranges(kind: str, shape: tuple[int, ...]) -> None:
    for domain, low, high in ((None, -10.0, 10.0), (UNIT, 0.0, 1.0), (Domain(-3.0, -1.0), -3.0, -1.0)):
        values = drawn(kind, shape, domain)
        assert values.shape == shape and values.dtype == F4
        assert np.isfinite(values).all() and (values >= low).all() and (values <= high).all()
        np.testing.assert_array_equal(values, drawn(kind, shape, domain))


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
def test_a_single_element_gets_a_different_edge_with_each_seed(shape: tuple[int, ...]) -> None:
    found = {draw(Domain(), F4, shape, "edges", generator(seed, "x", "edges"), seed).item() for seed in range(6)}
    assert len(found) > 3


def test_an_empty_tensor_has_no_edges() -> None:
    assert draw(Domain(), F4, (2, 0), "edges", generator(0, "x", "edges")).shape == (2, 0)


@pytest.mark.parametrize(
    ("shape", "axes"), [((2, 3, 45, 37), (2, 3)), ((1, 45, 37, 3), (1, 2)), ((4, 50), (1,))], ids=str
)
def test_neighbors_resemble_each_other_in_place_and_not_across_channels(
    shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    for kind, least in (("flat", 0.8), ("smooth", 0.9), ("saturated", 0.8)):
        values = drawn(kind, shape).astype(np.float64)
        for axis in range(len(shape)):
            if shape[axis] > 1:
                size = shape[axis] - 1
                first, second = (np.take(values, np.arange(size) + start, axis=axis).ravel() for start in (0, 1))
                alike = np.corrcoef(first, second)[0, 1]
                assert alike > least if axis in axes else abs(alike) < 0.7, (kind, axis, alike)


def test_blocks_have_one_value_each() -> None:
    values = drawn("flat", (1, 2, 24, 20))
    blocks = values[:, :, :16, :16].reshape(1, 2, 2, 8, 2, 8)
    np.testing.assert_array_equal(np.ptp(blocks, axis=(3, 5)), 0.0)
    assert len(np.unique(blocks)) == 8


def test_saturated_data_has_regions_at_both_ends() -> None:
    values = drawn("saturated", (2, 3, 64, 64))
    assert (np.abs(values) == 2.0).mean() > 0.3 and values.min() == -2.0 and values.max() == 2.0


def test_sparse_data_is_mostly_zero() -> None:
    values = drawn("sparse", (2, 3, 64, 64))
    assert all((drawn("sparse", shape) != 0).any() for shape in SHAPES if np.prod(shape))
    assert 0.02 < (values != 0).mean() < 0.1 and 1.0 < np.abs(values).max() <= 2.0
