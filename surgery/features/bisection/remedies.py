"""Changes of the recipe that make a pass fire at more places, each of them tried.

A pass sees the model as the exporter and the earlier steps left it. For each change, the steps of the changed recipe
are run up to the pass, and the places where it fires are compared by their original nodes. Nothing is verified.
"""

from __future__ import annotations

from ast import literal_eval
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from surgery.base.errors import SurgeryError
from surgery.base.json_record import Record
from surgery.engine.pipeline.run_until import run_until
from surgery.engine.recipe import load
from surgery.engine.recipe.schema import PassStep, Recipe, pass_steps, with_pass_steps
from surgery.engine.why.explain import Why, explain
from surgery.model.proto.lineage_entries import entries
from surgery.model.storage.summary import operators

if TYPE_CHECKING:
    import onnx

    from surgery.model import storage
    from surgery.model.proto.lineage_entries import LineageEntry

_NEIGHBOURHOOD = 3
"""Maximum distance, in edges, between a place and nodes of earlier steps that are reported."""

_OPSETS = (20, 21, 24)
"""The opsets to try, until one helps everywhere: those that introduced operators which passes fuse to."""

_RECIPES = ("default", "modern", "ort")
"""The shipped recipes to try: general ones, with most fusions."""

_FIRST = ("fold-constants", "infer-shapes")
_FOR = {"Einsum": "replace-einsum", "Dropout": "drop-dropout", "Identity": "drop-identity"}
"""For operators that hide patterns from other passes, the pass to run first."""

_TARGET = "ort-cpu"
_SIZE = 8
"""The size to try for a dynamic dim without a size in the recipe."""

_SCOPES = "pkg.torch.onnx.name_scopes"
_TRACE = "pkg.torch.onnx.stack_trace"


@dataclass(frozen=True)
class Remedy:
    """A change of the recipe, and the number of places at which the pass fires with it."""

    change: str
    places: int


@dataclass(frozen=True)
class Left:
    """Places that the pass leaves unchanged for one reason.

    `places` are nodes as the pass finds them, `origins` the nodes of the original that the first of them comes from,
    `passes` the earlier steps that created nodes around it, and `exported` the location in the source of the exported
    model.
    """

    reason: str
    places: tuple[str, ...]
    origins: tuple[str, ...]
    passes: tuple[str, ...]
    exported: str
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True)
class Remedies(Record):
    """The places that a pass leaves unchanged, by reason, and the changes that helped at none of them."""

    left: tuple[Left, ...]
    in_vain: tuple[str, ...]


@dataclass(frozen=True)
class _RecipeTrial:
    """The result of a pass with one recipe: the original nodes at which it fires, and the explanation of the others."""

    fired: frozenset[str]
    why: Why
    proto: onnx.ModelProto


@dataclass(frozen=True)
class _RecipeChange:
    """A changed recipe with its description. If one of a `kind` helps everywhere, no other of that kind is tried."""

    words: str
    recipe: Recipe
    kind: str = ""


def remedies(stored: storage.StoredModel, recipe: Recipe, name: str, options: Mapping[str, Any]) -> Remedies:
    """Find changes that make the pass `name` fire at more places; `options` are added to those of its step.

    Raises the errors of `run_until` for the recipe itself; a change that makes the recipe fail counts as no help.
    """
    base = _trial(stored, recipe, name, options)
    around = _Surroundings(base.proto)
    groups = {reason: at for reason, at in _left(base.why).items() if not base.fired.issuperset(around.origins(at))}
    passes = {reason: around.passes(places[0]) for reason, places in groups.items()}
    found: dict[str, list[Remedy]] = defaultdict(list)
    in_vain, enough = [], set()
    for change in _changes(stored, recipe, name, {one for made in passes.values() for one in made}):
        if not groups or change.kind in enough:
            continue
        helped = 0
        for reason, number in _helped(_fired(stored, change, name, options) - base.fired, groups, around):
            found[reason].append(Remedy(change.words, number))
            helped += number
        if helped == sum(map(len, groups.values())):
            enough.add(change.kind or change.words)
        if not helped:
            in_vain.append(change.words)
    left = tuple(
        Left(
            reason,
            tuple(places),
            tuple(sorted(around.origins(places[:1]))),
            passes[reason],
            around.exported(places[0]),
            tuple(sorted(found[reason], key=lambda one: -one.places)),
        )
        for reason, places in groups.items()
    )
    return Remedies(left, tuple(in_vain))


def _fired(stored: storage.StoredModel, change: _RecipeChange, name: str, options: Mapping[str, Any]) -> frozenset[str]:
    """Return the original nodes at which the pass fires with a change; empty if the recipe fails with it."""
    try:
        return _trial(stored, change.recipe, name, options).fired
    except SurgeryError:
        return frozenset()


def _helped(fired: frozenset[str], groups: Mapping[str, list[str]], around: _Surroundings) -> Iterator[tuple[str, int]]:
    """Yield the reasons that no longer apply at some places, with the number of these places."""
    for reason, places in groups.items():
        number = sum(not fired.isdisjoint(around.origins([place])) for place in places)
        if number:
            yield reason, number


def _trial(stored: storage.StoredModel, recipe: Recipe, name: str, options: Mapping[str, Any]) -> _RecipeTrial:
    reached = run_until(stored, recipe, name)
    given = {**reached.step.options, **options}
    why = explain(reached.declared, reached.proto, stored.weights, given, limit=1 << 30, target=recipe.profile)
    around = _Surroundings(reached.proto)
    fired = around.origins([label for site in why.sites for label in (site.anchor, *site.removed)])
    return _RecipeTrial(frozenset(fired), why, reached.proto)


def _left(why: Why) -> dict[str, list[str]]:
    """Return the places that a pass leaves unchanged, by reason."""
    found: dict[str, list[str]] = defaultdict(list)
    for miss in why.near_misses:
        if not miss.anchor:
            continue
        reason = miss.reason or (f"{miss.flaws[0]} in '{miss.flaws[0].line}'" if miss.flaws else "")
        if reason:
            found[reason] += [miss.anchor, *miss.alike]
    for refusals in why.refusals:
        found[refusals.reason] += [place.anchor for place in refusals.places if place.anchor]
    for silence in why.silent:
        found[f"{silence.where} ({silence.values})" if silence.values else silence.where] += silence.nodes
    return {reason: places for reason, places in found.items() if places}


class _Surroundings:
    """The nodes of a model by label, with their origins and neighbours."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self._entries: dict[str, LineageEntry] = {}
        self._around: dict[str, set[str]] = defaultdict(set)
        makers: dict[tuple[str, str], str] = {}
        for entry in entries(proto):
            if entry.node is None:
                continue
            self._entries.setdefault(entry.name, entry)
            for value in entry.inputs:
                maker = makers.get((entry.scope, value))
                if maker is not None:
                    self._around[entry.name].add(maker)
                    self._around[maker].add(entry.name)
            makers.update({(entry.scope, value): entry.name for value in entry.outputs if value})

    def origins(self, labels: list[str]) -> set[str]:
        """Return the original nodes of nodes: the nodes themselves if no pass touched them."""
        found = set()
        for label in labels:
            entry = self._entries.get(label)
            known = entry.lineage if entry is not None else None
            found |= {label} if known is None or not known.origins else set(known.origins)
        return found

    def passes(self, label: str) -> tuple[str, ...]:
        """Return the passes that created nodes near a node, within a few edges."""
        near, edge = {label}, {label}
        for _ in range(_NEIGHBOURHOOD):
            edge = {other for one in edge for other in self._around[one]} - near
            near |= edge
        known = [self._entries[one].lineage for one in sorted(near) if one in self._entries]
        return tuple(dict.fromkeys(name for one in known if one is not None for name in one.passes))

    def exported(self, label: str) -> str:
        """Return the information of the exporter about a node: the line of Python that created it, and its module."""
        entry = self._entries.get(label)
        noted = {} if entry is None or entry.node is None else {p.key: p.value for p in entry.node.metadata_props}
        module = _innermost(noted[_SCOPES]) if _SCOPES in noted else ""
        frames = [line.strip() for line in noted.get(_TRACE, "").splitlines() if line.strip().startswith("File ")]
        return "; ".join(filter(None, (frames[-1] if frames else "", module)))


def _innermost(scopes: str) -> str:
    """Return the module in a list of scopes whose last item is the node; text of another form is returned unchanged."""
    try:
        listed = literal_eval(scopes)
    except (ValueError, SyntaxError):
        return scopes
    return str(listed[-2]) if isinstance(listed, list) and len(listed) > 1 else scopes


def _changes(stored: storage.StoredModel, recipe: Recipe, name: str, made: set[str]) -> Iterator[_RecipeChange]:
    """Yield the changes to try; `made` are the earlier passes that created nodes near the places."""
    before = _before(recipe, name)
    for step in {step.name: step for step in reversed(before) if step.name in made}.values():
        yield _RecipeChange(f"'{name}' before '{step.name}' ({step.where})", _without(recipe, name, step.name))
    if recipe.target != _TARGET:
        yield _RecipeChange(f"target: {_TARGET}", replace(recipe, target=_TARGET))
    opset = next((one.version for one in stored.proto.opset_import if one.domain in ("", "ai.onnx")), 0)
    for newer in (one for one in _OPSETS if one > opset):
        words = f"'upgrade-opset: {{to: {newer}}}' first"
        yield _RecipeChange(words, _first(recipe, "upgrade-opset", to=newer), "opset")
    present = operators(stored.proto)
    wanted = [*_FIRST, *(one for op, one in _FOR.items() if op in present)]
    for first in (one for one in wanted if all(step.name != one for step in before)):
        yield _RecipeChange(f"'{first}' first", _first(recipe, first))
    dims = _dims(stored, recipe)
    if dims:
        listed = ", ".join(f"{dim}: {size}" for dim, size in dims.items())
        words = f"'set-dims: {{dims: {{{listed}}}}}' first, for one size only"
        yield _RecipeChange(words, _first(recipe, "set-dims", dims=dims))
    for other in _recipes_with(name):
        if other.path != recipe.path:
            yield _RecipeChange(f"recipe '{other.name}', whose steps run first", other, "recipe")


def _recipes_with(name: str) -> Iterator[Recipe]:
    """Yield the shipped recipes with a step of a pass; what they do before it may be what the pass needs."""
    for one in _RECIPES:
        found = load(one)
        if any(step.name == name for step in pass_steps(found.steps)):
            yield found


def _before(recipe: Recipe, name: str) -> list[PassStep]:
    """List the steps before the first one of the pass."""
    found = []
    for step in pass_steps(recipe.steps):
        if step.name == name:
            break
        found.append(step)
    return found


def _first(recipe: Recipe, name: str, **options: Any) -> Recipe:
    return replace(recipe, steps=(PassStep(name, options), *recipe.steps))


def _dims(stored: storage.StoredModel, recipe: Recipe) -> dict[str, int]:
    """Return a size for each named dynamic dim of the inputs."""
    names = [dim.dim_param for port in stored.proto.graph.input for dim in port.type.tensor_type.shape.dim]
    sizes = recipe.inputs.dims
    return {name: sizes[name][0] if name in sizes else _SIZE for name in dict.fromkeys(names) if name.isidentifier()}


def _without(recipe: Recipe, name: str, left_out: str) -> Recipe:
    """Return the recipe without the steps of the pass `left_out` that run before the first step of `name`."""
    reached = False

    def kept(step: PassStep) -> PassStep | None:
        nonlocal reached
        reached = reached or step.name == name
        return step if reached or step.name != left_out else None

    return replace(recipe, steps=with_pass_steps(recipe.steps, kept))
