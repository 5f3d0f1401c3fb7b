"""The rules of a recipe: passes in ONNX text, read into `surgery.model.patterns.rule.Rule` and checked immediately."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, WithJsonSchema

from surgery.base.errors import Problem, UsageError
from surgery.base.frozen_dict import FrozenDict
from surgery.base.promises import Parity
from surgery.engine.recipe import block_text
from surgery.engine.recipe.draft import Draft, NamedError, RuleUse, TakesError
from surgery.engine.recipe.fields import (
    Count,
    Line,
    OneOrMore,
    Section,
    Word,
    items,
    key,
    needed,
    reads,
    takes,
    text,
)
from surgery.engine.recipe.schema import WORDS
from surgery.engine.registry.options import Option
from surgery.engine.registry.passes import Pass, require_name
from surgery.engine.yaml.yaml_nodes import Scalar, Table, YamlNode, describe, quoted

if TYPE_CHECKING:
    from surgery.model.patterns.rule import Rule as Rewriting

_DOMAIN = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*")
_BLOCK = "write '|' after the key and one node on each line below"


@dataclass(frozen=True)
class RulePass(Pass):
    """The pass of a rule. It belongs to the recipe and is data, so it runs like the engine's own passes."""

    @property
    def rule(self) -> Rewriting:
        """The rule itself."""
        from surgery.model.patterns.rule import Rule as Rewriting

        assert isinstance(self.function, Rewriting)
        return self.function

    @property
    def written(self) -> dict[str, Any]:
        """The rule in the form of a recipe, by the keys of `Rule`."""
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
        """The description of the rule."""
        return self.rule.about

    @property
    def example(self) -> str | None:
        """None, because a rule has no docstring."""
        return None

    @property
    def module(self) -> str:
        """The module that runs the rule."""
        return type(self.function).__module__

    @property
    def origin(self) -> str:
        """The recipe that contains the rule."""
        return self.declared_at.rpartition(":")[0]

    @property
    def options(self) -> tuple[Option, ...]:
        """Empty, because a rule has no options."""
        return ()

    @property
    def theme(self) -> str:
        """The origin of the rule."""
        return self.origin

    @property
    def is_standard(self) -> bool:
        """Whether it needs no containment: always true, because only the engine applies a rule."""
        return True


def _functions(node: YamlNode, _: Draft) -> Scalar:
    if not isinstance(node, Scalar) or not isinstance(node.value, str) or not node.text.strip():
        raise TakesError("ONNX text such as 'y = Relu(x)'")
    return node


def _nodes(node: YamlNode, draft: Draft) -> Scalar:
    """Read nodes as ONNX text; report lines that YAML has joined into one."""
    found = _functions(node, draft)
    if block_text.runs_together(found):
        raise NamedError(f"the lines of {{}} run together here; {_BLOCK}")
    return found


def _conditions(node: YamlNode, draft: Draft) -> tuple[tuple[Scalar, str], ...]:
    """Read conditions: texts, or mappings from conditions to reasons."""
    found: list[tuple[Scalar, str]] = []
    for item in items(node):
        for condition, reason in item.pairs if isinstance(item, Table) else [(item, None)]:
            if not isinstance(condition, Scalar) or not isinstance(condition.value, str):
                wanted = f"a condition such as 'rank(x) == 4', not {describe(condition)}"
                draft.problem(condition, f"'where' takes {wanted}; quote what begins with '{{'")
            elif "\n" in condition.text.rstrip("\n"):
                draft.problem(condition, "a condition must be on one line; write each as an item of a list")
            else:
                text = "" if reason is None else draft.read(_Reason, reason, "reason")
                found += [(condition, text)] if text is not None else []
    return tuple(found)


def _domains(node: YamlNode, draft: Draft) -> dict[str, tuple[int, YamlNode]]:
    """Read the versions of domains, with the nodes of their names."""
    if not isinstance(node, Table):
        raise TakesError("a mapping such as {com.acme: 1}")
    found: dict[str, tuple[int, YamlNode]] = {}
    for at, value in node.pairs:
        name = draft.key(at)
        version = draft.read(_Version, value, str(name))
        if name is None or version is None:
            continue
        if name in ("ai.onnx", ""):
            hint = "the version of the default domain is the model's; 'opset' can ask for one"
            draft.problem(at, f"{quoted(name)}: {hint}")
        elif not _DOMAIN.fullmatch(name):
            draft.problem(at, f"{quoted(name)}: a domain is words joined by dots, such as com.acme")
        else:
            found.setdefault(name, (version, at))
    return found


_Reason = Annotated[Line, text("the reason for refusing")]
_Version = Annotated[int, Field(ge=1), takes("the version of the domain", int)]
_Condition = Line | dict[str, Line]


class Rule(Section):
    """One rule. Texts are kept as nodes, for the positions of mistakes in them."""

    wanted = "a mapping with 'match' and 'emit'"
    checks_rest = True
    needs: ClassVar = {"match": "rule {} needs 'match'", "emit": "rule {} needs 'emit'"}

    match: Annotated[tuple[Annotated[Line, reads(_nodes)], ...], OneOrMore("{} lists no pattern")] = needed(
        "The pattern to look for, in ONNX text; if there are several, they are alternatives."
    )
    emit: Annotated[Line, reads(_nodes)] = needed("The replacement of a match, in ONNX text.")
    where: Annotated[tuple[_Condition, ...], OneOrMore(), reads(_conditions)] = key(
        "Conditions on a match, or mappings from a condition to the reason to refuse."
    )
    parity: Annotated[Parity, Word, WithJsonSchema({"enum": [each.value for each in Parity]})] = key(
        "The promise of the rule about its results (default: close)."
    )
    about: Annotated[Line, text(lines=True)] = key("What the rule does, and why it is correct.")
    opset: Count = key("The versions of the default opset that the rule supports.")
    domains: Annotated[dict[str, _Version], reads(_domains)] = key(
        "The versions of the domains of emitted operators (default: 1). A model that lacks one imports it."
    )
    functions: Annotated[Line, reads(_functions)] = key(
        "Model-local functions in ONNX text, added to the model with the first match."
    )

    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> RulePass:
        """Make the pass, and check it."""
        return _checked(draft, node, **given)


def read_rules(node: YamlNode, draft: Draft) -> FrozenDict[str, Pass]:
    """Read all rules; a rule with mistakes is recorded by name but has no pass."""
    if not isinstance(node, Table):
        raise TakesError("a mapping of names to rules")
    for at, value in node.pairs:
        name = draft.key(at)
        if name is not None and name not in draft.rules:
            before = len(draft.problems)
            _check_name(draft, at, name)
            made = draft.read(Rule, value, name)
            draft.rules[name] = RuleUse(name, at, made if len(draft.problems) == before else None)
    return FrozenDict({name: use.made for name, use in draft.rules.items() if use.made is not None})


def _check_name(draft: Draft, key: YamlNode, name: str) -> None:
    try:
        require_name(name)
    except UsageError as error:
        draft.problem(key, str(error))
        return
    if name in WORDS:
        draft.problem(key, f"{quoted(name)} is a keyword of steps and cannot name a rule")


def _checked(
    draft: Draft,
    node: Table,
    match: tuple[Scalar, ...],
    emit: Scalar,
    where: tuple[tuple[Scalar, str], ...] = (),
    parity: Parity = Parity.CLOSE,
    about: str = "",
    opset: object = "",
    domains: Mapping[str, tuple[int, Scalar]] | None = None,
    functions: Scalar | None = None,
) -> RulePass:
    from surgery.model.patterns.rule import Rule as Rewriting
    from surgery.model.patterns.rule_checks import mistakes

    versions = sorted((domains or {}).items())
    rule = Rewriting(
        match=tuple(each.text for each in match),
        emit=emit.text,
        where=tuple((condition.text.rstrip("\n"), reason) for condition, reason in where),
        opset=str(opset),
        domains=tuple((domain, version) for domain, (version, _) in versions),
        functions=functions.text if functions is not None else "",
        about=about,
    )
    texts: dict[str, list[Scalar]] = {
        "match": list(match),
        "emit": [emit],
        "where": [condition for condition, _ in where],
        "functions": [functions] if functions is not None else [],
        "domains": [key for _, (_, key) in versions],
    }
    for mistake in mistakes(rule):
        at = texts[mistake.part][mistake.index]
        draft.note(block_text.problem(draft.path, at, mistake.error))
    return RulePass(draft.reading, parity, "pattern", rule, rule.match, declared_at=f"{draft.path}:{node.line}")


def clashes(draft: Draft, known: Mapping[str, Pass]) -> Iterator[Problem]:
    """Yield mistakes for rules whose names other passes have."""
    for use in draft.rules.values():
        if use.name in known:
            other = known[use.name].origin
            message = f"rule {quoted(use.name)} has the name of a pass of {other}; choose another"
            yield Problem(draft.path, use.key.line, use.key.column, message)


def unused(draft: Draft) -> Iterator[Problem]:
    """Yield mistakes for rules that no step uses: no other recipe can use them, so they are an oversight."""
    used = {use.name for use in draft.passes}
    for use in draft.rules.values():
        if use.name not in used:
            message = f"no step uses the rule {quoted(use.name)}; add '- {use.name}' to 'steps', or remove the rule"
            yield Problem(draft.path, use.key.line, use.key.column, message)
