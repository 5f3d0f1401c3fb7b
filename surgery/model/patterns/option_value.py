"""What the option types of passes share: each is read from a recipe, and is known to pydantic by that."""

from __future__ import annotations

from typing import Any, ClassVar, Self

TEXTS: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
"""The JSON schema of a text or a list of texts."""


class OptionValue:
    """The value of an option, which `read` makes from the value in a recipe."""

    type_name: ClassVar[str]
    json_schema: ClassVar[dict[str, Any]]

    @classmethod
    def read(cls, value: Any) -> Self:
        """Read the value in a recipe; raise ValueError, with a one-line description, for a mistake."""
        raise NotImplementedError

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(cls.read)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> dict[str, Any]:
        return cls.json_schema
