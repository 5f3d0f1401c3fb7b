"""The steps of a recipe, in their short and long forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from surgery.recipe.draft import Draft, PassUse
from surgery.recipe.nodes import Listing, Node, Scalar, Table, describe, is_null, key_text, plain, quoted
from surgery.recipe.reader import Field, Read, defined, nearest
from surgery.recipe.schema import PassStep, Recipe, RepeatStep, Step, UseStep
from surgery.recipe.sections import on_failure_field, read_expect, read_when
from surgery.verification.inputs.spec import FrozenDict

Use = Callable[[Node], Recipe | None]

KINDS = ("pass", "use", "repeat")
UNTIL_STABLE = "until-stable"
_BESIDE = ("with", "when", "on_failure", "expect")
WORDS = (*KINDS, *_BESIDE, "steps")
"""What cannot be the name of a pass in a step."""


class StepReader:
    """Reads steps into a draft; `use` gives the recipe that stands after the key of that name."""

    def __init__(self, draft: Draft, use: Use) -> None:
        self.draft = draft
        self._use_recipe = use

    def steps(self, node: Node) -> tuple[Step, ...]:
        """Read a list of steps; those with mistakes are left out."""
        if isinstance(node, Listing):
            if not node.items and not node.open:
                self.draft.problem(node, "'steps' lists no step; name at least one pass")
            found = [self.step(item) for item in node.items]
            return tuple(step for step in found if step is not None)
        self.draft.problem(node, f"'steps' takes a list, not {describe(node)}; begin each step with '- '")
        if isinstance(node, Scalar) or (isinstance(node, Table) and len(node.pairs) == 1):
            self.step(node)
        return ()

    def step(self, node: Node) -> Step | None:
        """Read one step."""
        if isinstance(node, Table) and node.pairs:
            return self._mapping(node)
        if isinstance(node, Scalar) and isinstance(node.value, str) and node.value.strip():
            return self._pass_step(node, node, {}, {}, {})
        if node.open:
            return None
        if is_null(node) or isinstance(node, Table):
            self.draft.problem(node, "an empty step; name a pass or remove the '-'")
        else:
            self.draft.problem(node, f"a step is the name of a pass or a mapping, not {describe(node)}")
        return None

    def _mapping(self, node: Table) -> Step | None:
        keys = [(key, key_text(key)) for key, _ in node.pairs]
        kinds = [(key, name) for key, name in keys if name in KINDS]
        if len({name for _, name in kinds}) > 1:
            first, (second, other) = kinds[0][1], next(pair for pair in kinds if pair[1] != kinds[0][1])
            self.draft.problem(second, f"'{other}' cannot stand next to '{first}'; a step is one of them")
        kind = kinds[0][1] if kinds else self._misspelt(node)
        if kind == "pass":
            return self._long(node)
        if kind == "use":
            return self._use(node)
        if kind == "repeat":
            return self._repeat(node)
        return self._short(node)

    def _misspelt(self, node: Table) -> str | None:
        """Guess which kind of step this is without `pass`, `use` or `repeat`; None is the short form."""
        names = [key_text(key) for key, _ in node.pairs]
        if "steps" in names:
            return "repeat"
        for key, value in node.pairs:
            near = nearest(key_text(key) or "", KINDS)
            is_word = isinstance(value, Scalar) and not is_null(value)
            if near is not None and (is_word or any(name in _BESIDE for name in names)):
                return near
        return None

    def _fields(self, node: Table, kind: str, known: Mapping[str, Read]) -> dict[str, Any]:
        # The other kinds were complained about already.
        others: dict[str, Read] = {other: lambda _: None for other in KINDS if other != kind}
        present = {key_text(key) for key, _ in node.pairs}
        beside = {other: read for other, read in others.items() if other in present}
        return self.draft.fields(node, kind, {**known, **beside})

    def _place(self, node: Node) -> dict[str, Any]:
        return {"line": node.line, "column": node.column, "path": self.draft.path}

    def _when(self) -> Field:
        about = "Run this only if all of these hold of the model as it is then."
        return Field(lambda node: read_when(self.draft, node), about, defined("when"))

    def _beside(self) -> dict[str, Field]:
        return {
            "when": self._when(),
            "on_failure": on_failure_field(
                self.draft,
                "What to do when the result is wrong: end the run, take the step back, keep the sites that are right "
                "(or take the step back when none is), or keep it all. The default is what the recipe says.",
            ),
            "expect": Field(
                lambda node: read_expect(self.draft, node, of_step=True),
                "What has to hold of the model after this step; else it has failed.",
                defined("expect-step"),
            ),
        }

    def pass_fields(self) -> dict[str, Field]:
        """Say what a step takes that runs a pass, in the long form."""
        read_name = self.draft.text("pass", "the name of a pass")
        return {
            "pass": Field(lambda value: (read_name(value), value), "The pass to run.", defined("pass-name")),
            "with": Field(lambda value: self._options(value, "with"), "The options of the pass.", {"type": "object"}),
            **self._beside(),
        }

    def _long(self, node: Table) -> Step | None:
        found = self._fields(node, "pass", self.pass_fields())
        name, at = found.pop("pass", (None, None))
        options, keys = found.pop("with", ({}, {}))
        if at is None and not node.open:
            self.draft.problem(node, "'pass' needs the name of a pass")
        if name is None or at is None:
            return None
        return self._pass_step(node, at, options, keys, found, name)

    def _pass_step(
        self, node: Node, at: Node, options: dict[str, Any], keys: dict[str, Node], more: dict[str, Any], name: str = ""
    ) -> PassStep:
        name = name or str(key_text(at))
        self.draft.passes.append(PassUse(self.draft.path, name, options, node, at, keys))
        rule = self.draft.rules.get(name)
        made = None if rule is None else rule.made
        return PassStep(name, FrozenDict(options), declared=made, **more, **self._place(node))

    def _options(self, node: Node, name: str) -> tuple[dict[str, Any], dict[str, Node]]:
        """Read options as they are given: their values, and the nodes of their keys."""
        options: dict[str, Any] = {}
        keys: dict[str, Node] = {}
        if not isinstance(node, Table):
            if not is_null(node):
                self.draft.wrong(node, name, "a mapping of options")
            return options, keys
        for key, value in node.pairs:
            text = self.draft.key(key)
            if text is not None and text not in keys:
                options[text] = plain(value)
                keys[text] = key
        return options, keys

    def _short(self, node: Table) -> Step | None:
        """Read `name: options`. Other keys besides the name are mistakes, and nearly always one of two."""
        at, value = next((pair for pair in node.pairs if key_text(pair[0]) not in _BESIDE), (None, None))
        if at is None or value is None:
            self.draft.problem(node, "this step has no 'pass', 'use' or 'repeat'")
            return None
        name = self.draft.key(at)
        if name is None:
            return None
        options, keys = self._options(value, name)
        for key, other in node.pairs:
            if key is not at:
                self._extra(name, value, key, other, options, keys)
        return self._pass_step(node, at, options, keys, {})

    def _extra(
        self, name: str, given: Node, key: Node, value: Node, options: dict[str, Any], keys: dict[str, Node]
    ) -> None:
        text = self.draft.key(key)
        if text is None:
            return
        if text in _BESIDE:
            long = f"write 'pass: {name}' and put its options under 'with'"
            self.draft.problem(key, f"'{text}' cannot stand next to {quoted(name)}; {long}")
            reads: dict[str, Read] = {**self._beside(), "with": lambda node: self._options(node, "with")}
            if not is_null(value):
                reads[text](value)
        elif is_null(given):
            self.draft.problem(key, f"{quoted(text)} stands next to {quoted(name)}, not in it; indent it further")
            options.setdefault(text, plain(value))
            keys.setdefault(text, key)
        elif text != name:
            self.draft.problem(key, f"{quoted(text)} cannot stand next to {quoted(name)}; begin each step with '- '")

    def use_fields(self) -> dict[str, Field]:
        """Say what a step takes that runs another recipe."""
        about = "The name of a shipped recipe, the path of a recipe file, or a recipe itself, whose steps run here."
        name = self.draft.text("use").schema
        return {"use": Field(self._nested, about, {"anyOf": [name, defined("nested")]}), "when": self._when()}

    def _nested(self, node: Node) -> tuple[Recipe | None]:
        return (self._use_recipe(node),)

    def _use(self, node: Table) -> Step | None:
        found = self._fields(node, "use", self.use_fields())
        if "use" not in found and not node.open:
            self.draft.problem(node, "'use' needs the name or path of a recipe")
        (recipe,) = found.pop("use", (None,))
        return None if recipe is None else UseStep(recipe, **found, **self._place(node))

    def repeat_fields(self) -> dict[str, Field]:
        """Say what a step takes that runs steps several times."""
        times = {"anyOf": [{"const": UNTIL_STABLE}, {"type": "integer", "minimum": 1}]}
        return {
            "repeat": Field(self._times, "How many rounds at most, or until a round changes nothing.", times),
            "steps": self.list_field("The steps of one round."),
            "when": self._when(),
        }

    def list_field(self, about: str) -> Field:
        """Say what a list of steps is."""
        return Field(self.steps, about, defined("steps"))

    def _repeat(self, node: Table) -> Step | None:
        found = self._fields(node, "repeat", self.repeat_fields())
        names = {key_text(key) for key, value in node.pairs if not is_null(value)}
        if "steps" not in found and not node.open:
            self.draft.problem(node, "'repeat' needs 'steps', the list of what to repeat")
        if "repeat" not in names and not any(nearest(str(name), ("repeat",)) for name in names) and not node.open:
            self.draft.problem(node, f"'steps' needs 'repeat' next to it: {UNTIL_STABLE}, or a number of rounds")
        if "repeat" not in found or "steps" not in found:
            return None
        (times,) = found.pop("repeat")
        return RepeatStep(times, **found, **self._place(node))

    def _times(self, node: Node) -> tuple[int | None] | None:
        wanted = f"{UNTIL_STABLE} or a number of rounds"
        value = node.value if isinstance(node, Scalar) else None
        if value == UNTIL_STABLE:
            return (None,)
        if isinstance(value, int) and not isinstance(value, bool):
            rounds = self.draft.whole("repeat", least=1)(node)
            return None if rounds is None else (rounds,)
        near = nearest(value, (UNTIL_STABLE,)) if isinstance(value, str) else None
        hint = f"; did you mean '{near}'?" if near else ""
        self.draft.problem(node, f"'repeat' takes {wanted}, not {describe(node)}{hint}")
        return None
