"""YAML -> Recipe: read the file and the recipes it uses, check trust in plugins, then check passes and their options.

Nothing is raised before everything is read, so that all mistakes are reported at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from surgery.base.errors import Problem, RecipeError, UsageError
from surgery.base.frozen_dict import FrozenDict
from surgery.engine.recipe import model, plugins, recipe_lookup
from surgery.engine.recipe.draft import Draft, PassUse, PredicateUse, RuleUse
from surgery.engine.recipe.fields import read_text
from surgery.engine.recipe.recipe_paths import is_file
from surgery.engine.recipe.rules import clashes, unused
from surgery.engine.recipe.schema import OnFailure, PassStep, Recipe
from surgery.engine.registry.catalog import catalog
from surgery.engine.yaml.source import decode, documents
from surgery.engine.yaml.spelling import nearest
from surgery.engine.yaml.yaml_nodes import Listing, Table, YamlNode, describe, is_null, key_text, one_line, quoted
from surgery.engine.yaml.yaml_tree import ParsedText
from surgery.verification.inputs.spec import InputsSpec, VerifySpec

MAX_NESTING = 8
STREAM = "-"
NO_PATH = "<recipe>"
"""The name of a text without a file in messages."""


def load(path_or_name: str | Path, *, trust: bool = False, on_read: Callable[[Recipe], object] | None = None) -> Recipe:
    """Load a recipe by the path of its file or the name of a shipped recipe; `-` is standard input.

    Raises RecipeError with every mistake in it and in the recipes that it uses. Raises UsageError if the recipe does
    not exist, or if it needs local code (a `.py` under `plugins`, a generator of inputs, a library of custom operators)
    and `trust` is False; with `trust`, the plugins are imported here.

    `on_read` is called with the recipe before its passes are looked up, which takes longest; its inputs and
    verification are known by then. It is not called if there are mistakes already, or if there is local code to run.
    """
    draft = _draft(path_or_name)
    if on_read is not None and draft.recipe is not None and not any(part.runs_code for part in draft.all()):
        on_read(draft.recipe)
    return _finish(draft, trust)


def _draft(path_or_name: str | Path) -> Draft:
    """Read a recipe by its path or name, or from standard input, where its paths are relative to the current folder."""
    if path_or_name == STREAM:
        return _Session().text(recipe_lookup.read_stream(sys.stdin.buffer, "standard input"), None, "stdin")
    exists = isinstance(path_or_name, Path) and is_file(path_or_name)
    path = Path(path_or_name) if exists else recipe_lookup.locate(str(path_or_name), Path())
    return _Session().file(path, str(path))


def parse(text: str | bytes, path: str | Path | None = None, *, trust: bool = False) -> Recipe:
    """Read a recipe from text, as `load` does from a file.

    `path` is its name in messages, and the folder of `path` is the base of relative paths; it need not exist.
    """
    shown = NO_PATH if path is None else str(path)
    return _finish(_Session().text(text, None if path is None else Path(path), shown), trust)


def single_step(
    name: str,
    options: Mapping[str, Any] | None = None,
    *,
    inputs: InputsSpec | None = None,
    verify: VerifySpec | None = None,
    on_failure: OnFailure | None = None,
) -> Recipe:
    """Return the recipe of a single pass; raise UsageError if the pass does not exist or an option is invalid."""

    catalog.find(name).bind(options or {})
    step = PassStep(name, FrozenDict(options or {}), on_failure)
    return Recipe(name, (step,), inputs=inputs or InputsSpec(), verify=verify or VerifySpec())


class _Session:
    """One call of `load`: the files read so far, and the chain of files that are being read."""

    def __init__(self) -> None:
        self._done: dict[Path, Draft] = {}
        self._chain: list[tuple[Path, str]] = []

    def file(self, path: Path, shown: str) -> Draft:
        """Read a file, or return its draft if it was read before; raise UsageError if it cannot be read."""
        key = path.resolve()
        if key not in self._done:
            self._done[key] = self.text(recipe_lookup.read(path), path, shown)
        return self._done[key]

    def text(self, text: str | bytes, path: Path | None, shown: str) -> Draft:
        """Read a text in its most plausible interpretation."""
        decoded, mistakes = decode(text) if isinstance(text, bytes) else (text, [])
        self._chain.append((Path() if path is None else path.resolve(), shown))
        try:
            drafts = []
            for document in documents(decoded):
                document.mistakes += mistakes
                drafts.append((document.penalty, self._draft(document, path, shown)))
        finally:
            self._chain.pop()
        return min(drafts, key=lambda draft: (draft[0], len(draft[1].problems)))[1]

    def _draft(self, document: ParsedText, path: Path | None, shown: str) -> Draft:
        folder, name = (Path(), "recipe") if path is None else (path.parent, path.stem)
        draft = Draft(shown, folder, self._use, name)
        draft.problems += [Problem(shown, *mistake) for mistake in document.mistakes]
        found = _read_root(draft, document)
        if document.repeated:
            # Of two equal keys, the first counts, and the second is only read for its mistakes.
            for table in dict.fromkeys(document.repeated):
                table.pairs.reverse()
            _read_root(draft, document)
        if found is not None and not draft.problems:
            draft.recipe = replace(found, path=path)
        return draft

    def _use(self, draft: Draft, node: YamlNode) -> Recipe | None:
        """Read a nested recipe into a draft; its mistakes become mistakes of the draft."""
        if not isinstance(node, Table):
            return self._other(draft, node, read_text(node, "the name or path of a recipe"))
        inner = Draft(draft.path, draft.folder, self._use)
        draft.nested.append(inner)
        found = inner.read(model.Nested, node)
        return None if inner.problems else found

    def _other(self, draft: Draft, node: YamlNode, name: str) -> Recipe | None:
        """Load a nested recipe from its own file."""
        try:
            path = recipe_lookup.locate(name, draft.folder)
            problem = self._circle(path) or self._too_deep()
            nested = None if problem else self.file(path, str(path))
        except UsageError as error:
            problem, nested = str(error), None
        if nested is None:
            draft.problem(node, problem or "")
            return None
        draft.nested.append(nested)
        return nested.recipe

    def _circle(self, path: Path) -> str | None:
        paths = [known for known, _ in self._chain]
        if path.resolve() not in paths:
            return None
        names = [Path(shown).name for _, shown in self._chain[paths.index(path.resolve()) :]]
        return f"a recipe cannot use itself: {' -> '.join([*names, names[0]])}"

    def _too_deep(self) -> str | None:
        return f"recipes nested more than {MAX_NESTING} deep" if len(self._chain) >= MAX_NESTING else None


def _read_root(draft: Draft, document: ParsedText) -> Any:
    """Read the top level."""
    root = document.root
    if isinstance(root, Listing):
        draft.problem(root, "a recipe is a mapping, not a list; write 'steps:' above the list")
        draft.read(model.Steps, root)
    elif root is None or is_null(root):
        if not document.mistakes:
            draft.note(Problem(draft.path, 1, 1, "this recipe is empty; it needs 'steps'"))
    elif isinstance(root, Table):
        found = draft.read(model.Recipe, root)
        if not any(key_text(key) == "steps" and not is_null(value) for key, value in root.pairs):
            _guess_steps(draft, root)
        return found
    elif not document.broken:
        draft.problem(root, f"a recipe is a mapping with 'steps', not {describe(root)}")
    return None


def _guess_steps(draft: Draft, root: Table) -> None:
    """Read a list under an unknown key as if it were `steps`, only for its mistakes."""
    known = model.Recipe.keys()
    for key, value in root.pairs:
        name = key_text(key)
        if isinstance(value, Listing) and name is not None and not nearest(name, known):
            draft.read(model.Steps, value)


def _finish(draft: Draft, trust: bool) -> Recipe:
    """Run the checks that need all files: plugins first, because they add passes, then names and options."""

    drafts = draft.all()
    problems = {problem for part in drafts for problem in part.problems}
    uses = [use for part in drafts for use in part.plugins]
    # `inputs` and `verify` of a nested recipe do not count: the code that they refer to is not run.
    refused = [] if trust else plugins.refusals([*uses, *draft.local])
    if refused and not problems:
        raise UsageError(plugins.wishes(refused), todo=plugins.how_to_trust())
    failed = plugins.import_plugins([use for use in uses if use not in refused])
    problems.update(failed)
    problems.update(plugins.refusal(use) for use in refused)
    for part in drafts:
        problems.update(clashes(part, catalog.passes()) if part.rules else ())
        # An unknown pass may belong to a plugin that was not imported.
        names = not failed and not any(one in uses for one in refused)
        for use in part.passes:
            problems.update(_check(use, part.rules, names=names))
        if names:
            problems.update(_unknown_predicate(one) for one in part.predicates if one.name not in catalog.predicates())
    if not problems:
        problems.update(problem for part in drafts for problem in unused(part))
    if problems or draft.recipe is None:
        raise RecipeError(list(problems))
    return draft.recipe


def _check(use: PassUse, rules: Mapping[str, RuleUse], *, names: bool) -> list[Problem]:
    """Check the name of a pass (only if `names`) and its options."""

    made = rules[use.name].made if use.name in rules else None
    declared = catalog.get(use.name) if made is None else made
    if declared is None:
        return [_unknown(use, {**catalog.passes(), **rules})] if names and use.name not in rules else []
    two = catalog.clash(use.name)
    if two is not None:
        return [Problem(use.path, use.at.line, use.at.column, one_line(two, plugins.LONGEST))]
    found = []
    for option, message in declared.option_errors(use.options).items():
        at = use.keys.get(option)
        if at is not None or not use.step.open:
            place = at or use.step
            found.append(Problem(use.path, place.line, place.column, one_line(message)))
    return found


def _unknown_predicate(use: PredicateUse) -> Problem:
    near = nearest(use.name, catalog.predicates())
    hint = f"did you mean '{near}'?" if near else "install the package that has it, or name its plugin"
    what = f"no predicate {quoted(use.name)}; {hint}{catalog.missing()}"
    return Problem(use.path, use.at.line, use.at.column, one_line(what))


def _unknown(use: PassUse, known: Mapping[str, object]) -> Problem:

    near = nearest(use.name, known)
    if use.name in recipe_lookup.names():
        hint = f"it is a recipe: write 'use: {use.name}'"
    elif " " in use.name:
        hint = "a name cannot contain blanks; check the indentation"
    else:
        hint = f"did you mean '{near}'?" if near else "'surgery passes' lists them"
    return Problem(
        use.path, use.at.line, use.at.column, one_line(f"no pass {quoted(use.name)}; {hint}{catalog.missing()}")
    )
