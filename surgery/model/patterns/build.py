"""Build the nodes that a rule emits for a match."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from surgery.base.operators.schemas import (
    alike,
    fixed_type,
    is_defined,
    missing_attribute,
    parameter,
    schema_at,
    unknown_attribute,
    unknown_operator,
    wrong_count,
)
from surgery.model.graph.builder import Builder
from surgery.model.graph.values import Node, Refusal, Value
from surgery.model.patterns.emission import EmittedAttributes, EmittedOperator, Statement
from surgery.model.patterns.expression import Expression, NameExpression
from surgery.model.patterns.expression_values import Typed, evaluate
from surgery.model.patterns.functions import define
from surgery.model.patterns.match import Match
from surgery.model.patterns.vocabulary import TYPES, Symbol, Word, is_number, show
from surgery.model.storage.ir_scopes import subgraphs

if TYPE_CHECKING:
    import onnx
    from onnx.defs import OpSchema


class Construction:
    """The nodes and constants that replace one match. Every failure is a `Refusal`.

    `functions` are the functions of the rule, and `versions` the versions of the domains that it uses.
    """

    def __init__(
        self, functions: Sequence[onnx.FunctionProto], versions: Mapping[str, int], match: Match, new: Builder
    ) -> None:
        self.functions = functions
        self.versions = versions
        self.match = match
        self.new = new
        self.graph = match.graph
        self.made: dict[str, Value | None] = {}
        self._dtypes: dict[ir.Value, ir.DataType | None] = {}
        self._imports = self.graph.imports_of(match.root.ir)

    def require_outside(self) -> None:
        """Refuse a match in the body of a function of the rule itself: the function would call itself."""
        own = {(function.domain, function.name) for function in self.functions}
        function = self._function()
        if function is not None and (function.domain, function.name) in own:
            raise Refusal("the match is in the function that the rule adds")

    def emit(self, statements: Iterable[Statement]) -> Mapping[str, Value | None]:
        """Build the nodes line by line, and return the values by the names that the lines define."""
        for statement in statements:
            if statement.operator is None:
                self.made[statement.results[0].name] = self._alone(statement.operands[0])
            else:
                self._node(statement, statement.operator)
        self._import(statements)
        return self.made

    # Domains and functions

    def _function(self) -> ir.Function | None:
        scope = self.match.root.scope
        if scope not in self.graph.function_scopes:
            return None
        functions = self.graph.ir.functions.values()
        return next((one for one in functions if scope is one.graph or scope in one.graph.subgraphs()), None)

    def _import(self, statements: Iterable[Statement]) -> None:
        """Import the domains at the versions of the rule, and add its functions to the model."""
        used = {statement.operator.domain for statement in statements if statement.operator is not None} - {""}
        function = self._function()
        for domain in sorted(used):
            version = self.versions.get(domain, 1)
            places: list[tuple[ir.Function | None, Mapping[str, int]]] = [(None, self.graph.ir.opset_imports)]
            places += [(function, self._imports)] if function is not None else []
            for place, imports in places:
                found = imports.get(domain)
                if found is None:
                    self.new.set_opset(version, domain, function=place)
                elif domain in self.versions and found != version:
                    raise Refusal(f"the model imports {domain} at version {found}, but the rule needs {version}")
        for declared in self.functions:
            define(declared, self.graph, self.new, self.versions)

    def _version(self, domain: str) -> int:
        found = self._imports.get(domain)
        return found if found is not None else self.versions.get(domain, 0 if not domain else 1)

    # Nodes

    def _node(self, statement: Statement, operator: EmittedOperator) -> None:
        domain, op = operator.domain, operator.name
        if operator.like:
            like = self.match.node(operator.like).ir
            domain, op = like.domain, like.op_type
        operands = list(self._operands(statement.operands))
        attributes = self._attributes(statement.settings)
        schema = self._schema(domain, op, len(operands), len(statement.results), attributes)
        attributes = {name: self._attribute(name, value, schema) for name, value in attributes.items()}
        inputs = self._constants(op, operands, schema)
        label = f"{domain}::{op}" if domain else op
        outputs = self.new.nodes(label, *inputs, outputs=len(statement.results), attributes=attributes)
        for position, (result, value) in enumerate(zip(statement.results, outputs)):
            self.made[result.name] = value
            self._dtypes[value.ir] = self._output_type(schema, position, inputs, result.name)

    def _schema(self, domain: str, op: str, inputs: int, outputs: int, attributes: Collection[str]) -> OpSchema | None:
        """Return the schema of an operator at the opset of the match; refuse if the emitted node would violate it."""
        if not is_defined(domain):
            return None
        version = self._version(domain)
        schema = schema_at(domain, op, version)
        if schema is None:
            raise Refusal(unknown_operator(domain, op, f"at opset {version}"))
        wrong = wrong_count([schema], inputs, "inputs") or wrong_count([schema], outputs, "outputs")
        for name in attributes:
            wrong = wrong or unknown_attribute([schema], name)
        wrong = wrong or missing_attribute([schema], attributes)
        if wrong is not None:
            raise Refusal(f"at opset {version} {wrong}")
        return schema

    def _operands(self, operands: Iterable[Expression | None]) -> Iterable[Any]:
        """Yield the operands: values, None for absent ones, and contents of new constants."""
        for operand in operands:
            if not isinstance(operand, NameExpression):
                yield None if operand is None else evaluate(operand, self.match)
            elif operand.name in self.made:
                yield self.made[operand.name]
            elif operand.variadic:
                yield from self.match.bound(operand.name)
            else:
                yield self._named(operand)

    def _named(self, operand: NameExpression) -> Any:
        found = self.match.bound(operand.name)
        if found is None and not operand.optional:
            raise Refusal(f"{operand.name} is absent")
        return found

    def _alone(self, operand: Expression | None) -> Value | None:
        """Return the value of a line without an operator."""
        ((item,),) = (list(self._operands((operand,))),)
        if item is None or isinstance(item, Value):
            return item
        if not isinstance(item, Typed):
            raise Refusal(f"the type of {show(item)} is not known")
        return self._constant(item.value, item.dtype)

    # Attributes

    def _attributes(self, settings: Iterable[EmittedAttributes]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for setting in settings:
            if setting.spread:
                found.update(_attributes_of(self.match.node(setting.name)))
            elif isinstance(setting.value, NameExpression):
                found[setting.name] = self.match.bound(setting.value.name)
            elif setting.value is not None:
                found[setting.name] = evaluate(setting.value, self.match)
        return {name: value for name, value in found.items() if value is not None}

    def _attribute(self, name: str, value: Any, schema: OpSchema | None) -> Any:
        """Convert a computed attribute to the type that the operator declares."""
        if isinstance(value, Typed):
            return ir.tensor(_array(value.value, value.dtype))
        if isinstance(value, ir.Attr) or not isinstance(value, int | float | str | list):
            return value
        kind = _kind(schema, name) if schema is not None else ""
        items = [_plain(item, name) for item in (value if isinstance(value, list) else [value])]
        if kind in ("INT", "INTS"):
            items = [_whole(item, name) for item in items]
        elif kind in ("FLOAT", "FLOATS") or any(isinstance(item, float) for item in items):
            items = [_real(item, name) for item in items]
        if kind and isinstance(value, list) != kind.endswith("S"):
            raise Refusal(f"attribute {name} is {show(value)}, and {schema.name if schema else ''} wants {kind}")
        if not isinstance(value, list):
            return items[0]
        types = {int: ir.AttributeType.INTS, float: ir.AttributeType.FLOATS, str: ir.AttributeType.STRINGS}
        return ir.Attr(name, types[type(items[0]) if items else int], items)

    # Constants

    def _constants(self, op: str, operands: list[Any], schema: OpSchema | None) -> list[Value | None]:
        """Make constants of operands that are not values yet, with the types that the operator requires."""
        inputs: list[Value | None] = []
        for position, item in enumerate(operands):
            if item is None or isinstance(item, Value):
                inputs.append(item)
            elif isinstance(item, Typed):
                inputs.append(self._constant(item.value, item.dtype))
            else:
                dtype = self._wanted(schema, position, operands)
                if dtype is None:
                    raise Refusal(f"the type of {show(item)} in {op} is not known")
                inputs.append(self._constant(item, dtype))
        return inputs

    def _wanted(self, schema: OpSchema | None, position: int, operands: list[Any]) -> ir.DataType | None:
        formal = parameter(schema, position) if schema is not None else None
        if schema is None or formal is None:
            return None
        fixed = fixed_type(formal.type_str)
        if fixed is not None:
            return TYPES.get(fixed)
        for other in alike(schema, position):
            given = operands[other] if other < len(operands) else None
            dtype = self._dtype(given) if isinstance(given, Value) else None
            dtype = given.dtype if isinstance(given, Typed) else dtype
            if dtype is not None:
                return dtype
        return None

    def _constant(self, value: Any, dtype: ir.DataType) -> Value:
        return self.new.constant(_array(value, dtype), f"{self.match.root.name or 'rule'}/constant")

    # Types of new values

    def _dtype(self, value: Value) -> ir.DataType | None:
        return self._dtypes.get(value.ir, value.dtype)

    def _output_type(
        self, schema: OpSchema | None, position: int, inputs: list[Value | None], name: str
    ) -> ir.DataType | None:
        old = self.match.bound(name) if name in self.match.output_names else None
        if isinstance(old, Value) and old.dtype is not None:
            return old.dtype  # a replacement has the same type
        if schema is None or position >= len(schema.outputs):
            return None
        type_str = schema.outputs[position].type_str
        fixed = fixed_type(type_str)
        if fixed is not None:
            return TYPES.get(fixed)
        for index, value in enumerate(inputs):
            formal = parameter(schema, index)
            if value is not None and formal is not None and formal.type_str == type_str:
                return self._dtype(value)
        return None


def _kind(schema: OpSchema, name: str) -> str:
    """Return the type of an attribute, such as "INTS"."""
    return str(schema.attributes[name].type).rpartition(".")[2]


def _attributes_of(node: Node) -> Mapping[str, ir.Attr]:
    if subgraphs(node.ir):
        raise Refusal(f"{node.label} holds a subgraph, which is not copied")
    return dict(node.ir.attributes)


def _plain(item: Any, name: str) -> int | float | str:
    if isinstance(item, Word):
        return int(TYPES[item])
    if item is None or isinstance(item, Symbol):
        raise Refusal(f"attribute {name} would be {show(item)}, no number")
    return int(item) if isinstance(item, bool) else item


def _real(item: Any, name: str) -> float:
    if not is_number(item) or not (abs(item) <= 3.5e38 or item in (math.inf, -math.inf)):
        raise Refusal(f"attribute {name} would be {show(item)}, no float")
    return float(item)


def _whole(item: Any, name: str) -> int:
    if not is_number(item) or not abs(item) < 2**63 or item != int(item):
        raise Refusal(f"attribute {name} would be {show(item)}, no whole number")
    return int(item)


def _array(value: Any, dtype: ir.DataType) -> np.ndarray[Any, Any]:
    """Make an array of an element type, 1-D for a list and 0-D for a number."""
    items = value if isinstance(value, list) else [value]
    if dtype == ir.DataType.STRING or not all(is_number(item) for item in items):
        raise Refusal(f"{show(value)} cannot become a constant")
    array = np.array(items, dtype=np.float64 if any(isinstance(item, float) for item in items) else None)
    if array.dtype == object:
        raise Refusal(f"{show(value)} does not fit into {dtype.name.lower()}")
    with np.errstate(all="ignore"):
        made = array.astype(dtype.numpy())
    if not dtype.is_floating_point() and not np.array_equal(made.astype(array.dtype), array):
        raise Refusal(f"{show(value)} does not fit into {dtype.name.lower()}")
    return made if isinstance(value, list) else made.reshape(())
