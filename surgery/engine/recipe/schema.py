"""Recipes as immutable values. Light to import: no YAML, no validation, no pydantic.

`surgery.engine.recipe.load` builds these from YAML and guarantees the documented properties of the fields; other code
that builds them (`surgery run`, tests) must guarantee the same.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from surgery.base.frozen_dict import FrozenDict
from surgery.base.promises import Parity
from surgery.engine.recipe.count_condition import CountCondition
from surgery.verification.inputs.spec import InputsSpec, VerifySpec

if TYPE_CHECKING:
    from surgery.engine.registry.passes import Pass
    from surgery.model.targets import Target


OnFailure = Literal["abort", "rollback", "bisect", "keep"]
ON_FAILURE = get_args(OnFailure)

KINDS = ("pass", "use", "repeat")
STEP_KEYS = ("with", "without", "except", "when", "on_failure", "expect")
WORDS = (*KINDS, *STEP_KEYS, "steps")
"""Words that cannot be the name of a pass in a step."""
UNTIL_STABLE = "until-stable"


@dataclass(frozen=True)
class When:
    """Conditions on the model before a step; the step runs if all of them hold."""

    ops: Mapping[str, CountCondition] = field(default_factory=FrozenDict)
    nodes: CountCondition | None = None
    opset: CountCondition | None = None
    predicates: Mapping[str, bool] = field(default_factory=FrozenDict)


Bound = Literal["<", "<=", ">", ">="]


@dataclass(frozen=True)
class Share:
    """A bound on a figure as a multiple of an earlier figure: an operator and a factor."""

    op: Bound
    factor: float

    def holds(self, now: float, before: float) -> bool:
        """Return whether a figure is within the bound."""
        compare = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[self.op]
        return bool(compare(now, self.factor * before))

    def __str__(self) -> str:
        return f"{self.op} {self.factor:g}x"


@dataclass(frozen=True)
class Expect:
    """Expectations of the model after a step, or after the recipe.

    `sites` is only for a step. `speed`, the minimum speed relative to the original, and `executed`, the number of nodes
    that ONNX Runtime executes as deployed, are only for a recipe. `target` is a runtime that must run the whole model,
    in the form of `Recipe.target`. With `empty`, the recipe adds no operator that takes no empty batch.
    """

    ops: Mapping[str, CountCondition] = field(default_factory=FrozenDict)
    nodes: CountCondition | None = None
    opset: CountCondition | None = None
    predicates: Mapping[str, bool] = field(default_factory=FrozenDict)
    sites: CountCondition | None = None
    signature: Literal["unchanged"] | None = None
    empty: Literal["allowed"] | None = None
    speed: float | None = None
    executed: CountCondition | Share | None = None
    target: str | None = None
    places: Mapping[str, str] = field(default_factory=FrozenDict, compare=False)
    """The position of each key, and of each operator in `ops`, as `path:line:column`, counted from 1."""

    def where(self, what: str) -> str:
        """Return the position of an expectation, given its text, which begins with its key or operator."""
        return self.places.get(what.partition(":")[0], "")


@dataclass(frozen=True)
class Baseline:
    """Bounds on the figures of a run relative to an earlier run with this `report`; None for figures not compared.

    By default, a model with twice the nodes or bytes fails.
    """

    report: Path
    nodes: Share | None = Share("<", 2.0)
    bytes: Share | None = Share("<", 2.0)
    tolerance: Share | None = None
    speed: Share | None = None
    places: Mapping[str, str] = field(default_factory=FrozenDict, compare=False)
    """The position of each key as `path:line:column`."""

    def bounds(self) -> dict[str, Share | None]:
        """Return the bounds by name of the figure."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("report", "places")}

    def where(self, what: str) -> str:
        """Return the position of a bound, given its text, which begins with `baseline` and its key."""
        key = what.partition(":")[0].rpartition(" ")[2]
        return self.places.get(key) or self.places.get("report", "")


@dataclass(frozen=True, kw_only=True)
class _Placed:
    """The position of a step, for messages; it does not count for equality."""

    when: When | None = None
    line: int = field(default=1, compare=False)
    column: int = field(default=1, compare=False)
    path: str = field(default="", compare=False)

    @property
    def where(self) -> str:
        """The position as `path:line:column`, counted from 1."""
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True)
class PassStep(_Placed):
    """Run one pass. `options` are as given; `Pass.bind` converts them.

    `declared` is the pass itself if it is made from a rule of the recipe; other passes are looked up by name in the
    registry. If `on_failure` is None, the recipe decides, see `engine.recipe.on_failure`. `excepted` are selectors
    of the nodes that it leaves alone, as given; `surgery.model.patterns.NodeSelector` reads them. With `keeps_empty`,
    an enclosing recipe expects an empty batch to be allowed.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=FrozenDict)
    on_failure: OnFailure | None = None
    expect: Expect | None = None
    declared: Pass | None = None
    excepted: tuple[Any, ...] = ()
    keeps_empty: bool = False

    @property
    def settings(self) -> str:
        """Text that is the same for steps of a pass that do the same to a model."""
        return repr((self.options, self.excepted, self.keeps_empty))

    def find(self) -> Pass:
        """Return the pass to run; raise UsageError if there is none with this name."""
        from surgery.engine.registry.catalog import catalog

        return self.declared if self.declared is not None else catalog.find(self.name)

    @property
    def is_lossy(self) -> bool:
        """Whether the step trades accuracy on purpose."""
        return self.find().promise(self.options) is Parity.LOSSY

    def bind(self) -> dict[str, Any]:
        """Convert the options; file paths are relative to the folder of the recipe."""
        return self.find().bind(self.options, Path(self.path).parent if self.path else Path())


@dataclass(frozen=True)
class RepeatStep(_Placed):
    """Run steps several times: `times` rounds, or if None, until a round changes nothing.

    `on_failure` is that of the recipe, for rounds that do not end; the step has no such key.
    """

    times: int | None
    steps: tuple[Step, ...]
    on_failure: OnFailure | None = None

    def with_steps(self, steps: tuple[Step, ...]) -> RepeatStep:
        """Return a copy with other steps."""
        return replace(self, steps=steps)


@dataclass(frozen=True)
class UseStep(_Placed):
    """Run the steps of another recipe.

    Only `steps` and `expect` of that recipe count, and `on_failure` and `target` if no enclosing recipe has one. Its
    `model`, `inputs`, `verify` and `output` were checked and are ignored: the outer recipe determines what is rewritten
    and how it is verified.

    `recipe` is already changed: it has no steps of the passes in `without`, its steps of the passes in `options` have
    those options, and all its steps leave the `excepted` nodes alone.
    """

    recipe: Recipe
    without: tuple[str, ...] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=FrozenDict)
    excepted: tuple[Any, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the other recipe."""
        return self.recipe.steps

    def with_steps(self, steps: tuple[Step, ...]) -> UseStep:
        """Return a copy with other steps."""
        return replace(self, recipe=replace(self.recipe, steps=steps))


Step = PassStep | RepeatStep | UseStep


def pass_steps(steps: tuple[Step, ...]) -> Iterator[PassStep]:
    """Yield all steps that run a pass, in the order of the recipe."""
    for step in steps:
        yield from [step] if isinstance(step, PassStep) else pass_steps(step.steps)


def with_pass_steps(steps: tuple[Step, ...], change: Callable[[PassStep], PassStep | None]) -> tuple[Step, ...]:
    """Return steps with each pass step replaced by the result of `change`, in order; None removes the step."""
    found = (
        change(step) if isinstance(step, PassStep) else step.with_steps(with_pass_steps(step.steps, change))
        for step in steps
    )
    return tuple(step for step in found if step is not None)


def excepting(steps: tuple[Step, ...], selectors: tuple[Any, ...]) -> tuple[Step, ...]:
    """Return steps that also leave alone the nodes that selectors select."""

    def change(step: PassStep) -> PassStep:
        more = tuple(one for one in selectors if one not in step.excepted)
        return replace(step, excepted=(*step.excepted, *more))

    return with_pass_steps(steps, change) if selectors else steps


def keeping_empty(steps: tuple[Step, ...], expect: Expect | None) -> tuple[Step, ...]:
    """Return steps that add no operator which takes no empty batch, if a recipe with them expects that."""
    asked = expect is not None and expect.empty is not None
    return with_pass_steps(steps, lambda step: replace(step, keeps_empty=True)) if asked else steps


STANDARD = "standard"
"""The name of the target of a recipe that has none."""


def used_targets(steps: tuple[Step, ...]) -> dict[str, str]:
    """Return the targets of the recipes that steps use, except the standard one, each with the recipe that has it."""
    found: dict[str, str] = {}
    for step in steps:
        if isinstance(step, RepeatStep):
            found = used_targets(step.steps) | found
        elif isinstance(step, UseStep) and step.recipe.target != STANDARD:
            found.setdefault(step.recipe.target, step.recipe.name)
    return found


@dataclass(frozen=True)
class Recipe:
    """One recipe. Relative paths in it were resolved against its folder; `path` is None if it has no file.

    `on_failure` applies to steps without their own; if None, the recipe that uses this one decides. `target` is the
    name of a shipped target, or the path of a profile; without one, it is that of the recipes it uses. With
    `provenance`, outputs include a provenance statement.
    """

    name: str
    steps: tuple[Step, ...] = ()
    about: str = ""
    path: Path | None = None
    model: Path | None = None
    output: str | None = None
    plugins: tuple[str, ...] = ()
    rules: Mapping[str, Pass] = field(default_factory=FrozenDict)
    inputs: InputsSpec = field(default_factory=InputsSpec)
    verify: VerifySpec = field(default_factory=VerifySpec)
    on_failure: OnFailure | None = None
    expect: Expect = field(default_factory=Expect)
    baseline: Baseline | None = None
    target: str = STANDARD
    provenance: bool = True

    @property
    def profile(self) -> Target:
        """The profile of its target."""
        from surgery.model.targets import shipped

        return shipped.find(self.target)
