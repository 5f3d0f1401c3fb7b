"""TensorNames: an option type of passes that selects tensors."""

from __future__ import annotations

from typing import Any, ClassVar

from surgery.model.patterns.selector import texts


class TensorNames(tuple[str, ...]):
    """Names of tensors, or globs, in an order that may matter; `Graph.tensors` finds them.

    A single name needs no list.
    """

    type_name: ClassVar[str] = "tensor names"

    @classmethod
    def read(cls, value: Any) -> TensorNames:
        """Read the value in a recipe; raise ValueError, with a one-line description, for a mistake."""
        return cls(() if value in ([], ()) else texts("a list of tensors", value))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(cls.read)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
