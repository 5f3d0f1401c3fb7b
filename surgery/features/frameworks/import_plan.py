"""The import plan: a source for each initializer, the layout of matrices, and mismatches."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import onnx_ir as ir

from surgery.base.errors import UsageError
from surgery.base.json_record import Record
from surgery.features.frameworks.consumers import ROWS, UNKNOWN
from surgery.features.frameworks.conventions import Conventions, gates, is_stacked
from surgery.features.frameworks.mapping import NameMapping, TensorSource
from surgery.features.frameworks.rotary import UnclearError
from surgery.features.frameworks.row_orders import Gates, Rotary, Rotation
from surgery.features.frameworks.target_tensors import FLOATS, TargetTensor
from surgery.model.checkpoints.checkpoints import Checkpoint
from surgery.model.checkpoints.named_tensors import TensorEntry
from surgery.model.wire.globs import Globs, did_you_mean

Layout = Literal["auto", "torch", "onnx"]
"""The layout of the matrices of Linear layers in the checkpoint: [out, in] as in PyTorch, or as MatMul reads them."""

TORCH_FORMATS: Final = (".pt", ".pth", ".bin", ".ckpt", ".gguf", ".bin.index.json")
_COUNTERS: Final = ("*num_batches_tracked",)
"""Counts of training steps in BatchNorm layers, which inference does not read."""

_TODO: Final = "pass --layout torch or onnx"

Kind = Literal["missing", "unexpected", "shape", "dtype", "range", "layout"]


@dataclass(frozen=True)
class WeightMisfit(Record):
    """A mismatch: an initializer or a tensor of the checkpoint, and the reason."""

    kind: Kind
    name: str
    message: str


@dataclass(frozen=True)
class Assignment:
    """An initializer and its source. `why` is the reason for the decision about transposition, if there is one.

    `rows` reorders the tensors before they are joined, and `gates` the elements after all other steps.
    """

    target: TargetTensor
    source: TensorSource
    entries: tuple[TensorEntry, ...]
    order: tuple[int, ...] | None = None
    why: str = ""
    rows: tuple[Rotary | None, ...] = ()
    gates: Gates | None = None

    @property
    def dtype(self) -> ir.DataType:
        """The type of the elements in the checkpoint."""
        return self.entries[0].dtype

    @property
    def is_plain(self) -> bool:
        """Whether the elements are used without any change."""
        whole = len(self.entries) == 1 and self.source.part is None
        moved = self.order is not None or self.gates is not None or any(self.rows)
        return whole and not moved and self.dtype == self.target.dtype

    @property
    def reordered(self) -> tuple[str, ...]:
        """How the rows of its tensors are reordered."""
        return tuple(dict.fromkeys(one.title for one in (*self.rows, self.gates) if one is not None))

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "initializer": self.target.name,
            "tensors": list(self.source.tensors),
            "dims": list(self.target.dims),
            "dtype": self.target.dtype.name.lower(),
            "order": None if self.order is None else list(self.order),
            "because": self.why or None,
            "rows": list(self.reordered),
            "from_dtype": self.dtype.name.lower(),
            "part": None if self.source.part is None else self.source.part.part,
        }


@dataclass
class ImportPlan:
    """The assignments, the misfits, and the names that were left out on purpose.

    `tied` are tensors of the checkpoint that are not needed, because a used tensor has the same elements.
    """

    assignments: list[Assignment] = field(default_factory=list)
    misfits: list[WeightMisfit] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    tied: list[tuple[str, str]] = field(default_factory=list)

    def add(self, kind: Kind, name: str, message: str) -> None:
        """Record a misfit."""
        self.misfits.append(WeightMisfit(kind, name, message))


def merged(checkpoints: Sequence[Checkpoint]) -> tuple[dict[str, TensorEntry], dict[str, str], dict[str, Checkpoint]]:
    """Merge several files: entries and aliases by name, and the file of each. UsageError for a name in two files."""
    entries: dict[str, TensorEntry] = {}
    aliases: dict[str, str] = {}
    homes: dict[str, Checkpoint] = {}
    for checkpoint in checkpoints:
        for name, entry in checkpoint.entries.items():
            if name in entries:
                raise UsageError(f"'{name}' is both in {homes[name].path.name} and in {checkpoint.path.name}")
            entries[name], homes[name] = entry, checkpoint
        aliases.update(checkpoint.aliases)
    return entries, aliases, homes


def make(
    targets: Mapping[str, TargetTensor],
    checkpoints: Sequence[Checkpoint],
    mapping: NameMapping,
    layout: Layout = "auto",
    rotation: Rotation | None = None,
) -> ImportPlan:
    """Find a source for each initializer: the one in the mapping, or else the tensor of the same name.

    `rotation` is what the model rotates for position embeddings, see `rotary.in_model`.

    A source that does not exist is a misfit. Raises UsageError if the mapping names initializers, or tensors to ignore,
    that do not exist.
    """
    entries, aliases, homes = merged(checkpoints)
    plan, used = ImportPlan(), set[str]()
    _check_names(mapping, targets, entries)
    keep, ignore = Globs(mapping.keep), Globs((*mapping.ignore, *_COUNTERS))
    drafts: list[Assignment] = []
    for name, target in targets.items():
        said = mapping.source(name)
        source = said or TensorSource((name,))
        if mapping.keep and keep.fit(name):
            plan.kept.append(name)
            used.update(tensor for tensor in source.tensors if tensor in entries)
        elif any(tensor not in entries for tensor in source.tensors):
            _lacking(plan, target, source if said else None, entries, is_named=name in mapping.tensors)
        else:
            used.update(source.tensors)
            drafts.append(Assignment(target, source, tuple(entries[tensor] for tensor in source.tensors)))
    formats = {tensor: _is_torch(homes[tensor]) for tensor in used}
    evidence, conventions = _evidence(drafts), Conventions(homes, rotation, mapping.rotary)
    for draft in drafts:
        is_torch = formats[draft.source.tensors[0]]
        try:
            found = gates(draft.target, draft.source, draft.entries, is_torch)
            _fit(plan, replace(draft, gates=found), _Layouts(layout, evidence, is_torch), conventions)
        except UnclearError as error:
            plan.add("layout", draft.target.name, str(error))
    _account(plan, [name for name in entries if name not in used], used, aliases, ignore)
    return plan


def _is_torch(home: Checkpoint) -> bool:
    return home.path.name.endswith(TORCH_FORMATS)


def _check_names(mapping: NameMapping, targets: Iterable[str], entries: Iterable[str]) -> None:
    """Raise UsageError for full names that do not exist, and for patterns that match nothing."""
    from surgery.features.frameworks import name_patterns

    initializers = list(targets)
    for name in mapping.tensors:
        fits = (
            any(name_patterns.fit(name, one) for one in initializers)
            if name_patterns.is_pattern(name)
            else name in initializers
        )
        if not fits:
            raise UsageError(f"no initializer '{name}'", todo=did_you_mean(name, initializers) or None)
    for what, known, patterns in (
        ("initializer", initializers, mapping.keep),
        ("tensor", list(entries), mapping.ignore),
    ):
        for pattern in patterns:
            if not any(Globs((pattern,)).fit(one) for one in known):
                raise UsageError(f"no {what} '{pattern}'", todo=did_you_mean(pattern, known) or None)


def _lacking(
    plan: ImportPlan,
    target: TargetTensor,
    source: TensorSource | None,
    entries: Mapping[str, TensorEntry],
    *,
    is_named: bool,
) -> None:
    """Record an initializer without a source; constants of the graph need none, unless the mapping names them."""
    if not target.is_weight and not is_named:
        return
    if source is None:
        plan.add("missing", target.name, f"no tensor for {shown(target.dtype, target.dims)}")
        return
    absent = next(tensor for tensor in source.tensors if tensor not in entries)
    hint = did_you_mean(absent, entries)
    text = f"the mapping takes it from '{absent}', which does not exist{f'; {hint}' if hint else ''}"
    plan.add("missing", target.name, text)


def _account(
    plan: ImportPlan, unused: Sequence[str], used: set[str], aliases: Mapping[str, str], ignore: Globs
) -> None:
    """Record the tensors that no initializer uses as ignored, tied or unexpected."""
    groups: dict[str, set[str]] = defaultdict(set)
    for alias, name in aliases.items():
        groups[name].update((alias, name))
    for name in unused:
        same = groups.get(aliases.get(name, name), set()) & used
        if ignore.fit(name):
            plan.ignored.append(name)
        elif same:
            plan.tied.append((name, min(same)))
        else:
            plan.add("unexpected", name, "no initializer")


def shown(dtype: ir.DataType, dims: Iterable[int]) -> str:
    """Format a type with dims."""
    return f"{dtype.name.lower()}[{','.join(map(str, dims))}]"


# Layouts


@dataclass(frozen=True)
class _Layouts:
    """The known layout of matrices of Linear layers: the option, evidence of other matrices, and the file format."""

    layout: Layout
    evidence: Mapping[str, Counter[bool]]
    is_torch: bool

    def turned(self, target: TargetTensor) -> tuple[bool | None, str]:
        """Return whether a square matrix must be transposed, and why; None and what to do if it is not known."""
        if target.reads == UNKNOWN:
            return self._unknown(target)
        if self.layout != "auto":
            return self.layout == "torch", f"square; --layout {self.layout}"
        for kind in (*dict.fromkeys(one.op_type for one in target.consumers), ""):
            seen = self.evidence.get(kind)
            if seen and len(seen) == 1:
                turned = next(iter(seen))
                return turned, f"square; as the {seen[turned]} other matrices of {kind or 'MatMul and Gemm'}"
            if seen:
                return None, f"some matrices of its kind are transposed, others are not; {_TODO}"
        if self.is_torch:
            return True, "square; a Linear layer of PyTorch has [out, in]"
        return None, f"no other matrix shows the layout; {_TODO}"

    def _unknown(self, target: TargetTensor) -> tuple[bool | None, str]:
        """Return what is known of a matrix whose consumers do not show which axis is the input."""
        if self.layout == "onnx":
            return False, "square; --layout onnx"
        kinds = ", ".join(sorted({one.op_type or "the result of a subgraph" for one in target.consumers}))
        todo = "add 'transpose: true' or 'transpose: false' to its entry in the mapping"
        return None, f"how {kinds} in the model read it does not show its input axis; {todo}"


def _evidence(drafts: Iterable[Assignment]) -> dict[str, Counter[bool]]:
    """Count, by operator, the non-square matrices read by rows that must and must not be transposed."""
    found: dict[str, Counter[bool]] = defaultdict(Counter)
    for draft in drafts:
        dims, wanted = _joined(draft), draft.target.dims
        if dims is None or draft.source.transpose is not None or draft.target.reads != ROWS or len(wanted) != 2:
            continue
        if wanted[0] != wanted[1] and dims in (wanted, wanted[::-1]):
            for kind in {one.op_type for one in draft.target.consumers} | {""}:
                found[kind][dims != wanted] += 1
    return found


def _joined(draft: Assignment) -> tuple[int, ...] | None:
    """Return the dims after joining tensors and taking a part; None if that is impossible."""
    source, first = draft.source, draft.entries[0].dims
    axis = source.axis
    if len(draft.entries) > 1 or source.part is not None:
        if axis >= len(first):
            return None
        rest = [dims[:axis] + dims[axis + 1 :] for dims in (entry.dims for entry in draft.entries)]
        if any(one != rest[0] for one in rest):
            return None
        extent = sum(entry.dims[axis] for entry in draft.entries)
        piece = bounds(source, extent)
        if piece is None:
            return None
        return (*first[:axis], piece[1] - piece[0], *first[axis + 1 :])
    return first


def bounds(source: TensorSource, extent: int) -> tuple[int, int] | None:
    """Return the start and end of a part along its axis; None if the parts do not add up to the whole."""
    if source.part is None:
        return 0, extent
    sizes, number = source.part.sizes, source.part.part
    if isinstance(sizes, int):
        if extent % sizes:
            return None
        return number * (extent // sizes), (number + 1) * (extent // sizes)
    if sum(sizes) != extent:
        return None
    start = sum(sizes[:number])
    return start, start + sizes[number]


def _fit(plan: ImportPlan, draft: Assignment, layouts: _Layouts, conventions: Conventions) -> None:
    """Decide how to convert a source to its initializer, or record why that is impossible. Raises `UnclearError`."""
    target, source = draft.target, draft.source
    name, wanted = target.name, target.dims
    of = f"'{source.tensors[0]}'" if len(source.tensors) == 1 else f"{len(source.tensors)} tensors"
    kinds = {entry.dtype for entry in draft.entries}
    if len(kinds) > 1 or not _converts(draft.dtype, target.dtype):
        types = ", ".join(sorted(one.name.lower() for one in kinds))
        plan.add("dtype", name, f"the model has {target.dtype.name.lower()}, and {of} {types}")
        return
    dims = _joined(draft)
    if dims is None:
        parts = ", ".join(shown(entry.dtype, entry.dims) for entry in draft.entries)
        plan.add("shape", name, f"{parts} cannot be joined or split along axis {source.axis}")
        return
    if source.transpose is not None:
        order = _said(source.transpose, len(dims))
        if order is not None and sorted(order) != [*range(len(dims))]:
            plan.add("shape", name, f"the order of axes {list(order)} is not one of {len(dims)} axes")
            return
        plain_order = None if order == tuple(range(len(dims))) else order
        draft = replace(draft, order=plain_order, why="as given in the mapping" if plain_order else "")
    else:
        turned, why = _turned(dims, target, layouts)
        if turned is None:
            plan.add("layout", name, f"{of} is square, and whether to transpose it is not clear: {why}")
            return
        draft = replace(draft, order=(1, 0) if turned else None, why=why if turned or why.startswith("sq") else "")
    made = dims if draft.order is None else tuple(dims[axis] for axis in draft.order)
    reshapes = (source.reshape and math.prod(made) == math.prod(wanted)) or is_stacked(target, made)
    if made != wanted and not reshapes:
        plan.add("shape", name, f"the model has {shown(target.dtype, wanted)}, and {of} {shown(draft.dtype, dims)}")
        return
    rows = conventions.rows(target, source, draft.entries, draft.order, made)
    plan.assignments.append(replace(draft, rows=rows))


def _said(transpose: bool | tuple[int, ...], rank: int) -> tuple[int, ...] | None:
    if isinstance(transpose, bool):
        return tuple(reversed(range(rank))) if transpose else None
    return transpose


def _turned(dims: tuple[int, ...], target: TargetTensor, layouts: _Layouts) -> tuple[bool | None, str]:
    """Return whether a matrix must be transposed: by its shape, or if it is square, by its consumers."""
    wanted = target.dims
    if len(dims) != 2 or len(wanted) != 2 or (dims != wanted and dims != wanted[::-1]):
        return False, ""
    if dims != wanted:
        return True, "by its shape"
    if dims[0] == dims[1] and dims[0] > 1 and target.reads in (ROWS, UNKNOWN):
        return layouts.turned(target)
    return False, ""


def _converts(have: ir.DataType, wanted: ir.DataType) -> bool:
    return have == wanted or {have, wanted} <= FLOATS
