"""The rewrites, wrong and right, put before the judge."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any

import onnx
from support.case_files import read

from mutation import rebuilt_exact, sources, suite
from mutation.draft import Draft, Unfit
from mutation.judge import Judge, Judgement
from mutation.rebuilt import REBUILT
from mutation.right import RIGHT
from mutation.suite import Mutant
from surgery.base.errors import UsageError
from surgery.base.promises import COMPARING, Parity
from surgery.engine.pipeline.pipeline import Pipeline
from surgery.engine.recipe.schema import PassStep, Recipe
from surgery.engine.registry.catalog import catalog
from surgery.engine.registry.passes import Pass
from surgery.model import storage
from surgery.model.graph import text

assert rebuilt_exact  # fills REBUILT

Right = tuple[str, Callable[[], Judgement | None]]
"""What is rewritten, and how to have it judged; None when there was nothing to rewrite."""


def wrong(every: int = 1, kind: str = "") -> Iterator[tuple[Mutant, Judgement]]:
    """Judge the wrong rewrites of the suite, with one judge for each original."""
    mutants = [mutant for mutant in suite.read() if kind in mutant.kind][::every]
    for source, group in groupby(sorted(mutants, key=lambda mutant: mutant.source), key=lambda mutant: mutant.source):
        with closing(Judge(sources.load(source))) as judge:
            for mutant in group:
                yield mutant, judge.judge(mutant.build(), mutant.promise)


def sampled(items: Iterator[Right], every: int) -> Iterator[Right]:
    """Yield each `every`-th item."""
    for number, item in enumerate(items):
        if number % every == 0:
            yield item


def by_hand() -> Iterator[Right]:
    """Yield the pairs written by hand."""
    for name, pair in RIGHT.items():
        yield name, partial(_judge, pair.original, pair.changed, pair.promise)


def rebuilt() -> Iterator[Right]:
    """Yield each rewrite of whole models on each bundled model."""
    for source in sources.bundled():
        for name, (promise, edit) in REBUILT.items():
            yield f"{name} in {source}", partial(_rebuild, source, name, promise, edit)


@lru_cache(maxsize=1)
def _judge_of(source: str) -> Judge:
    return Judge(sources.load(source))


def _rebuild(source: str, name: str, promise: str, edit: Callable[[Draft], None]) -> Judgement | None:
    draft = Draft(sources.load(source), sources.types(source), 0, name)
    try:
        edit(draft)
    except Unfit:
        return None
    return _judge_of(source).judge(draft.model, promise)


def case_files() -> Iterator[Right]:
    """Yield each positive case file: what it expects, under the promise of its pass.

    What a LOSSY pass loses depends on the inputs that the case was calibrated with, so its cases are left out.
    """
    for case in read():
        declared = catalog.find(case.pass_name)
        is_lossy = declared.promise(case.options) is Parity.LOSSY
        if case.after is not None and case.unverified is None and not is_lossy and _keeps_all(declared, case.options):
            models = partial(text.parse, case.before), partial(text.parse, case.after)
            yield case.name, partial(_judge, *models, declared.promise(case.options).value)


def passes() -> Iterator[Right]:
    """Yield each standard pass on each bundled model."""
    yield from _passes(sorted(sources.BUNDLED.glob("*.onnx")))


def full_size() -> Iterator[Right]:
    """Yield each standard pass on each full-size model that has been built."""
    cache = os.environ.get("SURGERY_CACHE")
    yield from _passes(sorted((Path(cache) if cache else Path.home() / ".cache/surgery/models").glob("*.onnx")))


def _keeps_all(declared: Pass, options: Mapping[str, Any]) -> bool:
    """Return whether a pass means to keep both the function and the signature of a model."""
    return declared.promise(options) is not Parity.INTENDED and not declared.changes


def _is_right(declared: Pass) -> bool:
    """Return whether what a pass makes is right for certain: another tool may be wrong, and a loss has a budget."""
    return not declared.requires and declared.promise({}) in COMPARING


def _passes(paths: list[Path]) -> Iterator[Right]:
    for path in paths:
        for name, declared in catalog.passes().items():
            needs_nothing = not any(option.required for option in declared.options)
            if declared.is_standard and needs_nothing and _keeps_all(declared, {}) and _is_right(declared):
                yield f"{name} on {path.name}", partial(_attempt, path, name)


_open: dict[Path, Pipeline] = {}
"""The chain that was used last, with what its original computed."""


def close() -> None:
    """Close the chain that is still open."""
    while _open:
        _open.popitem()[1].close()


def _chain_of(path: Path) -> Pipeline:
    if path not in _open:
        close()
        _open[path] = Pipeline(storage.load(path), Recipe("right"))
    return _open[path]


def _judge(original: Callable[[], onnx.ModelProto], changed: Callable[[], onnx.ModelProto], promise: str) -> Judgement:
    with closing(Judge(original())) as judge:
        return judge.judge(changed(), promise)


def _attempt(path: Path, name: str) -> Judgement | None:
    attempt = _chain_of(path).attempt(PassStep(name))
    if (not attempt.changed and attempt.ok) or attempt.exit_code == UsageError.exit_code:
        return None
    stage = attempt.verdict.status if attempt.verdict is not None else "checked"
    return Judgement(attempt.ok, stage, attempt.complaint)
