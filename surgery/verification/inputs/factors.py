"""Parts of demands on extents: attributes of nodes, and the factors of numbers of elements."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from surgery.model.shapes.declarations import Extent

if TYPE_CHECKING:
    import onnx_ir as ir


def factors(data: list[Extent], target: list[Extent]) -> tuple[list[Extent], list[Extent]] | None:
    """Return the factors before and after a Reshape, without common ones and -1; None if it keeps or hides one."""
    wanted = [data[place] if dim == 0 and place < len(data) else dim for place, dim in enumerate(target) if dim != -1]
    if 0 in wanted or 0 in data:
        return None
    before, after = Counter(data), Counter(wanted)
    sides = []
    for factors in ((before - after).elements(), (after - before).elements()):
        listed = list(factors)
        names: list[Extent] = [one for one in listed if isinstance(one, str)]
        number = constant(listed)
        sides.append([number, *names] if number != 1 or not names else names)
    return sides[0], sides[1]


def constant(factors: Iterable[Extent]) -> int:
    """Return the product of the numbers among some factors."""
    return math.prod(factor for factor in factors if isinstance(factor, int))


def product(factors: Iterable[Extent]) -> Extent:
    """Return the product of some factors, as an expression."""
    found = list(factors)
    if len(found) == 1:
        return found[0]
    return "*".join(str(one) if isinstance(one, int) or one.isidentifier() else f"({one})" for one in found)


def integers(node: ir.Node, name: str) -> list[int] | None:
    """Return the integers of an attribute, also of one that holds a single integer; None if it is absent."""
    attribute = node.attributes.get(name)
    if attribute is None or attribute.is_ref():
        return None
    value = attribute.value
    return [int(value)] if isinstance(value, int) else [int(item) for item in value]


def stored(value: ir.Value | None) -> ir.TensorProtocol | None:
    """Return the tensor of an initializer, or of a Constant node; None for other values."""
    import onnx_ir as ir

    return None if value is None else ir.convenience.get_const_tensor(value)


def text(node: ir.Node, name: str) -> str:
    """Return the text of an attribute; no text if it is absent."""
    attribute = node.attributes.get(name)
    return "" if attribute is None or attribute.is_ref() else str(attribute.value)
