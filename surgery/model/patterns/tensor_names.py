"""TensorNames: an option type of passes that selects tensors."""

from __future__ import annotations

from typing import Any, ClassVar

from surgery.model.patterns.option_value import OptionValue
from surgery.model.patterns.selector import texts


class TensorNames(OptionValue, tuple[str, ...]):
    """Names of tensors, or globs, in an order that may matter; `Graph.tensors` finds them.

    A single name needs no list.
    """

    type_name: ClassVar[str] = "tensor names"
    json_schema: ClassVar[dict[str, Any]] = {
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
    }

    @classmethod
    def read(cls, value: Any) -> TensorNames:
        """Read the value in a recipe; raise ValueError, with a one-line description, for a mistake."""
        return cls(() if value in ([], ()) else texts("a list of tensors", value))
