"""Normalization of the short forms of steps to the long form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surgery.engine.recipe.draft import Draft, NotedError
from surgery.engine.recipe.schema import KINDS, STEP_KEYS, Recipe
from surgery.engine.yaml.spelling import nearest
from surgery.engine.yaml.yaml_nodes import Listing, Scalar, Table, YamlNode, describe, is_null, key_text, plain, quoted
from surgery.model.patterns.selector import NodeSelector


def listed(node: YamlNode, draft: Draft) -> list[YamlNode]:
    """Return the steps of a list."""
    if isinstance(node, Listing):
        if not node.items and not node.open:
            raise ValueError("'steps' lists no step; name at least one pass")
        return node.items
    draft.problem(node, f"'steps' takes a list, not {describe(node)}; begin each step with '- '")
    is_step = isinstance(node, Scalar) or (isinstance(node, Table) and len(node.pairs) == 1)
    return [node] if is_step else []


def kind(step: Table) -> str | None:
    """Return the kind of a step: `pass`, `use` or `repeat`; None for the short form of a pass."""
    names = [key_text(key) for key, _ in step.pairs]
    found = next((name for name in names if name in KINDS), None)
    if found is not None or "steps" in names:
        return found or "repeat"
    for key, value in step.pairs:
        near = nearest(key_text(key) or "", KINDS)
        is_word = isinstance(value, Scalar) and not is_null(value)
        if near is not None and (is_word or any(name in STEP_KEYS for name in names)):
            return near
    return None


def options(node: YamlNode, draft: Draft) -> tuple[dict[str, Any], dict[str, YamlNode]]:
    """Return the values of options as given, and the nodes of their keys."""
    values: dict[str, Any] = {}
    keys: dict[str, YamlNode] = {}
    for key, value in node.pairs if isinstance(node, Table) else ():
        text = draft.key(key)
        if text is not None and text not in keys:
            values[text] = plain(value)
            keys[text] = key
    return values, keys


def long(node: YamlNode, draft: Draft) -> Table:
    """Return a step in its long form."""
    if isinstance(node, Table) and node.pairs:
        return _one_kind(node, draft) if kind(node) is not None else _from_short(node, draft)
    if isinstance(node, Scalar) and isinstance(node.value, str) and node.value.strip():
        return _table(node, [("pass", node, node)])
    if node.open:
        raise NotedError
    if is_null(node) or isinstance(node, Table):
        raise ValueError("an empty step; name a pass or remove the '-'")
    raise ValueError(f"a step is the name of a pass or a mapping, not {describe(node)}")


def _one_kind(node: Table, draft: Draft) -> Table:
    """Remove and report the keys of other kinds."""
    wanted = kind(node)
    others = [(key, name) for key, _ in node.pairs if (name := key_text(key)) in KINDS and name != wanted]
    if others:
        key, other = others[0]
        draft.problem(key, f"'{other}' cannot be combined with '{wanted}'; a step is one of them")
        node.pairs = [pair for pair in node.pairs if pair[0] not in [key for key, _ in others]]
    return node


def _from_short(node: Table, draft: Draft) -> Table:
    """Convert `name: options` to the long form; report other keys next to the name, with the most likely cause."""
    at, given = next((pair for pair in node.pairs if key_text(pair[0]) not in STEP_KEYS), (None, None))
    if at is None or given is None:
        raise ValueError("this step has no 'pass', 'use' or 'repeat'")
    name = draft.key(at)
    if name is None:
        raise NotedError
    inner = Table(given.line, given.column, pairs=given.pairs) if isinstance(given, Table) else None
    if inner is None and not is_null(given):
        draft.wrong(given, name, "a mapping of options")
    inner = inner or Table(given.line, given.column)
    more: list[tuple[str, YamlNode, YamlNode]] = []
    for key, value in node.pairs:
        text = draft.key(key)
        if key is at or text is None or text == name:
            continue
        if text in STEP_KEYS:
            long = f"write 'pass: {name}' and put its options under 'with'"
            draft.problem(key, f"'{text}' cannot be combined with {quoted(name)}; {long}")
            more.append((text, key, value))
        elif is_null(given):
            draft.problem(key, f"{quoted(text)} is at the same level as {quoted(name)}, not in it; indent it further")
            inner.pairs.append((key, value))
        else:
            draft.problem(key, f"{quoted(text)} cannot be combined with {quoted(name)}; begin each step with '- '")
    return _table(node, [("pass", at, at), ("with", at, inner), *more])


def selectors(node: YamlNode) -> tuple[Any, ...]:
    """Return the node selectors of `except`, as given."""
    found = [plain(one) for one in named(node)]
    try:
        NodeSelector.read(found)
    except ValueError as error:
        raise ValueError(f"'except': {error}") from None
    return tuple(found)


def named(node: YamlNode | None) -> list[YamlNode]:
    """Return the nodes of one name or of a list of names."""
    return [] if node is None else node.items if isinstance(node, Listing) else [node]


def check_step(at: YamlNode, known: Mapping[str, object], recipe: Recipe, draft: Draft) -> bool:
    """Return whether a recipe has a step of the named pass; otherwise record a mistake."""
    name = key_text(at)
    if name is None or name in known:
        return name is not None
    near = nearest(name, known)
    hint = f"; did you mean '{near}'?" if near else ""
    draft.problem(at, f"recipe '{recipe.name}' has no step {quoted(name)}{hint}")
    return False


def _table(node: YamlNode, pairs: list[tuple[str, YamlNode, YamlNode]]) -> Table:
    """Return a mapping that replaces a node."""
    table = Table(node.line, node.column, open=node.open)
    table.pairs += [(Scalar(key.line, key.column, name, name), value) for name, key, value in pairs]
    return table
