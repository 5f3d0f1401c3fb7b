"""The models that are made wrong: bundled ones, those of the onnx package, the expected halves of case files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import onnx
from support import case_files, corpus

from mutation import handmade
from mutation.draft import Type, infer
from surgery.features import testing
from surgery.model.graph import text

TESTS = Path(__file__).parent.parent
BUNDLED = TESTS.parent / "models"


def names() -> Iterator[str]:
    """Yield the names of all sources."""
    yield from bundled()
    yield from (f"case/{name}" for name in _cases())
    yield from (name for name, _ in corpus.models() if "light_" not in name)


def bundled() -> Iterator[str]:
    """Yield the names of the bundled models."""
    yield from (f"bundled/{path.name}" for path in sorted(BUNDLED.glob("*.onnx")))


@cache
def load(name: str) -> onnx.ModelProto:
    """Return the original that a source names."""
    group, _, rest = name.partition("/")
    if group == "bundled":
        return onnx.load(BUNDLED / rest)
    if group == "case":
        return text.parse(_cases()[rest].before)
    if group == "wrong":
        return handmade.WRONG[rest].original()
    return _corpus(name)


@cache
def base(name: str) -> onnx.ModelProto:
    """Return the model that is made wrong: the original, or what the pass of a case file rightly makes of it."""
    group, _, rest = name.partition("/")
    if group == "case":
        return text.parse(_cases()[rest].after or "")
    return load(name)


@cache
def types(name: str) -> dict[str, Type]:
    return infer(base(name))


@cache
def _cases() -> dict[str, testing.Case]:
    """Return the positive case files. Where parity cannot be tried, nothing can be caught by it."""
    return {case.name: case for case in case_files.read() if case.after is not None and case.unverified is None}


@cache
def _models() -> dict[str, bytes | Path]:
    return dict(corpus.node_models()) | dict(corpus.data_models())


def _corpus(name: str) -> onnx.ModelProto:
    model = _models()[name]
    return onnx.load(model) if isinstance(model, Path) else onnx.load_model_from_string(model)
