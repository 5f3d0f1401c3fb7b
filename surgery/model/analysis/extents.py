"""Arithmetic on dims in the form of `Value.shape` and `Value.elements`."""

from __future__ import annotations

from surgery.model.shapes.facts import Dim


def sum_of_dims(first: Dim, second: Dim) -> Dim:
    """Return the sum of two dims in the form of `Value.shape` and `Value.elements`; None if it is unknown.

    Two sums with equal forms are the same number.
    """
    from surgery.model.shapes.symbols import combine  # it imports sympy

    return None if first is None or second is None else combine("Add", first, second)
