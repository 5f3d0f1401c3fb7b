"""Scaffolding of a pass: a working file with two passing cases, to be edited.

The templates are modules that are checked like all others; what is written differs from them in names only.
"""

from __future__ import annotations

from typing import Literal, get_args

Kind = Literal["pattern", "graph", "gs", "onnx_ir", "proto"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""What a pass can be written in; each has a template of that name."""
