"""Suggested pairs of names, for the user to confirm; nothing is applied automatically.

- Prefixes after which the names of initializers and tensors agree, see `renaming`.
- The node that reads an initializer has a path, such as `/encoder/layer.0/query/MatMul`, with the name of the module.
- Only one initializer and one tensor with the same dims are left.
- A recurrent node lacks its weights, and only one layer of the checkpoint has tensors for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from surgery.features.frameworks import recurrent, renaming
from surgery.features.frameworks.conventions import is_stacked
from surgery.features.frameworks.import_plan import ImportPlan
from surgery.features.frameworks.renaming import SplitName
from surgery.features.frameworks.target_tensors import TargetTensor
from surgery.model.checkpoints.named_tensors import TensorEntry


@dataclass(frozen=True)
class Suggestions:
    """Entries for `tensors` of a mapping file.

    `prefixes` are patterns with counts, `single` names with reasons, and `joined` several tensors with a reason.
    """

    prefixes: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    single: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    joined: Mapping[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.prefixes or self.single or self.joined)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "prefixes": {new: {"tensors": old, "count": count} for new, (old, count) in self.prefixes.items()},
            "single": {new: {"tensor": old, "because": why} for new, (old, why) in self.single.items()},
            "joined": {new: {"tensors": list(old), "because": why} for new, (old, why) in self.joined.items()},
        }

    def document(self) -> str:
        """Return the suggestions as a mapping file, with the reasons as comments."""
        lines = ["# Suggested by surgery import-weights --suggest: check each line before you use it.", "tensors:"]
        for new, (old, why) in self.single.items():
            lines.append(f"  {_quoted(new)}: {_quoted(old)}  # {why}")
        for new, (parts, why) in self.joined.items():
            lines.append(f"  {_quoted(new)}: {{concat: [{', '.join(map(_quoted, parts))}]}}  # {why}")
        for new, (old, count) in self.prefixes.items():
            lines.append(f"  {_quoted(new)}: {_quoted(old)}  # {count} names agree")
        return "\n".join(lines) + "\n"


def suggest(plan: ImportPlan, targets: Mapping[str, TargetTensor], entries: Mapping[str, TensorEntry]) -> Suggestions:
    """Suggest tensors for initializers without one."""
    left = {one.name: targets[one.name] for one in plan.misfits if one.kind == "missing"}
    free = [one.name for one in plan.misfits if one.kind == "unexpected"]
    own = [one.target.name for one in plan.assignments if one.source.tensors == (one.target.name,)]
    patterns, single, covered = _renamed(left, free, entries, targets, own)
    left = {name: target for name, target in left.items() if name not in covered}
    free = [name for name in free if name not in covered.values()]
    joined = _by_layer(left, free, entries)
    taken = {tensor for tensors, _ in joined.values() for tensor in tensors}
    left = {name: target for name, target in left.items() if name not in joined}
    free = [name for name in free if name not in taken]
    paths = {name: tensor for name, target in left.items() if (tensor := _by_path(target, free, entries)) is not None}
    single |= {name: (tensor, _PATH) for name, tensor in paths.items()}
    left = {name: target for name, target in left.items() if name not in paths}
    single |= _by_dims(left, [name for name in free if name not in paths.values()], entries)
    return Suggestions(patterns, single, joined)


_PATH: Final = "the path of the node that reads it"
_PREFIX: Final = "the same name after another prefix"
_WRITTEN: Final = "the same name, written in another way"
_OWN: Final = "keeps its name, which a pattern below also matches"


def _renamed(
    wanted: Mapping[str, TargetTensor],
    free: Sequence[str],
    entries: Mapping[str, TensorEntry],
    targets: Iterable[str],
    own: Iterable[str],
) -> tuple[dict[str, tuple[str, int]], dict[str, tuple[str, str]], dict[str, str]]:
    """Return patterns, single names with reasons, and all the pairs that these are for.

    `targets` are all initializers, which a pattern may match too, and `own` those that have the tensor of their name.
    """

    def fits(name: str, tensor: str) -> bool:
        return sorted(wanted[name].dims) == sorted(entries[tensor].dims)

    names = {found.text: found for target in wanted.values() if (found := _name(target)) is not None}
    tensors = {name: SplitName.of(name) for name in free}
    covered: dict[str, str] = {}
    single: dict[str, tuple[str, str]] = {}
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for rule, made in renaming.paired(list(names.values()), list(tensors.values()), fits):
        covered |= made
        for name, tensor in made.items():
            ends = None if wanted[name].is_made_up else renaming.prefixes(rule, names[name], tensors[tensor])
            if ends is None:
                single[name] = tensor, _PATH if wanted[name].is_made_up else _WRITTEN
            else:
                groups[ends].append(name)
    patterns = _patterns(groups, covered, entries, [*targets], {*own})
    single |= {
        name: (covered[name], _PREFIX) for ends, among in groups.items() for name in among if not _has(patterns, *ends)
    }
    for name in [*covered, *own]:
        if name not in single and _matched(patterns, name) not in (None, covered.get(name, name)):
            single[name] = (covered[name], _PREFIX) if name in covered else (name, _OWN)
    return patterns, single, covered


def _name(target: TargetTensor) -> SplitName | None:
    """Return the name of an initializer, or the one that its only module gives it if exporters made the name up."""
    if not target.is_made_up:
        return SplitName.of(target.name)
    path = _path(target)
    return None if path is None else SplitName.of_path(target.name, path, len(target.dims))


def _patterns(
    groups: Mapping[tuple[str, str], Sequence[str]],
    covered: Mapping[str, str],
    entries: Mapping[str, TensorEntry],
    targets: Sequence[str],
    own: set[str],
) -> dict[str, tuple[str, int]]:
    """Return a pattern for each pair of prefixes that several names have, unless it also matches other names."""
    found: dict[str, tuple[str, int]] = {}
    for (new, old), among in sorted(groups.items(), key=lambda item: (-len(item[0][0]), -len(item[1]))):
        wrong = (
            name.startswith(new) and f"{old}{name.removeprefix(new)}" in entries
            for name in targets
            if name not in covered and name not in own
        )
        if len(among) > 1 and f"{new}*" not in found and not any(wrong):
            found[f"{new}*"] = f"{old}*", len(among)
    return found


def _has(patterns: Mapping[str, tuple[str, int]], new: str, old: str) -> bool:
    return patterns.get(f"{new}*", ("", 0))[0] == f"{old}*"


def _matched(patterns: Mapping[str, tuple[str, int]], name: str) -> str | None:
    """Return the tensor that the first matching pattern gives an initializer."""
    for new, (old, _) in patterns.items():
        if name.startswith(new[:-1]):
            return old[:-1] + name.removeprefix(new[:-1])
    return None


def _by_layer(
    wanted: Mapping[str, TargetTensor], free: Sequence[str], entries: Mapping[str, TensorEntry]
) -> dict[str, tuple[tuple[str, ...], str]]:
    """Return the tensors of recurrent nodes; layers with the same dims are taken in the order of both."""
    layers = [*recurrent.layers(free)]
    nodes: dict[tuple[str, ...], dict[str, TargetTensor]] = defaultdict(dict)
    for name, target in wanted.items():
        if target.recurrent is not None and len(target.consumers) == 1:
            nodes[target.consumers[0].operands][name] = target
    found: dict[str, tuple[tuple[str, ...], str]] = {}
    for among in nodes.values():
        fitting = (layer for layer in layers if all(_fits(target, layer, entries) for target in among.values()))
        layer = next(fitting, None)
        if layer is None:
            continue
        layers.remove(layer)
        for name, target in among.items():
            assert target.recurrent is not None
            found[name] = recurrent.sources(target.recurrent, *layer), f"layer {layer[1]} of '{layer[0].rstrip('.')}'"
    return found


def _fits(target: TargetTensor, layer: tuple[str, int], entries: Mapping[str, TensorEntry]) -> bool:
    """Return whether a layer of the checkpoint has the tensors of an initializer, with its dims."""
    assert target.recurrent is not None
    tensors = recurrent.sources(target.recurrent, *layer)
    if any(name not in entries for name in tensors):
        return False
    rows = sum(entries[name].dims[0] for name in tensors)
    return is_stacked(target, (rows, *entries[tensors[0]].dims[1:]))


def _by_path(target: TargetTensor, free: Iterable[str], entries: Mapping[str, TensorEntry]) -> str | None:
    """Return the tensor of the module that contains the consumers of an initializer."""
    path = _path(target)
    if path is None:
        return None
    dims = sorted(target.dims)
    found = [name for name in free if sorted(entries[name].dims) == dims and _is_of(name, path)]
    return found[0] if len(found) == 1 else None


def _path(target: TargetTensor) -> str | None:
    """Return the module of all consumers of an initializer."""
    paths = {one.module for one in target.consumers}
    return (paths.pop() or None) if len(paths) == 1 else None


def _is_of(name: str, path: str) -> bool:
    module = name.rpartition(".")[0]
    return bool(module) and (module == path or path.endswith(f".{module}") or module.endswith(f".{path}"))


def _by_dims(
    wanted: Mapping[str, TargetTensor], free: Iterable[str], entries: Mapping[str, TensorEntry]
) -> dict[str, tuple[str, str]]:
    tensors: dict[tuple[int, ...], list[str]] = defaultdict(list)
    initializers: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for name in free:
        tensors[tuple(sorted(entries[name].dims))].append(name)
    for name, target in wanted.items():
        initializers[tuple(sorted(target.dims))].append(name)
    alone = {
        names[0]: tensors[dims][0] for dims, names in initializers.items() if len(names) == len(tensors[dims]) == 1
    }
    return {
        name: (tensor, "the only remaining ones with these dims")
        for name, tensor in alone.items()
        if wanted[name].is_made_up or SplitName.of(name).kind == SplitName.of(tensor).kind
    }


def _quoted(text: str) -> str:
    """Quote a text for YAML, which accepts JSON strings."""
    import json

    return json.dumps(text, ensure_ascii=False)
