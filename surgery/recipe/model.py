"""The keys of recipes: a pydantic model for each mapping in a recipe, with a field for each key.

The loader validates with these models, and the JSON schema and the reference are generated from them. Each model
produces one of the immutable values of `schema.py`, or part of the specification of a verification.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    create_model,
)

from surgery.recipe import schema, steps
from surgery.recipe.draft import Draft, NamedError, NotedError, PassUse, TakesError
from surgery.recipe.fields import (
    Count,
    Flag,
    Frozen,
    Line,
    OneOrMore,
    Section,
    Unsigned,
    Whole,
    Word,
    entries,
    key,
    needed,
    read_text,
    reads,
    takes,
    text,
    value_of,
)
from surgery.recipe.nodes import Listing, Node, Table, describe, key_text, plain, quoted
from surgery.recipe.paths import below, is_file, mode
from surgery.recipe.plugins import PATTERN, read_local, read_plugin
from surgery.recipe.rules import Rule, read_rules
from surgery.recipe.spelling import meant, nearest
from surgery.registry.options import SizeUnit, parse_size
from surgery.verification.comparing.metrics import LIMITS, Metric
from surgery.verification.inputs.spec import (
    Compare,
    DataSpec,
    FrozenDict,
    GeneratorSpec,
    InputsSpec,
    Mode,
    Place,
    TensorSpec,
    Unverified,
    VerifySpec,
)

# Inputs

TENSOR_FILES = (".npy", ".npz", ".pb")
_A_TENSOR = "the path of a .npy, .npz or .pb file"
_SETS = "the paths of .npz files and of folders with input_0.pb or test_data_set_0 in them"
_FUNCTION = "the path of a Python file and the name of a function in it, such as inputs.py:make"


def _values(node: Node, draft: Draft) -> tuple[Any, ...]:
    if not isinstance(node, Listing) or not node.items:
        raise TakesError("a list such as [0, 1]")
    wrong = next((item for item in node.items if value_of(item) is None), None)
    if wrong is not None:
        draft.problem(wrong, f"'values' lists numbers, bools or texts, not {describe(wrong)}")
        raise NotedError
    return tuple(plain(item) for item in node.items)


def _range(node: Node, draft: Draft) -> tuple[float, float]:
    values = [plain(item) for item in node.items] if isinstance(node, Listing) else []
    numbers = [one for one in values if isinstance(one, int | float) and not isinstance(one, bool)]
    if not len(values) == len(numbers) == 2 or not all(map(math.isfinite, numbers)):
        raise TakesError("the least and the greatest value, such as [0, 9]")
    if numbers[0] > numbers[1]:
        raise ValueError(f"'range' starts above its end; did you mean [{numbers[1]}, {numbers[0]}]?")
    return numbers[0], numbers[1]


def _tensor_file(name: str, info: ValidationInfo[Draft]) -> Path:
    path = below(info.context.folder, name)
    if path.suffix not in TENSOR_FILES:
        raise TakesError(_A_TENSOR)
    if not is_file(path):
        raise ValueError(f"no file {quoted(name)} in the recipe's folder")
    return path


def _data(node: Node, draft: Draft) -> DataSpec:
    name = read_text(node, _SETS)
    path = below(draft.folder, name)
    if not mode(path):
        raise ValueError(f"no file or folder {quoted(name)} in the recipe's folder")
    if is_file(path) and path.suffix not in TENSOR_FILES:
        raise TakesError(_SETS)
    return DataSpec(path, place=_place(draft, node))


def _generator(node: Node, draft: Draft) -> GeneratorSpec:
    file, colon, function = read_text(node, _FUNCTION).rpartition(":")
    if not colon or not file.endswith(".py") or not function.isidentifier():
        raise TakesError(_FUNCTION)
    return GeneratorSpec(read_local(node, draft, file, "run"), function, _place(draft, node))


def _place(draft: Draft, node: Node) -> Place:
    return Place(draft.path, node.line, node.column)


def _pattern(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern})


class Tensor(Section):
    """How to fill one input. Exactly one of these keys is given."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})
    wanted = "a mapping such as {values: [0, 1]} or {range: [0, 9]}"

    values: Annotated[tuple[float | bool | str, ...], Field(min_length=1), reads(_values)] = key(
        "The values to choose among."
    )
    range: Annotated[tuple[float, ...], Field(min_length=2, max_length=2), reads(_range)] = key(
        "The least and the greatest value, both included for integers."
    )
    file: Annotated[Any, AfterValidator(_tensor_file), text(_A_TENSOR), _pattern(r"\.(npy|npz|pb)$")] = key(
        "A .npy, .npz or .pb file with the values."
    )

    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> TensorSpec:
        """Make how to fill the input."""
        if node.open or any(key_text(at) not in self.keys() for at, _ in node.pairs):
            raise NotedError
        if len(given) != 1:
            raise NamedError(f"input {{}} takes one of {', '.join(self.keys())}; here are {len(given)}")
        return TensorSpec(**given, place=_place(draft, node))


_Extent = Annotated[int, Field(ge=1), takes("a whole number or a list of them", int)]


class Inputs(Section):
    """What to feed the model."""

    makes = InputsSpec
    wanted = "a mapping such as {dims: {batch: 1}}"

    dims: Annotated[
        dict[str, Annotated[tuple[_Extent, ...], OneOrMore("dim {} lists no extent")]],
        entries("a mapping such as {batch: [1, 3]}"),
        Frozen,
    ] = key("The sizes to try for each dynamic dim, by name.")
    tensors: Annotated[dict[str, Tensor], entries("a mapping such as {mask: {values: [0, 1]}}"), Frozen] = key(
        "How to fill single inputs, by name."
    )
    data: Annotated[tuple[Annotated[Any, reads(_data), _pattern(r"\S")], ...], OneOrMore()] = key(
        "Complete sets of inputs: .npz files, folders with input_0.pb, or folders of these."
    )
    generator: Annotated[Any, reads(_generator), _pattern(r"\.py:[^\W\d]\w*$")] = key(
        "A function of a Python file that makes inputs, such as inputs.py:make. It is code, and needs trust."
    )
    only_given: Flag = key("Use the given inputs only; generate none.")


# Verification


def _memory(node: Node, _: Draft) -> int:
    try:
        size = parse_size(value_of(node))
    except (ValueError, OverflowError):
        size = None
    if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
        raise TakesError("a size such as 512MB or 2GiB")
    return size


def _library(node: Node, draft: Draft) -> Path:
    # Loading a library runs it, so that it needs the caller's trust as Python does.
    return read_local(node, draft, read_text(node, "the paths of shared libraries"), "load")


def _limit(metric: Metric) -> Any:
    """Say what the limit of a metric takes."""
    return _at_least(metric.example, metric.most)


def _at_least(example: str, most: float = math.inf) -> Any:
    """Take a number, or the text `>= number`."""

    def read(node: Node) -> float:
        value = value_of(node)
        if isinstance(value, str):
            found = re.fullmatch(r"\s*>=\s*([0-9]*\.?[0-9]+)\s*", value)
            value = float(found.group(1)) if found is not None else None
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
            raise TakesError(f"the least that is accepted, such as {example}")
        return value

    bound = {"maximum": most} if most < math.inf else {}
    number = {"type": "number", "minimum": 0, **bound}
    at_least = {"type": "string", "pattern": r"^\s*>=\s*[0-9]*\.?[0-9]+\s*$"}
    return Annotated[float, Field(le=most), BeforeValidator(read), WithJsonSchema({"anyOf": [number, at_least]})]


class _Verify(Section):
    wanted = "a mapping such as {rtol: 1e-4, atol: 1e-5}"

    rtol: Unsigned = key("The relative tolerance. By default, it depends on the dtype and the pass.")
    atol: Unsigned = key("The absolute tolerance. By default, it depends on the dtype and the pass.")
    seed: Whole = key("The seed of the random inputs.")
    mode: Annotated[Mode, Word] = key("Verify after each step, once at the end, or never.")
    compare: Annotated[Compare, Word] = key(
        "Compare the changed region after each step and the whole model at the end, or the whole model after each step."
    )
    unverified: Annotated[Unverified, Word] = key("Whether a step that could not be verified fails.")
    timeout: Annotated[float, Field(gt=0), takes("a number of seconds", int, float)] = key(
        "The time limit of one run of the model, in seconds."
    )
    memory: Annotated[int, Field(ge=1), SizeUnit(), reads(_memory)] = key(
        "The memory limit of the process that runs the model, such as 2GiB."
    )
    custom_op_library: Annotated[tuple[Annotated[Any, reads(_library), _pattern(r"\S")], ...], OneOrMore()] = key(
        "Shared libraries with custom operators for ONNX Runtime, by path. They are code, and need trust."
    )

    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> VerifySpec:
        """Make what is asked of a verification; the limits of metrics stand together there."""
        least = {name: given.pop(name) for name in LIMITS if name in given}
        return VerifySpec(**given, least=FrozenDict(least))


_LIMITS: Any = {name: (_limit(metric), key(metric.least)) for name, metric in LIMITS.items()}
Verify = create_model("Verify", __base__=_Verify, **_LIMITS)


# Conditions


class When(Section):
    """Conditions on the model before a step."""

    makes: ClassVar[Any] = schema.When
    wanted = 'a mapping such as {ops: {Softmax: ">= 1"}}'

    ops: Annotated[dict[str, Count], entries("a mapping such as {Dropout: 0}"), Frozen] = key(
        "The number of nodes of an operator: a number or a comparison."
    )
    nodes: Count = key("The number of all nodes.")
    opset: Count = key("The version of the default opset.")


class _Expected(When):
    makes: ClassVar[Any] = schema.Expect
    wanted = 'a mapping such as {ops: {Dropout: 0}, nodes: "<= 500"}'


_Signature = Annotated[Literal["unchanged"], Word]
_SIGNATURE = "Inputs and outputs keep their names, order, types and dims."


class Expect(_Expected):
    """Expectations of the resulting model."""

    signature: _Signature = key(_SIGNATURE)
    speed: _at_least("1.2") = key(  # type: ignore[valid-type]
        "The least speed: the measured time of the original divided by that of the result, on the inputs of the "
        "recipe and with one thread. The low end of its 95 % interval counts."
    )


class ExpectStep(_Expected):
    """Expectations of the model after a step."""

    sites: Count = key("The number of sites that the pass rewrote.")
    signature: _Signature = key(_SIGNATURE)


# Steps


def _times(node: Node, _: Draft) -> int | None:
    value = value_of(node)
    if value == schema.UNTIL_STABLE:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        hint = meant(value, (schema.UNTIL_STABLE,))
        raise ValueError(f"'repeat' takes {_ROUNDS}, not {describe(node)}{hint}")
    if value < 1:
        raise ValueError(f"'repeat' is at least 1, not {describe(node)}")
    return value


def _options(node: Node, draft: Draft) -> FrozenDict[str, Any]:
    if not isinstance(node, Table):
        raise TakesError("a mapping of options")
    return FrozenDict(steps.options(node, draft)[0])


def _use(node: Node, draft: Draft) -> schema.Recipe:
    recipe = draft.use(draft, node) if draft.use is not None else None
    if recipe is None:
        raise NotedError
    return recipe


_ROUNDS = f"{schema.UNTIL_STABLE} or a number of rounds"
_ON_FAILURE = Annotated[schema.OnFailure, Word]
_WHEN = "Run this only if the model meets all of these conditions."


class _Step(Section):
    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> Any:
        """Make a step that knows its place."""
        return self.makes(**given, line=node.line, column=node.column, path=draft.path)


class PassLong(_Step):
    """A step that runs a pass."""

    makes = schema.PassStep
    needs: ClassVar = {"pass": "'pass' needs the name of a pass"}

    name: Annotated[str, text("the name of a pass", lines=True)] = needed("The pass to run.", alias="pass")
    options: Annotated[Any, reads(_options), WithJsonSchema({"type": "object"})] = key(
        "The options of the pass.", alias="with"
    )
    when: When = key(_WHEN)
    on_failure: _ON_FAILURE = key(
        "What to do when the step fails: abort the run, roll the step back, keep the sites that hold (or roll back if "
        "none does), or keep the result. The default is the `on_failure` of the recipe."
    )
    expect: ExpectStep = key("Expectations of the model after this step; it fails if one is not met.")

    @classmethod
    def seen(cls, draft: Draft, node: Table, found: dict[str, Node]) -> None:
        """Note the pass, whose name and options are checked when all passes are known."""
        at = found.get("pass")
        name = value_of(at) if at is not None else None
        if at is not None and isinstance(name, str) and name.strip():
            values, keys = steps.options(found["with"], draft) if "with" in found else ({}, {})
            draft.passes.append(PassUse(draft.path, name.rstrip("\n"), values, node, at, keys))

    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> Any:
        """Make the step, with the pass itself where a rule of the recipe makes it."""
        rule = draft.rules.get(given["name"])
        return super().made(draft, node, {**given, "declared": rule.made if rule else None})


class Use(_Step):
    """A step that runs another recipe."""

    makes = schema.UseStep
    needs: ClassVar = {"use": "'use' needs the name or path of a recipe"}

    recipe: Annotated[Any, reads(_use), WithJsonSchema({})] = needed(
        "The name of a shipped recipe, the path of a recipe file, or a recipe itself, whose steps run here.",
        alias="use",
    )
    when: When = key(_WHEN)


class Repeat(_Step):
    """A step that runs steps several times."""

    makes = schema.RepeatStep
    needs: ClassVar = {
        "repeat": f"'steps' needs 'repeat' next to it: {schema.UNTIL_STABLE}, or a number of rounds",
        "steps": "'repeat' needs 'steps', the list of what to repeat",
    }

    times: Annotated[
        Any,
        reads(_times),
        WithJsonSchema({"anyOf": [{"const": schema.UNTIL_STABLE}, {"type": "integer", "minimum": 1}]}),
    ] = needed("The maximum number of rounds, or `until-stable`: until a round changes nothing.", alias="repeat")
    steps: Steps = needed("The steps of a round.")
    when: When = key(_WHEN)


def _tag(step: Table) -> str:
    return f"<{steps.kind(step)}>"


Step = Annotated[
    Annotated[PassLong, Tag("<pass>")] | Annotated[Use, Tag("<use>")] | Annotated[Repeat, Tag("<repeat>")],
    Discriminator(_tag),
    BeforeValidator(lambda node, info: steps.long(node, info.context)),
]
Steps = Annotated[
    tuple[Step, ...],
    BeforeValidator(lambda node, info: steps.listed(node, info.context)),
    WithJsonSchema({"type": "array"}),
]
Repeat.model_rebuild()


# The recipe


def _output(name: str) -> str:
    wrong = next((found for found in re.findall(r"\{[^{}]*\}", name) if found[1:-1] not in schema.OUTPUT_FIELDS), None)
    if wrong is not None:
        near = nearest(wrong[1:-1], schema.OUTPUT_FIELDS) or schema.OUTPUT_FIELDS[0]
        raise ValueError(f"'output' knows no {quoted(wrong)}; did you mean '{{{near}}}'?")
    return name


class Recipe(Section):
    """A recipe. Its rules are read before its steps, which name them."""

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
        _pattern(rf"^(?!.*\{{(?!({'|'.join(schema.OUTPUT_FIELDS)})\}})[^{{}}]*\}}).*\S"),
    ] = key("The output file, relative to the current folder; {stem} is the model's file name without its suffix.")
    plugins: Annotated[tuple[Annotated[Any, reads(read_plugin), _pattern(PATTERN)], ...], OneOrMore()] = key(
        "Modules (by name) and .py files (by path) that declare passes. A file that is not installed needs trust."
    )
    rules: Annotated[dict[str, Rule], reads(read_rules)] = key(
        "Rewrite rules, by name: passes that only this recipe has."
    )
    inputs: Inputs = key("What to feed the model.")
    verify: Verify = key("How strictly to verify.")  # type: ignore[valid-type]
    on_failure: _ON_FAILURE = key(
        "What to do about a step that fails, unless the step says so: `abort` (the default) ends the run and writes "
        "nothing; the others keep what holds. A recipe that uses this one may override it."
    )
    steps: Steps = needed("The steps, in order.")
    expect: Expect = key("Expectations of the resulting model.")

    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> schema.Recipe:
        """Make the recipe, called after its file if it has no name."""
        return schema.Recipe(**{"name": draft.name, **given})


BRINGS_PASSES = ("plugins", "rules")
"""The keys of a recipe by which it may name passes that nobody knows before it is loaded."""
NESTED = ("name", "about", "rules", "on_failure", "steps", "expect")
"""The fields that count of a recipe that another one uses."""
_NESTED: Any = {name: (field.annotation, field) for name, field in Recipe.model_fields.items() if name in NESTED}


class _Nested(Section):
    needs = Recipe.needs
    made = Recipe.made


Nested = create_model("Nested", __base__=_Nested, **_NESTED)
