"""Rules as they are in recipes: what they become, and every mistake in them with its place."""

import copy
import json
import pickle
from pathlib import Path

import pytest
from support.rule_texts import SWISH, mistakes, recipe, rule_of

from surgery.base.errors import RecipeError
from surgery.base.promises import Parity
from surgery.engine.recipe import PassStep, Recipe, RepeatStep, UseStep, load, parse
from surgery.engine.registry.catalog import catalog

# What they become


def test_a_rule_is_a_pass_of_its_recipe() -> None:
    found = parse(recipe(SWISH + "parity: exact\nabout: Fewer nodes.\n"), "r.yaml")
    (step,) = found.steps
    assert isinstance(step, PassStep)
    assert step.declared is found.rules["swish"] is step.find()
    made = step.find()
    assert (made.name, made.kind, made.parity, made.doc) == ("swish", "pattern", Parity.EXACT, "Fewer nodes.")
    assert (made.origin, made.place, made.options, made.is_standard) == ("r.yaml", "r.yaml:3", (), True)
    assert "swish" not in catalog.passes()


def test_rules_may_follow_steps_and_be_used_in_repeats() -> None:
    text = (
        "steps:\n  - repeat: 2\n    steps: [{pass: swish, when: {nodes: '> 1'}}]\n" + recipe(SWISH).split("steps:")[0]
    )
    (repeat,) = parse(text).steps
    assert isinstance(repeat, RepeatStep)
    (step,) = repeat.steps
    assert isinstance(step, PassStep) and step.declared is not None


def test_parsed_rules_and_their_copies_are_equal() -> None:
    one, other = parse(recipe(SWISH)), parse(recipe(SWISH))
    assert one == other == copy.deepcopy(one) == pickle.loads(pickle.dumps(one))
    assert one != parse(recipe(SWISH.replace("Swish", "Other")))


def test_rules_are_local_to_their_recipe(tmp_path: Path) -> None:
    (tmp_path / "inner.yaml").write_text(recipe(SWISH))
    outer = recipe(SWISH.replace("Swish", "Other")).replace("steps:", "steps:\n  - use: inner.yaml")
    (tmp_path / "outer.yaml").write_text(outer)
    use, step = load(tmp_path / "outer.yaml").steps
    assert isinstance(use, UseStep) and isinstance(step, PassStep)
    assert emitted(use.recipe) == "y = com.acme::Swish(x)\n"
    assert step.find().function.emit == "y = com.acme::Other(x)\n"
    (tmp_path / "lone.yaml").write_text("steps:\n  - use: inner.yaml\n  - swish\n")
    with pytest.raises(RecipeError, match=r"lone.yaml:3:5: no pass 'swish'"):
        load(tmp_path / "lone.yaml")


def emitted(found: Recipe) -> str:
    return str(found.rules["swish"].function.emit)


@pytest.mark.parametrize(
    "rule",
    [
        "match: y = Relu(x)\nemit: y = x",
        "match: 'y = Relu(x)'\nemit: \"y = x\"",
        "match: >\n  y = Relu(x)\nemit: |-\n  y = x",
        'match: "t = Neg(x)\\ny = Relu(t)"\nemit: y = x',
        "match: [y = Relu(x), y = Abs(x)]\nemit: y = x",
        "{match: y = Relu(x), emit: y = x}",
        "match: |2\n    y = Relu(x)\nemit: |  # a comment\n  # another\n\n  y = x  # a third",
        "match: y = Relu(x)\nemit: y = x\nwhere: rank(x) == 4",
        "match: y = Relu(x)\nemit: y = x\nwhere: {rank(x) == 4: no image}",
        "match: y = Relu(x)\nemit: y = x\nwhere:\n  - rank(x) == 4: no\n  - |\n    size(x) > 4\n  - 'rank(x) < 9'",
        "match: y = Relu(x)\nemit: y = x\nopset: '>= 13'\nparity: lossy\nabout: |\n  Two\n  lines.",
    ],
)
def test_ways_to_write_a_rule(rule: str) -> None:
    rule_of(recipe(rule))


def test_domains_opsets_and_reasons_are_read() -> None:
    rule = rule_of(recipe(SWISH + "domains: {com.acme: 3}\nopset: 17\nwhere:\n  - rank(x) == 2: no matrix\n")).rule
    assert (rule.domains, rule.opset, rule.where) == ((("com.acme", 3),), "== 17", (("rank(x) == 2", "no matrix"),))


# Mistakes in the mapping


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rules: 5\nsteps: [drop-dropout]\n", ["1:8: 'rules' takes a mapping of names to rules, not 5"]),
        ("rules: [a]\nsteps: [drop-dropout]\n", ["1:8: 'rules' takes a mapping of names to rules, not a list"]),
        (recipe("5"), ["3:5: 'swish' takes a mapping with 'match' and 'emit', not 5"]),
        (recipe("match: y = Relu(x)"), ["3:5: rule 'swish' needs 'emit'"]),
        (recipe("match:\nemit: y = x"), ["3:5: rule 'swish' needs 'match'"]),
        (recipe("mach: y = Relu(x)\nemit: y = x"), ["3:5: no key 'mach'; did you mean 'match'?"]),
        (recipe("match: 5\nemit: y = x"), ["3:12: 'match' takes ONNX text such as 'y = Relu(x)', not 5"]),
        (recipe("match: []\nemit: y = x"), ["3:12: 'match' lists no pattern"]),
        (
            recipe("match: [y = Relu(x), [a]]\nemit: y = x"),
            ["3:26: 'match' takes ONNX text such as 'y = Relu(x)', not a list"],
        ),
        (
            recipe(SWISH + "parity: exakt"),
            ["8:13: 'parity' takes exact, close, lossy or intended, not 'exakt'; did you mean 'exact'?"],
        ),
        (recipe(SWISH + "opset: '> x'"), ["8:12: '> x' is not a comparison such as 0, '>= 1' or '<= 500'"]),
        (
            recipe(SWISH + "domains: com.acme"),
            ["8:14: 'domains' takes a mapping such as {com.acme: 1}, not 'com.acme'"],
        ),
        (recipe(SWISH + "domains: {com.acme: 0}"), ["8:25: 'com.acme' is at least 1, not 0"]),
        (
            recipe(SWISH + "domains: {ai.onnx: 13}"),
            ["8:15: 'ai.onnx': the version of the default domain is the model's; 'opset' can ask for one"],
        ),
        (
            recipe(SWISH + "domains: {com.acne: 1}"),
            ["8:15: no operator in this rule has the domain 'com.acne'; did you mean 'com.acme'?"],
        ),
        (
            recipe(SWISH + "where: 5"),
            ["8:12: 'where' takes a condition such as 'rank(x) == 4', not 5; quote what begins with '{'"],
        ),
        (recipe(SWISH + "where: [rank(x) == 4: 5]"), ["8:27: 'reason' takes the reason for refusing, not 5"]),
        (
            recipe(SWISH + "where: |\n  rank(x) == 4\n  size(x) > 2"),
            ["8:12: a condition must be on one line; write each as an item of a list"],
        ),
        (
            recipe("match: >\n  s = Sigmoid(x)\n  y = Mul(x, s)\nemit: y = x"),
            ["3:12: the lines of 'match' run together here; write '|' after the key and one node on each line below"],
        ),
        (
            recipe("match: s = Sigmoid(x)\n  y = Mul(x, s)\nemit: y = x"),
            ["3:12: the lines of 'match' run together here; write '|' after the key and one node on each line below"],
        ),
        (
            recipe(SWISH, name="Swish"),
            ["2:3: 'Swish' is not a name for a pass; use lower-case words joined by hyphens, such as 'swish'"],
        ),
        (recipe(SWISH, name="use", steps="drop-dropout"), ["2:3: 'use' is a keyword of steps and cannot name a rule"]),
        (
            recipe(SWISH, name="drop-dropout"),
            ["2:3: rule 'drop-dropout' has the name of a pass of surgery; choose another"],
        ),
        (
            recipe(SWISH, steps="drop-dropout"),
            ["2:3: no step uses the rule 'swish'; add '- swish' to 'steps', or remove the rule"],
        ),
        (recipe(SWISH, steps="swish: {speed: 3}"), ["9:13: pass 'swish' has no option 'speed'"]),
        (recipe(SWISH, steps="swihs"), ["9:5: no pass 'swihs'; did you mean 'swish'?"]),
        (
            recipe(SWISH).replace("steps:", "  swish: {match: y = Relu(x), emit: y = x}\nsteps:"),
            ["8:3: duplicate key 'swish'; line 2 has it already; remove one"],
        ),
    ],
)
def test_mistakes_in_the_mapping(text: str, expected: list[str]) -> None:
    assert [found.partition(" @ ")[0] for found in mistakes(text)] == expected


def test_the_schema_knows_rules() -> None:
    from surgery.engine.recipe.jsonschema import schema

    described = json.loads(json.dumps(schema()))
    assert set(described["$defs"]["rule"]["properties"]) == {
        "match", "emit", "where", "parity", "about", "opset", "domains", "functions",
    }  # fmt: skip
