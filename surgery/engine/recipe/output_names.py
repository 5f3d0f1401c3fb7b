"""The fields in the name of an output: `{stem}` is the model's file name without its suffix, `{sha256:12}` a digest."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from surgery.engine.yaml.spelling import nearest
from surgery.engine.yaml.yaml_nodes import quoted

FIELD: Final = r"stem|sha256(:(8|9|[1-5][0-9]|6[0-4]))?"
"""A regular expression for the text in the braces of a field."""
_FIELDS: Final = ("stem", "sha256:12")
_STEM: Final = "{stem}"


def field_problem(name: str) -> str:
    """Return what is wrong with the fields in the name of an output, to follow its name; empty if nothing is."""
    found = re.findall(r"\{[^{}]*\}", name)
    wrong = next((field for field in found if not re.fullmatch(FIELD, field[1:-1])), None)
    if wrong is not None:
        if wrong.startswith("{sha256:"):
            return f"has {quoted(wrong)}; a digest has 8 to 64 digits, such as '{{sha256:12}}'"
        near = nearest(wrong[1:-1], _FIELDS) or _FIELDS[0]
        return f"knows no {quoted(wrong)}; did you mean '{{{near}}}'?"
    if "{sha256" in name.replace("\\", "/").rpartition("/")[0]:
        return "has a digest in the folder; '{sha256:12}' is allowed in the file name only"
    return ""


def with_stem(name: str, model: Path) -> str:
    """Replace `{stem}` by that of the model; the digest is replaced when the output is written."""
    return name.replace(_STEM, model.stem)
