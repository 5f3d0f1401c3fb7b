"""Recipes with rules, and what is wrong with them."""

import pytest

from surgery.base.errors import RecipeError
from surgery.engine.recipe import parse
from surgery.engine.recipe.rules import RulePass


def recipe(rule: str, *, name: str = "swish", steps: str = "") -> str:
    body = "".join(f"    {line}\n" if line else "\n" for line in rule.strip("\n").splitlines())
    return f"rules:\n  {name}:\n{body}steps:\n  - {steps or name}\n"


def mistakes(text: str) -> list[str]:
    """All mistakes in a recipe, as line:column: message, and what the caret points at."""
    with pytest.raises(RecipeError) as caught:
        parse(text, "r.yaml")
    found = []
    for problem in caught.value.problems:
        lines = str(problem).splitlines()
        pointed = ""
        if len(lines) > 1:
            _, source, caret = lines
            assert text.splitlines()[problem.line - 1] == source.removeprefix("    ")
            assert caret.index("^") - 4 == problem.column - 1
            pointed = f" @ {source[caret.index('^') :]}"
        found.append(f"{problem.line}:{problem.column}: {problem.message}{pointed}")
    return found


SWISH = """
match: |
  s = Sigmoid(x)
  y = Mul(x, s)
emit: |
  y = com.acme::Swish(x)
"""


def rule_of(text: str) -> RulePass:
    (made,) = parse(text).rules.values()
    assert isinstance(made, RulePass)
    return made
