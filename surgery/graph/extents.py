"""Arithmetic on dims, as passes know them from `Value.shape` and `Value.elements`."""

from __future__ import annotations

from surgery.shapes.facts import Dim


def sum_of_dims(first: Dim, second: Dim) -> Dim:
    """Return the sum of two dims in the form that `Value.shape` and `Value.elements` have; None when it is not known.

    Two sums are surely the same number when their forms are equal.
    """
    from surgery.shapes.symbols import combine  # it imports sympy

    return None if first is None or second is None else combine("Add", first, second)
