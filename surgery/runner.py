"""A recipe, run over a model: the account of all its steps, and the result."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from surgery import storage
from surgery.attempt import Attempt
from surgery.chain import Abort, Chain
from surgery.recipe.schema import Recipe
from surgery.records import Observer, Result, StepRecord
from surgery.summary import data_files, summarize

if TYPE_CHECKING:
    import onnx

__all__ = ["Abort", "Attempt", "Chain", "Observer", "Result", "StepRecord", "apply", "run"]


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Let the garbage collector look less often: a graph is very many objects, which stay, and a look goes over all."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], 50_000), max(before[1], 20), max(before[2], 100))
    try:
        yield
    finally:
        gc.set_threshold(*before)


def run(
    stored: storage.StoredModel, recipe: Recipe, *, observer: Observer | None = None, contained: bool = True
) -> Result:
    """Run a recipe over a loaded model. Nothing is written; see `Result.save`.

    Passes that are not standard ones run in a process of their own, unless `contained` is false.
    """
    started = time.perf_counter()
    with _rare_collections():
        chain = Chain(stored, recipe, observer, contained=contained)
    with closing(chain), _rare_collections():
        try:
            chain.run(recipe.steps)
            chain.finish()
        except Abort:
            pass
        else:
            chain.expect(recipe.expect)
        bindings = tuple(chain.verifier.bindings)
    files = data_files(stored.proto, stored.path) if stored.path is not None else []
    return Result(
        recipe=recipe.name,
        input=summarize(stored.proto, files),
        output=summarize(chain.proto),
        steps=tuple(chain.records),
        expectations=tuple(chain.expectations),
        bindings=bindings,
        seconds=time.perf_counter() - started,
        proto=chain.proto,
        stored=stored,
    )


def apply(
    model: str | Path | onnx.ModelProto,
    recipe: str | Path | Recipe,
    *,
    output: str | Path | None = None,
    force: bool = False,
    trust: bool = False,
    observer: Observer | None = None,
    layout: storage.Layout = "keep",
    contained: bool = True,
) -> Result:
    """Run a recipe over a model; write the result to `output` when all is well.

    `model` is a path or a message in memory, `recipe` a path, the name of a shipped recipe, or a loaded one.
    Raises a `SurgeryError` for bad input. A negative verdict is no exception: look at `Result.ok`.
    """
    from surgery import recipe as recipes

    loaded = recipe if isinstance(recipe, Recipe) else recipes.load(recipe, trust=trust)
    stored = storage.load(Path(model)) if isinstance(model, str | Path) else storage.from_proto(model)
    if output is not None:
        storage.check_target(Path(output), force=force)
    result = run(stored, loaded, observer=observer, contained=contained)
    if output is not None and result.ok:
        result = result.save(output, layout=layout, force=force)
    return result
