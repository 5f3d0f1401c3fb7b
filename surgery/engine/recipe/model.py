"""The keys of recipes: a pydantic model for each mapping in a recipe, with a field for each key.

The loader validates with these models, and the JSON schema and the reference documentation are generated from them.
Each model produces one of the immutable values of `schema.py`, or a part of the specification of a verification.
Those of conditions are in `conditions`, those of inputs, verification and accuracy in `verification`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Tag,
    WithJsonSchema,
    create_model,
)

from surgery.base.frozen_dict import FrozenDict
from surgery.engine.recipe import schema, step_forms
from surgery.engine.recipe.conditions import TARGET, Baseline, Expect, ExpectStep, When
from surgery.engine.recipe.draft import Draft, NotedError, PassUse, TakesError
from surgery.engine.recipe.fields import (
    Flag,
    Line,
    OneOrMore,
    Section,
    Word,
    key,
    needed,
    reads,
    text,
    value_of,
)
from surgery.engine.recipe.output_names import FIELD, field_problem
from surgery.engine.recipe.plugins import PATTERN, read_plugin
from surgery.engine.recipe.recipe_paths import below
from surgery.engine.recipe.rules import Rule, read_rules
from surgery.engine.recipe.verification import Accuracy, Calibration, Inputs, Verify, pattern
from surgery.engine.yaml.spelling import meant
from surgery.engine.yaml.yaml_nodes import Table, YamlNode, describe, key_text
from surgery.model.patterns.selector import NodeSelector
from surgery.verification.inputs.spec import InputsSpec, VerifySpec

# Steps


def _times(node: YamlNode, _: Draft) -> int | None:
    value = value_of(node)
    if value == schema.UNTIL_STABLE:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        hint = meant(value, (schema.UNTIL_STABLE,))
        raise ValueError(f"'repeat' takes {_ROUNDS}, not {describe(node)}{hint}")
    if value < 1:
        raise ValueError(f"'repeat' is at least 1, not {describe(node)}")
    return value


def _options(node: YamlNode, draft: Draft) -> FrozenDict[str, Any]:
    if not isinstance(node, Table):
        raise TakesError("a mapping of options")
    return FrozenDict(step_forms.options(node, draft)[0])


def _use(node: YamlNode, draft: Draft) -> schema.Recipe:
    recipe = draft.use(draft, node) if draft.use is not None else None
    if recipe is None:
        raise NotedError
    return recipe


_ROUNDS = f"{schema.UNTIL_STABLE} or a number of rounds"
_ON_FAILURE = Annotated[schema.OnFailure, Word]
_EXCEPTED = Annotated[Any, reads(lambda node, _: step_forms.selectors(node)), WithJsonSchema(NodeSelector.json_schema)]
_EXCEPT = (
    "Nodes to leave alone: a name, a glob, a mapping such as `{op: Softmax}`, or a list of these, as for edits. A "
    "match that touches one of them does not fire."
)
_WHEN = "Run this only if the model meets all of these conditions."


class _Step(Section):
    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> Any:
        """Make a step with its position."""
        return self.makes(**given, line=node.line, column=node.column, path=draft.path)


class PassLong(_Step):
    """A step that runs a pass."""

    makes = schema.PassStep
    needs: ClassVar = {"pass": "'pass' needs the name of a pass"}

    name: Annotated[str, text("the name of a pass", lines=True)] = needed("The pass to run.", alias="pass")
    options: Annotated[Any, reads(_options), WithJsonSchema({"type": "object"})] = key(
        "The options of the pass.", alias="with"
    )
    excepted: _EXCEPTED = key(_EXCEPT, alias="except")
    when: When = key(_WHEN)
    on_failure: _ON_FAILURE = key(
        "What to do when the step fails: abort the run, roll the step back, keep the correct sites (or roll back "
        "if there are none), or keep the result. The default is the `on_failure` of the recipe."
    )
    expect: ExpectStep = key("Expectations of the model after this step; it fails if one is not met.")

    @classmethod
    def seen(cls, draft: Draft, node: Table, found: dict[str, YamlNode]) -> None:
        """Record the pass, whose name and options are checked when all passes are known."""
        at = found.get("pass")
        name = value_of(at) if at is not None else None
        if at is not None and isinstance(name, str) and name.strip():
            values, keys = step_forms.options(found["with"], draft) if "with" in found else ({}, {})
            draft.passes.append(PassUse(draft.path, name.rstrip("\n"), values, node, at, keys))

    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> Any:
        """Make the step, with the pass itself if it comes from a rule of the recipe."""
        rule = draft.rules.get(given["name"])
        return super().made(draft, node, {**given, "declared": rule.made if rule else None})


def _options_by_pass(node: YamlNode, draft: Draft) -> FrozenDict[str, Any]:
    """Read options for the steps of a used recipe; `Use` checks them when it knows the steps."""
    if not isinstance(node, Table):
        raise TakesError("a mapping of passes to their options")
    found = {}
    for at, value in node.pairs:
        name = draft.key(at)
        if name is not None and not isinstance(value, Table):
            draft.wrong(value, name, "a mapping of options")
        elif name is not None:
            found[name] = FrozenDict(step_forms.options(value, draft)[0])
    return FrozenDict(found)


class Use(_Step):
    """A step that runs another recipe."""

    makes = schema.UseStep
    needs: ClassVar = {"use": "'use' needs the name or path of a recipe"}

    recipe: Annotated[Any, reads(_use), WithJsonSchema({})] = needed(
        "The name of a shipped recipe, the path of a recipe file, or a recipe itself, whose steps run here.",
        alias="use",
    )
    without: Annotated[tuple[Annotated[str, text("the name of a pass")], ...], OneOrMore()] = key(
        "Passes whose steps in that recipe do not run."
    )
    options: Annotated[Any, reads(_options_by_pass), WithJsonSchema({"type": "object"})] = key(
        "Options for the steps of that recipe, by pass; they replace those of the step.", alias="with"
    )
    excepted: _EXCEPTED = key(_EXCEPT, alias="except")
    when: When = key(_WHEN)

    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> Any:
        """Make the step, with the changed recipe."""
        recipe, without, changed = given["recipe"], given.get("without", ()), given.get("options", {})
        parts = {key_text(at): value for at, value in node.pairs}
        known = {step.name: step for step in schema.pass_steps(recipe.steps)}
        for at in step_forms.named(parts.get("without")):
            step_forms.check_step(at, known, recipe, draft)
        options = parts.get("with")
        for at, value in options.pairs if isinstance(options, Table) else ():
            if step_forms.check_step(at, known, recipe, draft) and isinstance(value, Table):
                name = str(key_text(at))
                values = {**known[name].options, **changed.get(name, {})}
                draft.passes.append(PassUse(draft.path, name, values, value, at, step_forms.options(value, draft)[1]))

        def change(step: schema.PassStep) -> schema.PassStep | None:
            options = FrozenDict({**step.options, **changed.get(step.name, {})})
            return None if step.name in without else replace(step, options=options)

        excepted = given.get("excepted", ())
        if without or changed or excepted:
            inner = schema.excepting(schema.with_pass_steps(recipe.steps, change), excepted)
            given["recipe"] = replace(recipe, steps=inner)
        return super().made(draft, node, given)


class Repeat(_Step):
    """A step that runs steps several times."""

    makes = schema.RepeatStep
    needs: ClassVar = {
        "repeat": f"'steps' needs 'repeat' next to it: {schema.UNTIL_STABLE}, or a number of rounds",
        "steps": "'repeat' needs 'steps', the steps to repeat",
    }

    times: Annotated[
        Any,
        reads(_times),
        WithJsonSchema({"anyOf": [{"const": schema.UNTIL_STABLE}, {"type": "integer", "minimum": 1}]}),
    ] = needed("The maximum number of rounds, or `until-stable`: until a round changes nothing.", alias="repeat")
    steps: Steps = needed("The steps of a round.")
    excepted: _EXCEPTED = key(_EXCEPT, alias="except")
    when: When = key(_WHEN)

    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> Any:
        """Make the step; its steps leave the excepted nodes alone."""
        inner = schema.excepting(given["steps"], given.pop("excepted", ()))
        return super().made(draft, node, {**given, "steps": inner})


def _tag(step: Table) -> str:
    return f"<{step_forms.kind(step)}>"


Step = Annotated[
    Annotated[PassLong, Tag("<pass>")] | Annotated[Use, Tag("<use>")] | Annotated[Repeat, Tag("<repeat>")],
    Discriminator(_tag),
    BeforeValidator(lambda node, info: step_forms.long(node, info.context)),
]
Steps = Annotated[
    tuple[Step, ...],
    BeforeValidator(lambda node, info: step_forms.listed(node, info.context)),
    WithJsonSchema({"type": "array"}),
]
Repeat.model_rebuild()


# The recipe


def _output(name: str) -> str:
    problem = field_problem(name)
    if problem:
        raise ValueError(f"'output' {problem}")
    return name


class Recipe(Section):
    """A recipe. Its rules are read before its steps, which refer to them."""

    makes = schema.Recipe
    needs: ClassVar = {"steps": "a recipe needs 'steps', a list of passes"}

    name: Annotated[Line, text("the name of the recipe")] = key("The name of the recipe.", alias="recipe")
    about: Annotated[Line, text(lines=True)] = key("What the recipe is for.")
    model: Annotated[
        Line,
        AfterValidator(lambda name, info: below(info.context.folder, name)),
        text("the path of a model"),
    ] = key("The model to use when the command line names none.")
    output: Annotated[
        str,
        AfterValidator(_output),
        text("a file name such as '{stem}.opt.onnx'"),
        pattern(rf"^(?!.*\{{(?!({FIELD})\}})[^{{}}]*\}}).*\S"),
    ] = key(
        "The output file, relative to the current folder; {stem} is the model's file name without its suffix, and "
        "{sha256:12} the first 12 digits of the digest of the output, so that equal content has the same name."
    )
    plugins: Annotated[tuple[Annotated[Any, reads(read_plugin), pattern(PATTERN)], ...], OneOrMore()] = key(
        "Modules (by name) and .py files (by path) that declare passes. A file that is not installed needs trust."
    )
    rules: Annotated[dict[str, Rule], reads(read_rules)] = key(
        "Rewrite rules, by name: passes that only this recipe has."
    )
    inputs: Inputs = key("The inputs of the model.")
    verify: Verify = key("How strictly to verify.")
    accuracy: Accuracy = key("The accuracy budget of lossy passes.")
    calibration: Calibration = key("Representative inputs for calibration.")
    on_failure: _ON_FAILURE = key(
        "What to do if a step fails, unless the step overrides it: `abort` (the default) ends the run and writes "
        "nothing; the others continue. A recipe that uses this one may override it."
    )
    target: TARGET = key(
        "The runtime to optimize for: the name of a shipped target or the path of a profile (.yaml). Passes "
        "produce only nodes that it runs. The default is the target of the recipes that it uses, else `standard`."
    )
    steps: Steps = needed("The steps, in order.")
    expect: Expect = key("Expectations of the resulting model.")
    baseline: Baseline = key(
        "The figures of the last release, with which this run is compared: nodes, bytes, tolerance, speed."
    )
    provenance: Flag = key("Whether the output carries a provenance statement in its metadata. The default is true.")

    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> schema.Recipe:
        """Make the recipe, named after its file if it has no name."""
        accuracy, calibration = given.pop("accuracy", None), given.pop("calibration", None)
        if accuracy is not None:
            given["verify"] = replace(given.get("verify", VerifySpec()), accuracy=accuracy)
        if calibration is not None:
            given["inputs"] = replace(given.get("inputs", InputsSpec()), calibration=calibration)
        used = schema.used_targets(given.get("steps", ())) if given.get("target") is None else {}
        if len(used) > 1:
            named = " and ".join(f"'{target}' ({name})" for target, name in used.items())
            draft.problem(node, f"it uses recipes for several targets: {named}; write 'target:' with one of them")
        elif used:
            given["target"] = next(iter(used))
        kept = schema.keeping_empty(given.get("steps", ()), given.get("expect"))
        return schema.Recipe(**{"name": draft.name, **given, "steps": kept})


BRINGS_PASSES = ("plugins", "rules")
"""The keys of a recipe that may add passes which are unknown before it is loaded."""
NESTED = ("name", "about", "rules", "on_failure", "steps", "expect")
"""The fields of a recipe that count if another recipe uses it."""
_NESTED: Any = {name: (field.annotation, field) for name, field in Recipe.model_fields.items() if name in NESTED}


class _Nested(Section):
    needs = Recipe.needs
    made = Recipe.made


Nested = create_model("Nested", __base__=_Nested, **_NESTED)
