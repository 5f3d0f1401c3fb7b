"""A resolved recipe: nested recipes inlined, defaults filled in.

The result is an equivalent recipe. Its paths are absolute, so that it may be saved anywhere; comments name the origin
of each external pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from surgery.engine.recipe import recipe_lookup
from surgery.engine.recipe.rules import RulePass
from surgery.engine.recipe.schema import UNTIL_STABLE, Baseline, PassStep, Recipe, RepeatStep, Step, UseStep
from surgery.engine.recipe.writer import STEPS, Remarked, bare, given, written
from surgery.model.targets import STANDARD
from surgery.verification.accuracy import budget
from surgery.verification.inputs.spec import (
    AccuracySpec,
    InputsSpec,
    MetricSpec,
    SampleSpec,
    VerifySpec,
)


def data(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as plain values, for JSON."""
    return dict(bare(given(_recipe(recipe))))


def text(recipe: Recipe) -> str:
    """Return a recipe as YAML."""
    source = f"From {recipe.path}. " if recipe.path is not None else ""
    head = f"{source}Nested recipes are written out and defaults filled in; the origin of external passes is noted."
    return written(_recipe(recipe), head)


def brief(recipe: Recipe, head: str = "") -> str:
    """Return a recipe as YAML without defaults; nested recipes with a file are referenced by name or path."""
    usual, spec = VerifySpec(), recipe.verify
    verify = {name: value for name, value in _verify(spec).items() if getattr(spec, name) != getattr(usual, name)}
    steps = [_step(step, is_brief=True) for step in recipe.steps]
    return written({**_recipe(recipe), "verify": verify, STEPS: steps}, head)


def _recipe(recipe: Recipe) -> dict[str, Any]:
    return {
        "recipe": recipe.name,
        "about": recipe.about,
        "model": recipe.model,
        "output": recipe.output,
        "plugins": [*dict.fromkeys(plugins_of(recipe))],
        "rules": _rules(recipe),
        "inputs": _inputs(recipe.inputs),
        "verify": _verify(recipe.verify),
        "accuracy": _accuracy(recipe.verify.accuracy),
        "calibration": _samples(recipe.inputs.calibration),
        "on_failure": recipe.on_failure,
        "target": recipe.target if recipe.target != STANDARD.name else None,
        STEPS: [_step(step) for step in recipe.steps],
        "expect": _plain(recipe.expect),
        "baseline": _baseline(recipe.baseline),
        "provenance": None if recipe.provenance else False,
    }


def _baseline(spec: Baseline | None) -> dict[str, Any]:
    if spec is None:
        return {}
    bounds = {name: str(bound) for name, bound in spec.bounds().items() if bound is not None}
    return {"report": spec.report.absolute(), **bounds}


def _verify(spec: VerifySpec) -> dict[str, Any]:
    found = _plain(spec)
    found.pop("accuracy", None)
    return found


def _accuracy(spec: AccuracySpec) -> dict[str, Any]:
    """Return the budget, by output, and the inputs on which it is measured."""
    if spec == AccuracySpec():
        return {}
    limits, metric = budget.by_output(spec.limits), _metric(spec.metric)
    return given({"budget": limits, "metric": metric, **_samples(spec.samples)})


def _metric(spec: MetricSpec | None) -> dict[str, Any]:
    if spec is None:
        return {}
    function = f"{spec.file.absolute()}:{spec.function}"
    return {"function": function, "drop": spec.allowed, "better": "lower" if spec.lower else "higher"}


def _samples(spec: SampleSpec) -> dict[str, Any]:
    if spec == SampleSpec():
        return {}
    return given({"data": [item.written(Path.absolute) for item in spec.data], "sets": spec.sets})


def plugins_of(recipe: Recipe) -> Iterator[str]:
    """Yield the plugins of a recipe and of its nested recipes, because inlined recipes have none of their own."""
    yield from (str(Path(name).absolute()) if name.endswith(".py") else name for name in recipe.plugins)
    waiting = [*recipe.steps]
    while waiting:
        step = waiting.pop(0)
        if isinstance(step, UseStep):
            yield from plugins_of(step.recipe)
        elif isinstance(step, RepeatStep):
            waiting += step.steps


def _rules(recipe: Recipe) -> dict[str, Any]:
    return {name: made.written for name, made in recipe.rules.items() if isinstance(made, RulePass)}


def _step(step: Step, is_brief: bool = False) -> Any:
    when = _plain(step.when)
    if isinstance(step, PassStep):
        return _pass(step, when, is_brief)
    if isinstance(step, RepeatStep):
        times = UNTIL_STABLE if step.times is None else step.times
        return given({"repeat": times, "when": when, STEPS: [_step(one, is_brief) for one in step.steps]})
    nested = step.recipe
    if is_brief and nested.path is not None:
        is_shipped = nested.path == recipe_lookup.folder() / f"{nested.path.stem}.yaml"
        changed = {"without": [*step.without], "with": {name: dict(one) for name, one in step.options.items()}}
        changed["except"] = [*step.excepted]
        return given({"use": nested.path.stem if is_shipped else nested.path, **changed, "when": when})
    inner = {"recipe": nested.name, "about": nested.about, "rules": _rules(nested), "on_failure": nested.on_failure}
    steps = [_step(one, is_brief) for one in nested.steps]
    found = given({"use": {**inner, STEPS: steps, "expect": _plain(nested.expect)}, "when": when})
    return found if nested.path is None else Remarked(found, str(nested.path))


def _pass(step: PassStep, when: dict[str, Any], is_brief: bool) -> Any:
    declared = step.find()
    shown = [one for one in declared.options if not is_brief or one.name in step.options]
    options = {one.name: step.options.get(one.name, one.default) for one in shown}
    options = {name: value for name, value in options.items() if value is not None and _is_writable(value)}
    bound = step.bind()
    files = [one.name for one in declared.options if one.is_file and one.name in options]
    options |= {name: str(bound[name].absolute()) for name in files}
    expect = _plain(step.expect)
    found: Any = {step.name: options} if options else step.name
    if when or expect or step.excepted or step.on_failure is not None:
        given_options = {"with": options} if options else {}
        more = given({"except": [*step.excepted], "when": when, "on_failure": step.on_failure, "expect": expect})
        found = {"pass": step.name, **given_options, **more}
    return found if declared.origin == "surgery" or step.declared is not None else Remarked(found, declared.origin)


def _is_writable(value: Any) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True


def _inputs(inputs: InputsSpec) -> dict[str, Any]:
    generator = inputs.generator
    return {
        "dims": inputs.dims,
        "tensors": {name: _plain(spec) for name, spec in inputs.tensors.items()},
        "data": [spec.written(Path.absolute) for spec in inputs.data],
        "generator": f"{generator.file.absolute()}:{generator.function}" if generator is not None else None,
        "only_given": inputs.only_given or None,
    }


def _plain(spec: Any) -> dict[str, Any]:
    """Return the fields of a part of a recipe by name, which are also its keys."""
    return {} if spec is None else given({one.name: getattr(spec, one.name) for one in fields(spec) if one.compare})
