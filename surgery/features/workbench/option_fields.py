"""The options of a pass as the fields of a form, filled in from a selection."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from surgery.base.json_record import Record
from surgery.engine.registry.options import Keeps, Option
from surgery.features.workbench import field_kinds
from surgery.features.workbench.field_kinds import FieldKind, parts_of, unannotated
from surgery.features.workbench.node_drafts import draft_after
from surgery.model.patterns.selector import NodeSelector
from surgery.model.patterns.tensor_names import TensorNames

if TYPE_CHECKING:
    from surgery.engine.registry.passes import Pass


@dataclass(frozen=True)
class Selection:
    """Selected nodes and tensors by name, and how they are connected.

    `tensors` are the selected tensors or, of selected nodes, their outputs. `first` is the first input of the first
    node that is no weight, and `weights` are the initializers that are selected, or that the nodes read. `inputs` and
    `outputs` are the selected tensors that are inputs and outputs of the model, with their dims.
    """

    nodes: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    first: str = ""
    weights: tuple[str, ...] = ()
    inputs: Mapping[str, Sequence[int | str | None]] = field(default_factory=dict)
    outputs: Mapping[str, Sequence[int | str | None]] = field(default_factory=dict)
    is_of_tensors: bool = False


@dataclass(frozen=True)
class OptionField(Record):
    """One option as a field: its type in words, how it is filled in, its choices if there are few, and its value.

    `value` is as in a recipe: filled in from the selection, or else the default. `filled` is whether it is from the
    selection.
    """

    name: str
    type: str
    kind: FieldKind
    about: str
    required: bool
    choices: tuple[str, ...]
    value: Any
    filled: bool = False


def fields_of(declared: Pass, selection: Selection) -> tuple[OptionField, ...]:
    """Return the form of a pass, filled in from a selection."""
    return tuple(_field(option, declared, selection) for option in declared.options)


def _field(option: Option, declared: Pass, selection: Selection) -> OptionField:
    filled = _filled(option, declared, selection)
    value = option.plain_default if filled is None else filled
    return OptionField(
        name=option.name,
        type=option.type_name,
        kind=field_kinds.of(option.annotation),
        about=option.about,
        required=option.required,
        choices=_choices(option),
        value=value,
        filled=filled is not None,
    )


def _filled(option: Option, declared: Pass, selection: Selection) -> Any:
    """Return the value of an option that the selection determines, or None."""
    particular = _PARTICULAR.get((declared.name, option.name))
    if particular is not None:
        return particular(selection) or None
    kinds, others = set(map(unannotated, parts_of(option.annotation))), [one.name for one in declared.options]
    if NodeSelector in kinds:
        is_meant = option.name == "nodes" and not ("tensors" in others and selection.is_of_tensors)
        return _one_or_more(selection.nodes) if is_meant else None
    if TensorNames in kinds:
        return _tensors(option.name, others, selection)
    return None


_PARTICULAR: Mapping[tuple[str, str], Callable[[Selection], Any]] = {
    ("append-nms", "output"): lambda selection: next(iter(selection.outputs), ""),
    ("bypass", "end"): lambda selection: selection.tensors[-1] if selection.tensors else "",
    ("bypass", "start"): lambda selection: selection.first,
    ("embed-postprocessing", "output"): lambda selection: next(iter(selection.outputs), ""),
    ("embed-preprocessing", "input"): lambda selection: next(iter(selection.inputs), ""),
    ("insert-nodes", "text"): lambda selection: draft_after(selection.tensors).get("text"),
    ("insert-nodes", "names"): lambda selection: draft_after(selection.tensors).get("names"),
    ("insert-nodes", "nodes"): lambda selection: None,
    ("remove-inputs", "inputs"): lambda selection: _one_or_more([*selection.inputs]),
    ("remove-outputs", "outputs"): lambda selection: _one_or_more([*selection.outputs]),
    ("rename", "nodes"): lambda selection: {name: name for name in selection.nodes},
    ("rename", "tensors"): lambda selection: (
        {name: name for name in selection.tensors} if selection.is_of_tensors else {}
    ),
    ("set-dims", "ports"): lambda selection: {
        name: [*dims] for name, dims in {**selection.inputs, **selection.outputs}.items()
    },
    ("set-layout", "inputs"): lambda selection: _one_or_more([*selection.inputs]),
    ("set-layout", "outputs"): lambda selection: _one_or_more([*selection.outputs]),
    ("set-initializer", "name"): lambda selection: next(iter(selection.weights), ""),
}
"""The options, by pass, that name an end of something in the selection."""


def _tensors(name: str, others: Sequence[str], selection: Selection) -> Any:
    if name == "tensors":
        return _one_or_more(selection.tensors) if selection.is_of_tensors or "nodes" not in others else None
    if name == "outputs" and ("nodes" not in others or selection.is_of_tensors):
        return _one_or_more(selection.tensors)
    return None


def _one_or_more(names: Sequence[str]) -> Any:
    """Return one name, several, or None."""
    return None if not names else names[0] if len(names) == 1 else list(names)


def _choices(option: Option) -> tuple[str, ...]:
    """Return the values of an option that has only a few."""
    if option.annotation is bool:
        return ("true", "false")
    if option.annotation == Keeps:
        return ("exact", "close", "nothing")
    found = parts_of(option.annotation)
    if len(found) == 1 and field_kinds.of(option.annotation) == "several":
        found = [typing.get_args(found[0])[0]]
    if len(found) == 1 and typing.get_origin(found[0]) is Literal:
        return tuple(map(str, typing.get_args(found[0])))
    return ()
