"""The types of options as messages and reference pages name them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Optional

import pytest

from surgery.engine.registry.options import Size, _computed, _type_name
from surgery.model.patterns.selector import NodeSelector


@pytest.mark.parametrize(
    ("annotation", "name"),
    [
        (int, "int"),
        (Size, "size"),
        (list[Size], "list[size]"),
        (Literal["a", 2], "a | 2"),
        (int | None, "int | none"),
        (Optional[Size], "size | none"),  # noqa: UP045 - the other form of a union
        (list[Literal["a"]], "list[a]"),
        (NodeSelector, "node selector"),
        (NodeSelector | None, "node selector | none"),
        (dict[str, int], "dict[str, int]"),
        (Any, "Any"),
        (Annotated[int, NodeSelector], "node selector"),
    ],
)
def test_a_type_has_a_name(annotation: Any, name: str) -> None:
    assert _type_name(annotation) == name


@pytest.mark.parametrize(
    ("annotation", "given", "computed"),
    [
        (float, "1/4", 0.25),
        (int, "6/2", 3),
        (int, "1/2", 0.5),
        (str, "1/2", "1/2"),
        (float, "half", "half"),
        (list[float], ["1/4", 2], [0.25, 2]),
        (tuple[float, ...], ("1/4", "1/2", "1/8"), [0.25, 0.5, 0.125]),
        (tuple[float, str], ("1/4", "1/2"), [0.25, "1/2"]),
        (tuple[float, str], ("1/4",), ("1/4",)),
        (dict[str, float], {"a": "1/4"}, {"a": 0.25}),
        (float | None, "1/4", 0.25),
        (int | float, "1/4", 0.25),
        (int | None, "4/2", 2),
        (float | str, "1/4", "1/4"),
        (float | list[float], "1/4", 0.25),
        (float | list[float], ["1/4"], [0.25]),
        (list[float] | tuple[float, ...], ["1/4"], ["1/4"]),
        (float, ["1/4"], ["1/4"]),
        (float | None, None, None),
    ],
)
def test_arithmetic_is_computed_where_a_number_is_wanted_and_no_text(
    annotation: Any, given: Any, computed: Any
) -> None:
    found = _computed(annotation, given)
    assert found == computed and type(found) is type(computed)
