"""The rules of a recipe: passes in ONNX text. Read here into `surgery.rules.rule.Rule`, and checked at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from surgery.errors import Problem, UsageError
from surgery.promises import Parity
from surgery.recipe import blocks
from surgery.recipe.draft import Draft, RuleUse
from surgery.recipe.nodes import Node, Scalar, Table, describe, is_null, quoted
from surgery.recipe.reader import Field, Schema, defined, listed
from surgery.recipe.sections import when_fields
from surgery.recipe.steps import WORDS
from surgery.registry.declare import Option, Pass, require_name

if TYPE_CHECKING:
    from surgery.rules.rule import Rule

_DOMAIN = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*")
_TEXT: Schema = {"type": "string", "pattern": r"\S"}
_BLOCK = "write '|' after the key and one node on each line below"


@dataclass(frozen=True)
class RulePass(Pass):
    """The pass that a rule makes. It belongs to the recipe, is data, and so runs as the engine's own passes do."""

    @property
    def rule(self) -> Rule:
        """The rule itself."""
        from surgery.rules.rule import Rule

        assert isinstance(self.function, Rule)
        return self.function

    @property
    def written(self) -> dict[str, Any]:
        """What a recipe says to make this rule, by the keys of `rule_fields`."""
        rule = self.rule
        said = {
            "about": rule.about,
            "match": rule.match[0] if len(rule.match) == 1 else list(rule.match),
            "where": [{condition: reason} if reason else condition for condition, reason in rule.where],
            "emit": rule.emit,
            "opset": rule.opset,
            "domains": dict(rule.domains),
            "functions": rule.functions,
            "parity": self.parity.value,
        }
        return {name: value for name, value in said.items() if value}

    @property
    def doc(self) -> str:
        """What the rule says about itself."""
        return self.rule.about

    @property
    def example(self) -> str | None:
        """Nothing: a rule has no docstring."""
        return None

    @property
    def module(self) -> str:
        """The module that runs the rule."""
        return type(self.function).__module__

    @property
    def origin(self) -> str:
        """The recipe that the rule stands in."""
        return self.declared_at.rpartition(":")[0]

    @property
    def options(self) -> tuple[Option, ...]:
        """Nothing: what a rule says is fixed."""
        return ()

    @property
    def theme(self) -> str:
        """Where it comes from."""
        return self.origin

    @property
    def is_standard(self) -> bool:
        """Whether it needs no containment: the engine alone does what a rule says."""
        return True


def rules_field(draft: Draft) -> Field:
    """Say what `rules` takes."""
    schema = {"type": "object", "additionalProperties": defined("rule")}
    return Field(lambda _: None, "Passes of this recipe, by their names: what to match and what to emit.", schema)


def rule_fields(draft: Draft) -> dict[str, Field]:
    """Say what one rule takes. Texts are kept as nodes, for the places of mistakes in them."""
    return {
        "match": Field(
            lambda node: _texts(draft, node, "match"),
            "The pattern to look for, in ONNX text; of several, each is a way to write the same thing.",
            listed(_TEXT),
        ),
        "emit": Field(lambda node: _text(draft, node, "emit"), "What takes the place of a match, in ONNX text.", _TEXT),
        "where": Field(
            lambda node: _conditions(draft, node),
            "What has to hold of a match: conditions, or mappings of a condition to the reason for refusing.",
            listed({"anyOf": [_TEXT, {"type": "object", "additionalProperties": _TEXT}]}),
        ),
        "parity": draft.choice(
            "parity", [each.value for each in Parity], about="What the rule promises of the results (close)."
        ),
        "about": draft.text("about", lines=True, about="What the rule does, and why that is right."),
        "opset": replace(when_fields(draft)["opset"], about="The versions of the default opset that the rule is for."),
        "domains": Field(
            lambda node: _domains(draft, node),
            "The versions of the domains whose operators are emitted (1); a model that lacks one imports it.",
            {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}},
        ),
        "functions": Field(
            lambda node: _text(draft, node, "functions", kind="functions"),
            "Model-local functions in ONNX text, that the model gets with the first match.",
            _TEXT,
        ),
    }


def read_rules(draft: Draft, node: Node) -> dict[str, RuleUse]:
    """Read all rules; one with mistakes is known by its name and has no pass."""
    if not isinstance(node, Table):
        draft.wrong(node, "rules", "a mapping of names to rules")
        return {}
    found: dict[str, RuleUse] = {}
    for key, value in node.pairs:
        name = draft.key(key)
        if isinstance(key, Scalar) and name is not None and name not in found:
            before = len(draft.problems)
            _check_name(draft, key, name)
            made = _read_rule(draft, name, value)
            found[name] = RuleUse(name, key, made if len(draft.problems) == before else None)
    return found


def _check_name(draft: Draft, key: Node, name: str) -> None:
    try:
        require_name(name)
    except UsageError as error:
        draft.problem(key, str(error))
        return
    if name in WORDS:
        draft.problem(key, f"{quoted(name)} is a word of steps and no name for a rule")


def _read_rule(draft: Draft, name: str, node: Node) -> RulePass | None:
    if not isinstance(node, Table):
        draft.wrong(node, name, "a mapping with 'match' and 'emit'")
        return None
    found = draft.fields(node, name, rule_fields(draft))
    empty = {key: value for key, value in node.pairs if is_null(value)}
    for wanted in ("match", "emit"):
        if wanted not in found and not node.open and not _was_given(node, wanted):
            at = next((key for key in empty if isinstance(key, Scalar) and key.value == wanted), node)
            draft.problem(at, f"rule {quoted(name)} needs '{wanted}'")
    if "match" not in found or "emit" not in found:
        return None
    return _checked(draft, name, node, found)


def _was_given(node: Table, name: str) -> bool:
    return any(isinstance(key, Scalar) and key.value == name and not is_null(value) for key, value in node.pairs)


def _checked(draft: Draft, name: str, node: Table, found: Mapping[str, Any]) -> RulePass:
    from surgery.rules.check import mistakes
    from surgery.rules.rule import Rule

    matches, emit, functions = found["match"], found["emit"], found.get("functions")
    where = found.get("where", ())
    rule = Rule(
        match=tuple(each.text for each in matches),
        emit=emit.text,
        where=tuple((condition.text.rstrip("\n"), reason) for condition, reason in where),
        opset=str(found.get("opset", "")),
        domains=tuple(sorted((domain, version) for domain, (version, _) in found.get("domains", {}).items())),
        functions=functions.text if functions is not None else "",
        about=found.get("about", ""),
    )
    texts: dict[str, list[Scalar]] = {
        "match": list(matches),
        "emit": [emit],
        "where": [condition for condition, _ in where],
        "functions": [functions] if functions is not None else [],
        "domains": [key for _, (_, key) in sorted(found.get("domains", {}).items())],
    }
    for mistake in mistakes(rule):
        at = texts[mistake.part][mistake.index]
        draft.problems.append(blocks.problem(draft.path, at, mistake.error))
    parity = Parity(found.get("parity", Parity.CLOSE.value))
    return RulePass(name, parity, "pattern", rule, rule.match, declared_at=f"{draft.path}:{node.line}")


def _text(draft: Draft, node: Node, name: str, kind: str = "nodes") -> Scalar | None:
    """Read a text of ONNX and keep the node; what YAML has joined into one line is told apart from a mistake in it."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str) or not node.text.strip():
        draft.wrong(node, name, "ONNX text such as 'y = Relu(x)'")
        return None
    if kind == "nodes" and blocks.runs_together(node):
        draft.problem(node, f"the lines of '{name}' run together here; {_BLOCK}")
        return None
    return node


def _texts(draft: Draft, node: Node, name: str) -> tuple[Scalar, ...] | None:
    items = draft.items(node)
    texts = [_text(draft, item, name) for item in items]
    if not items:
        draft.problem(node, f"'{name}' lists no pattern")
    return None if not texts or None in texts else tuple(text for text in texts if text is not None)


def _conditions(draft: Draft, node: Node) -> tuple[tuple[Scalar, str], ...]:
    """Read conditions: texts, or mappings of a condition to a reason."""
    found: list[tuple[Scalar, str]] = []
    for item in [node] if isinstance(node, Table) else draft.items(node):
        for condition, reason in item.pairs if isinstance(item, Table) else [(item, None)]:
            if not isinstance(condition, Scalar) or not isinstance(condition.value, str):
                wanted = "a condition such as 'rank(x) == 4'"
                draft.problem(
                    condition, f"'where' takes {wanted}, not {describe(condition)}; quote what begins with '{{'"
                )
                continue
            if "\n" in condition.text.rstrip("\n"):
                draft.problem(condition, "a condition stands on one line; write each as an item of a list")
                continue
            told = "" if reason is None else draft.text("reason", "the reason for refusing")(reason)
            if told is not None:
                found.append((condition, told))
    return tuple(found)


def _domains(draft: Draft, node: Node) -> dict[str, tuple[int, Node]]:
    """Read the versions of domains, with the nodes of their names."""
    if not isinstance(node, Table):
        draft.wrong(node, "domains", "a mapping such as {com.acme: 1}")
        return {}
    found: dict[str, tuple[int, Node]] = {}
    for key, value in node.pairs:
        name = draft.key(key)
        version = draft.whole(str(name), least=1, wanted="the version of the domain")(value)
        if name is None or version is None:
            continue
        if name in ("ai.onnx", "") or not _DOMAIN.fullmatch(name):
            hint = "the version of the default domain is the model's; 'opset' can ask for one"
            other = "a domain is words joined by dots, such as com.acme"
            draft.problem(key, f"{quoted(name)}: {hint if name in ('ai.onnx', '') else other}")
            continue
        found.setdefault(name, (version, key))
    return found


def clashes(draft: Draft, known: Mapping[str, Pass]) -> Iterator[Problem]:
    """Yield the rules whose names other passes have."""
    for use in draft.rules.values():
        if use.name in known:
            other = known[use.name].origin
            message = f"rule {quoted(use.name)} has the name of a pass of {other}; choose another"
            yield Problem(draft.path, use.key.line, use.key.column, message)


def unused(draft: Draft) -> Iterator[Problem]:
    """Yield the rules that no step uses: no other recipe can, so that they are a slip or left over."""
    used = {use.name for use in draft.passes}
    for use in draft.rules.values():
        if use.name not in used:
            message = f"no step uses the rule {quoted(use.name)}; add '- {use.name}' to 'steps', or remove the rule"
            yield Problem(draft.path, use.key.line, use.key.column, message)
