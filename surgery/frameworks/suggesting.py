"""Suggested pairs of names, for the user to confirm; nothing is applied automatically.

- A prefix that initializers have and tensors do not, or vice versa.
- The node that reads an initializer has a path, such as `/encoder/layer.0/query/MatMul`, with the name of the module.
- Only one initializer and one tensor with the same dims are left.
- A recurrent node lacks its weights, and only one layer of the checkpoint has tensors for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from surgery.frameworks import recurrent
from surgery.frameworks.conventions import is_stacked
from surgery.frameworks.plan import Plan
from surgery.frameworks.targets import Target
from surgery.storage.named_tensors import Entry


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


def suggest(plan: Plan, targets: Mapping[str, Target], entries: Mapping[str, Entry]) -> Suggestions:
    """Suggest tensors for initializers without one."""
    open_names = [one.name for one in plan.misfits if one.kind == "missing"]
    free = [one.name for one in plan.misfits if one.kind == "unexpected"]
    joined = _by_layer({name: targets[name] for name in open_names}, free, entries)
    taken = {tensor for tensors, _ in joined.values() for tensor in tensors}
    open_names = [name for name in open_names if name not in joined]
    free = [name for name in free if name not in taken]
    prefixes, covered = _prefixes(open_names, free)
    left = {name: targets[name] for name in open_names if name not in covered}
    unused = [name for name in free if name not in covered.values()]
    single = {}
    for name, target in left.items():
        found = _by_path(target, unused, entries)
        if found is not None:
            single[name] = found, "the path of the node that reads it"
    rest = {name: target for name, target in left.items() if name not in single}
    taken = {tensor for tensor, _ in single.values()}
    single |= _by_dims(rest, [name for name in unused if name not in taken], entries)
    return Suggestions(prefixes, single, joined)


def _by_layer(
    wanted: Mapping[str, Target], free: Sequence[str], entries: Mapping[str, Entry]
) -> dict[str, tuple[tuple[str, ...], str]]:
    """Return the tensors of recurrent nodes; layers with the same dims are taken in the order of both."""
    layers = [*recurrent.layers(free)]
    nodes: dict[tuple[str, ...], dict[str, Target]] = defaultdict(dict)
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


def _fits(target: Target, layer: tuple[str, int], entries: Mapping[str, Entry]) -> bool:
    """Return whether a layer of the checkpoint has the tensors of an initializer, with its dims."""
    assert target.recurrent is not None
    tensors = recurrent.sources(target.recurrent, *layer)
    if any(name not in entries for name in tensors):
        return False
    rows = sum(entries[name].dims[0] for name in tensors)
    return is_stacked(target, (rows, *entries[tensors[0]].dims[1:]))


def _prefixes(wanted: Iterable[str], free: Iterable[str]) -> tuple[dict[str, tuple[str, int]], dict[str, str]]:
    """Return the prefix that pairs most names, and the paired names."""
    initializers, tensors = dict.fromkeys(wanted), dict.fromkeys(free)
    longer = [(name, end) for name in initializers for end in _ends(name) if end in tensors]
    shorter = [(end, name) for name in tensors for end in _ends(name) if end in initializers]
    pairs: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for name, tensor in (*longer, *shorter):
        common = min(name, tensor, key=len)
        pairs[name.removesuffix(common), tensor.removesuffix(common)][name] = tensor
    if not pairs:
        return {}, {}
    (new, old), found = max(pairs.items(), key=lambda item: len(item[1]))
    return {f"{new}*": (f"{old}*", len(found))}, found


def _ends(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[index:]) for index in range(1, len(parts))]


def _by_path(target: Target, free: Iterable[str], entries: Mapping[str, Entry]) -> str | None:
    """Return the tensor of the module that contains the consumers of an initializer."""
    paths = {one.name.strip("/").rpartition("/")[0].replace("/", ".") for one in target.consumers}
    if len(paths) != 1:
        return None
    path = paths.pop()
    if not path:
        return None
    dims = sorted(target.dims)
    found = [name for name in free if sorted(entries[name].dims) == dims and _is_of(name, path)]
    return found[0] if len(found) == 1 else None


def _is_of(name: str, path: str) -> bool:
    module = name.rpartition(".")[0]
    return bool(module) and (module == path or path.endswith(f".{module}") or module.endswith(f".{path}"))


def _by_dims(
    wanted: Mapping[str, Target], free: Iterable[str], entries: Mapping[str, Entry]
) -> dict[str, tuple[str, str]]:
    tensors: dict[tuple[int, ...], list[str]] = defaultdict(list)
    initializers: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for name in free:
        tensors[tuple(sorted(entries[name].dims))].append(name)
    for name, target in wanted.items():
        initializers[tuple(sorted(target.dims))].append(name)
    return {
        names[0]: (tensors[dims][0], "the only remaining ones with these dims")
        for dims, names in initializers.items()
        if len(names) == 1 and len(tensors.get(dims, ())) == 1
    }


def _quoted(text: str) -> str:
    """Quote a text for YAML, which accepts JSON strings."""
    import json

    return json.dumps(text, ensure_ascii=False)
