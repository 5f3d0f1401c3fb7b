"""Lowering of operator calls to an older opset, and the registries of the rules and parts for it.

A *rule* converts an operator from one version to the previous one: it changes the call, or returns values that compute
the same. A *part* decomposes an operator into smaller ones. Both build with `Lowering.node`, in the operators of the
newest opset, and the new nodes are lowered in the same way, so each rule and part needs to know only one step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Refusal, Value

from . import _forms, _schemas, _types
from ._calls import Call

Result = Value | Sequence[Value] | None
Rule = Callable[["Call", "Lowering"], Result]

CONTRIB = "com.microsoft::"
"""The prefix of ONNX Runtime's own operators. Their attributes have the default that is passed to `attr`."""

WRITTEN = 28
"""The opset whose operators rules and parts use."""

_RULES: dict[tuple[str, int], Rule] = {}
_PARTS: dict[str, Rule] = {}
_PLAIN: set[str] = set()
"""Operators with a part that every opset has: they are decomposed only on request."""


def rule(*ops: str, since: int) -> Callable[[Rule], Rule]:
    """Register a rule that converts these operators from their version of opset `since` to the previous version."""

    def declare(function: Rule) -> Rule:
        for op in ops:
            _RULES[op, since] = function
        return function

    return declare


def part(*ops: str, plain: bool = False) -> Callable[[Rule], Rule]:
    """Register the decomposition of these operators, at any of their versions, into smaller ones.

    With `plain`, an operator is decomposed only for a target that lacks it.
    """

    def declare(function: Rule) -> Rule:
        for op in ops:
            _PARTS[op] = function
            if plain:
                _PLAIN.add(op)
        return function

    return declare


def parts() -> Mapping[str, Rule]:
    """Return the registered decompositions, by operator."""
    return _PARTS


def lacking(graph: Graph, opset: int) -> frozenset[str]:
    """Return the operators with a part that the target of a graph does not run at this opset."""
    if graph.target.name == "standard":
        return frozenset()
    return frozenset(op for op in _PARTS if not graph.target.has(op, opset=opset))


def rules() -> Mapping[tuple[str, int], Rule]:
    """Return the rules, by operator and the version from which they convert."""
    return _RULES


class Known:
    """Facts about values that the graph does not have: types, ranks, the elements of new constants."""

    def __init__(self) -> None:
        self.kinds: dict[Value, str] = {}
        self.arrays: dict[Value, np.ndarray[Any, Any]] = {}
        self.ranks: dict[Value, int] = {}
        self.widths: dict[Value, int] = {}
        self.made: dict[tuple[Any, ...], Value] = {}

    def forget_removed(self) -> None:
        """Forget constants that are not in the graph: those without a reader, or of a site that was refused."""
        self.made = {key: value for key, value in self.made.items() if value.is_initializer or value.producer}


class Lowering:
    """The place of one node of the model, where it is rewritten in operators of the opset `target`.

    Operators named in `without` are decomposed even though the target has them.
    """

    def __init__(
        self, node: Node, new: Builder, target: int, known: Known, without: frozenset[str] = frozenset()
    ) -> None:
        self.anchor = node
        self.new = new
        self.target = target
        self._known = known
        self._without = without

    def require(self, condition: object, reason: str) -> None:
        """Make the node a blocker for `reason` unless the condition holds."""
        self.new.require(condition, reason)

    # Facts

    def kind(self, value: Value | None) -> str | None:
        """Return the type of a value as schemas write it, or None if it is not known."""
        if value is None:
            return None
        found = self._known.kinds.get(value)
        return found if found is not None else _types.spelt(value.type)

    def known_kind(self, value: Value) -> str:
        """Return the type of a value; refuse if it is not known."""
        found = self.kind(value)
        if found is None:
            raise Refusal("the type of an input is not known")
        return found

    def rank(self, value: Value) -> int:
        """Return the number of dims; refuse if it is not known."""
        rank = self._rank(value)
        if rank is None:
            raise Refusal("the rank of an input is not known")
        return rank

    def _rank(self, value: Value | None) -> int | None:
        found = None if value is None else self._known.arrays.get(value)
        if found is not None:
            return found.ndim
        return None if value is None else self._known.ranks.get(value, value.rank)

    def width(self, value: Value) -> int | None:
        """Return the last extent, or None if it is not known."""
        shape = value.shape
        last = None if not shape else shape[-1]
        return self._known.widths.get(value, last if isinstance(last, int) else None)

    def note(self, value: Value, rank: int, width: int | None) -> Value:
        """Record the rank and the last extent of a new value."""
        self._known.ranks[value] = rank
        if width is not None:
            self._known.widths[value] = width
        return value

    def array(self, value: Value | None) -> np.ndarray[Any, Any] | None:
        """Return the elements of a constant; None for any other value."""
        found = None if value is None else self._known.arrays.get(value)
        return value.constant if found is None and value is not None else found

    def fixed(self, call: Call, index: int) -> np.ndarray[Any, Any]:
        """Return the elements of an input that is an attribute in older versions; refuse if it is not constant."""
        found = self.array(call.input(index))
        if found is None:
            name = _forms.form(call.op, call.version).inputs[index].name
            raise Refusal(f"input {name} of {call.op} must be constant before opset {call.version}")
        return found

    def integers_in(self, call: Call, index: int) -> list[int]:
        """Return an integer input that is the same in every run as Python numbers; refuse like `fixed`."""
        value = call.input(index)
        found = None if value in self._known.arrays else value.elements
        if found is not None and all(isinstance(item, int) for item in found):
            return [int(item) for item in found]
        return [int(item) for item in self.fixed(call, index).reshape(-1)]

    def types(self, call: Call) -> tuple[dict[int, str], list[str | None]]:
        """Return the Casts that the inputs of a call need, by position, and the types of its outputs."""
        kinds = [self.kind(value) for value in call.inputs]
        return _types.casts(call, kinds, self.target), _types.results(call, kinds)

    # Building

    def constant(self, array: np.ndarray[Any, Any], name: str) -> Value:
        """Add a constant, or return an equal one added for another node of the same graph."""
        key = (self.anchor.scope, array.dtype, array.shape, array.tobytes())
        if key not in self._known.made:
            value = self.new.constant(array, name)
            self._known.made[key] = value
            self._known.arrays[value] = array
        return self._known.made[key]

    def integers(self, values: Sequence[int], name: str) -> Value:
        """Add a one-dimensional int64 constant."""
        return self.constant(np.array(values, dtype=np.int64), name)

    def number(self, number: float, like: Value, name: str = "number") -> Value:
        """Add a scalar constant of the type of another value."""
        kind = self.known_kind(like)
        if _types.element(kind) in _types.NUMPY:
            return self.constant(np.array(number).astype(_types.numpy_type(kind)), name)
        return self.cast(self.constant(np.array(number, dtype=np.float32), name), kind)

    def node(self, op: str, *inputs: Value | None, **attributes: Any) -> Value:
        """Add a node, given in the form of opset `WRITTEN`, in the target's operators; return its first output."""
        return self.nodes(op, *inputs, **attributes)[0]

    def nodes(self, op: str, *inputs: Value | None, outputs: int = 1, **attributes: Any) -> Sequence[Value]:
        """Add a node like `node`, and return all of its outputs."""
        version = _schemas.version_at(op, WRITTEN)
        if version is None:
            raise Refusal(_schemas.unknown(op))
        given = {name: value for name, value in attributes.items() if value is not None}
        return self.make(Call(op, version, inputs, given, outputs))

    def cast(self, value: Value, kind: str) -> Value:
        """Cast a value to a type, unless it already has it."""
        return value if self.kind(value) == kind else self.node("Cast", value, to=_forms.type_number(kind))

    def make(self, call: Call) -> Sequence[Value]:
        """Add a call in the target's operators, and return its outputs."""
        made = self.lower(call)
        return self.emit(call) if made is None else made

    def emit(self, call: Call) -> Sequence[Value]:
        """Add the node of a call, with Casts around it if its version lacks its types."""
        casts, wanted = self.types(call)
        inputs = [
            value if value is None or index not in casts else self.cast(value, casts[index])
            for index, value in enumerate(call.inputs)
        ]
        made = self.new.nodes(call.op, *inputs, outputs=call.outputs, attributes=call.attributes)
        rank = _types.rank(call, [self._rank(value) for value in inputs])
        self._known.ranks |= {value: rank for value in made if rank is not None}
        kinds = _types.results(call, [self.kind(value) for value in inputs])
        self._known.kinds |= {value: kind for value, kind in zip(made, kinds) if kind is not None}
        if not casts:
            return made
        return [value if kind is None else self.cast(value, kind) for value, kind in zip(made, wanted)]

    # Lowering

    def lower(self, call: Call) -> Sequence[Value] | None:
        """Convert a call to the version of the target and return None, or return replacements of its outputs."""
        while call.version != (wanted := _schemas.version_at(call.op, self.target)):
            if wanted is not None and call.version < wanted:
                raise Refusal(f"{call.op} of opset {call.version} would have to be converted to a newer version")
            before = _schemas.previous_version(call.op, call.version)
            op = call.op
            made = self._step(call)
            if made is not None:
                return [made] if isinstance(made, Value) else made
            if call.op == op:
                assert before is not None, op
                call.version = before
        is_whole = call.op not in _PARTS or call.op in _PLAIN
        is_known = call.op not in self._without and (is_whole or self._is_allowed(call))
        return None if is_known else self.apart(call)

    def apart(self, call: Call) -> Sequence[Value]:
        """Decompose a call into smaller operators."""
        made = _PARTS[call.op](call, self)
        assert made is not None, call.op
        return [made] if isinstance(made, Value) else made

    def keep(self, call: Call) -> Result:
        """Convert a call to the previous version as far as the schemas allow; refuse if they differ for it."""
        _keep(call, _schemas.previous_version(call.op, call.version))
        return None

    def _step(self, call: Call) -> Result:
        wanted = _RULES.get((call.op, call.version))
        if wanted is not None:
            return wanted(call, self)
        try:
            self.keep(call)
        except Refusal:
            if call.op not in _PARTS or call.op in _PLAIN:
                raise
            return self.apart(call)
        return None

    def _is_allowed(self, call: Call) -> bool:
        """Return whether the target's version of the operator supports the types of a call."""
        try:
            return not self.types(call)[0]
        except Refusal:
            return False


def _keep(call: Call, before: int | None) -> None:
    """Convert a call to the previous version if it has the same meaning according to the schemas; refuse otherwise."""
    if before is None:
        raise Refusal(f"{call.op} came with opset {call.version}, and no smaller operators are known for it")
    new, old = _forms.form(call.op, call.version), _forms.form(call.op, before)
    gone = [name for name in call.attributes if name not in old.defaults]
    for name in gone:
        if new.defaults.get(name) is None or call.attr(name) != new.defaults[name]:
            raise _newer(f"attribute {name}", call)
    _require_ports(call, new, old)
    for name in gone:
        del call.attributes[name]
    for name, default in old.defaults.items():
        if name in new.defaults and new.defaults[name] not in (None, default):
            call.attributes.setdefault(name, new.defaults[name])
    if not old.inputs or not old.inputs[-1].is_variadic:
        del call.inputs[len(old.inputs) :]


def _require_ports(call: Call, new: _forms.Form, old: _forms.Form) -> None:
    """Refuse a call with inputs or outputs that the older form lacks, or without an input that it requires."""
    for index in range(len(old.inputs), len(call.inputs)):
        if call.inputs[index] is not None and not old.inputs[-1].is_variadic:
            raise _newer(f"input {new.inputs[index].name}", call)
    for index, parameter in enumerate(old.inputs):
        is_needed = not (parameter.is_optional or parameter.is_variadic)
        if is_needed and call.find(index) is None:
            raise Refusal(f"input {parameter.name} of {call.op} must be given before opset {call.version}")
    for index in range(len(old.outputs), call.outputs):
        if call.is_read(index) and not old.outputs[-1].is_variadic:
            raise _newer(f"output {new.outputs[index].name}", call)


def _newer(what: str, call: Call) -> Refusal:
    return Refusal(f"{what} of {call.op} came with opset {call.version}")
