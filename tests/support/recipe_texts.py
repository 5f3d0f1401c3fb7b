"""Texts of recipes, and what is wrong with them."""

from pathlib import Path
from typing import Any

import pytest

from surgery.base.errors import RecipeError
from surgery.engine.recipe import Recipe, parse, recipe_lookup

REAL_FOLDER = recipe_lookup.folder


def mistakes(text: str | bytes, path: str | Path | None = "r.yaml", *, trust: bool = False) -> list[str]:
    """All mistakes in a text, as the user sees them."""
    with pytest.raises(RecipeError) as caught:
        parse(text, path, trust=trust)
    error = caught.value
    assert error.exit_code == 2
    assert str(error).splitlines() == [str(problem) for problem in error.problems]
    return [str(problem) for problem in error.problems]


def step(text: str) -> str:
    """A recipe of one step."""
    return f"steps:\n  - {text}\n"


def only(recipe: Recipe) -> Any:
    (found,) = recipe.steps
    return found


EXAMPLE = """\
# yaml-language-server: $schema=recipe.schema.json
recipe: example
about: |
  Clean up an encoder.
  \tFuse it, too.
model: ../models/bert-tiny.onnx
plugins: []
inputs:
  dims: {batch: [1, 3], sequence: 8}
  tensors:
    attention_mask: {values: [0, 1]}
    input_ids: {range: [0, 99]}
verify: {rtol: 1e-4, atol: 1e-5, seed: 3, mode: end, unverified: accept, timeout: 60, memory: 2GiB}
steps:
  - use: tidy
  - drop-dropout
  - drop-dropout:
  - fold-constants: {max_growth: 1MB}
  - repeat: until-stable
    steps: [drop-dropout, fold-constants: {rounds: 2}]
  - repeat: 3
    when: {opset: "< 20"}
    steps:
      - drop-dropout
  - pass: fuse-attention
    with: {heads: 12}
    when: {ops: {Softmax: ">= 1"}, nodes: "> 10"}
    on_failure: rollback
    expect: {sites: 12, signature: unchanged}
expect: {ops: {Dropout: 0}, nodes: "<= 500", signature: unchanged}
output: "{stem}.opt.onnx"
"""
