"""Read the pickles of PyTorch checkpoints without running them.

A pickle is a program. This reader interprets the opcodes that build plain values, and only records imports and calls:
no module is imported, and nothing is called. Any name that a real unpickler would import or call is refused, except the
functions that describe tensors (`torch._utils._rebuild_tensor_v2` and the like), and plain records that are commonly
stored next to weights (`argparse.Namespace`, NumPy scalars), which are recorded but never constructed.

The opcodes are those of `pickletools`, which splits a pickle into opcodes and arguments without executing anything.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

_SHOWN: Final = 60
_MOST_OPCODES: Final = 20_000_000


class PickleError(ValueError):
    """A pickle that is damaged, or that does more than a weight file needs."""


class UnsafePickleError(PickleError):
    """A pickle that would import or call something unsafe."""


@dataclass(frozen=True)
class Global:
    """A name in a module, recorded without importing it."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass
class Called:
    """A recorded call of a known function."""

    function: Global
    arguments: tuple[Any, ...]
    state: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Persistent:
    """A reference to an object outside the pickle; in checkpoints, to a storage."""

    value: Any


class _Mark:
    pass


MAPPINGS: Final = frozenset({"collections.OrderedDict", "collections.defaultdict", "builtins.dict", "__builtin__.dict"})
"""Types that are read as a dict."""

_COLLECTIONS: Final = frozenset(
    f"{module}.{name}"
    for module in ("builtins", "__builtin__")
    for name in ("set", "frozenset", "list", "tuple", "slice", "complex", "bytearray", "int", "float", "str", "bool")
)
_RECORDS: Final = frozenset(
    {
        *("argparse.Namespace", "types.SimpleNamespace", "collections.Counter", "datetime.datetime", "datetime.date"),
        *("datetime.timedelta", "pathlib.PosixPath", "pathlib.WindowsPath", "pathlib.PurePosixPath", "_codecs.encode"),
        *("pathlib._local.PosixPath", "pathlib._local.WindowsPath", "decimal.Decimal", "fractions.Fraction"),
        *("numpy.dtype", "numpy.ndarray", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"),
        *("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct"),
        *("torch.Size", "torch.device", "torch.Tensor", "torch.nn.parameter.Parameter", "copyreg._reconstructor"),
        *("builtins.object", "__builtin__.object", "copy_reg._reconstructor", "collections.deque"),
    }
)
"""Names of objects that are not weights; they are recorded but never constructed."""

TENSORS: Final = frozenset(
    {
        *(f"torch._utils._rebuild_{name}" for name in ("tensor", "tensor_v2", "tensor_v3", "parameter", "qtensor")),
        *(f"torch._utils._rebuild_{name}" for name in ("parameter_with_state", "sparse_tensor", "nested_tensor")),
        *(f"torch._utils._rebuild_{name}" for name in ("meta_tensor_no_storage", "wrapper_subclass")),
        "torch._utils._rebuild_device_tensor_from_numpy",
        "torch._utils._rebuild_device_tensor_from_cpu_tensor",
        "torch._tensor._rebuild_from_type_v2",
    }
)
"""Functions that construct tensors."""

_CALLABLE: Final = TENSORS | MAPPINGS | _COLLECTIONS | _RECORDS
_STORAGES: Final = frozenset({"UntypedStorage", "TypedStorage", "_UntypedStorage", "_TypedStorage"})
_TORCH_WORDS: Final = frozenset(
    {
        *("float64", "double", "float32", "float", "float16", "half", "bfloat16", "uint8", "int8", "int16", "short"),
        *("int32", "int", "int64", "long", "uint16", "uint32", "uint64", "bool", "complex64", "complex128"),
        *("complex32", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
        *("qint8", "quint8", "qint32", "strided", "contiguous_format", "channels_last", "preserve_format"),
        *("per_tensor_affine", "per_channel_affine", "sparse_coo", "sparse_csr"),
    }
)


def _is_known(found: Global) -> bool:
    """Return whether a name stands for plain data, so that it may occur; it is never imported."""
    if str(found) in _CALLABLE:
        return True
    if found.module in ("torch", "torch.storage", "torch.cuda") and "." not in found.name:
        return found.name.endswith("Storage") or found.name in _STORAGES or found.name in _TORCH_WORDS
    return found.module == "torch.serialization" and found.name == "_get_layout"


def read_pickle(file: BinaryIO) -> Any:
    """Return the contents of a pickle: plain values and dicts, and `Called`, `Global` and `Persistent` for the rest.

    The file is left at the end of the pickle. Raises `UnsafePickleError`, with the name and the arguments, for imports
    and calls that do not describe weights, and `PickleError` for a damaged pickle.
    """
    machine = _Machine()
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(file)):
            if count > _MOST_OPCODES:
                raise PickleError(f"it has more than {_MOST_OPCODES:,} opcodes")
            handler = _HANDLERS.get(opcode.name)
            if handler is None:
                raise UnsafePickleError(f"it uses the opcode {opcode.name}, which weight files do not need")
            handler(machine, argument)
            if opcode.name == "STOP":
                return machine.finish()
    except PickleError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, EOFError) as error:
        raise PickleError(f"its pickle is damaged: {' '.join(str(error).split())[:200]}") from error
    raise PickleError("its pickle is truncated")


class _Machine:
    """The stack, the memo, and the unknown names that were encountered."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.unknown: list[Global] = []
        self.result: Any = None

    def finish(self) -> Any:
        """Return the value; refuse unknown names that were never called, because they would still be imported."""
        for found in self.unknown:
            raise UnsafePickleError(f"it would import {found}")
        return self.result

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        value = self.stack.pop()
        if isinstance(value, _Mark):
            raise PickleError("its pickle is damaged: a mark instead of a value")
        return value

    def pop_to_mark(self) -> list[Any]:
        for index in range(len(self.stack) - 1, -1, -1):
            if isinstance(self.stack[index], _Mark):
                found = self.stack[index + 1 :]
                del self.stack[index:]
                return found
        raise PickleError("its pickle is damaged: a mark is missing")

    def name(self, module: Any, name: Any) -> Global:
        if not isinstance(module, str) or not isinstance(name, str):
            raise UnsafePickleError(f"it would import {_short(module)}.{_short(name)}, which is not a name")
        found = Global(module, name)
        if not _is_known(found):
            self.unknown.append(found)
        return found

    def call(self, function: Any, arguments: Any, how: str = "call") -> Any:
        """Record a call of a known function; refuse any other call."""
        if not isinstance(function, Global):
            raise UnsafePickleError(f"it would {how} {_short(function)}{_listed(arguments)}")
        if str(function) not in _CALLABLE and not (function.module == "torch.serialization" and _is_known(function)):
            raise UnsafePickleError(f"it would {how} {function}{_listed(arguments)}")
        if not isinstance(arguments, tuple):
            raise PickleError(f"its pickle is damaged: {function} is called without a tuple")
        if str(function) in MAPPINGS:
            return _mapping(function, arguments)
        return Called(function, arguments)

    def build(self, state: Any) -> None:
        """Record the state that a known object is given; refuse others, because __setstate__ would be called."""
        target = self.stack[-1]
        if isinstance(target, Called):
            target.state.append(state)
        elif not isinstance(target, dict):
            raise UnsafePickleError(f"it would call __setstate__ of {_short(target)} with {_short(state)}")

    def fill(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Called):
            target.state.append(pairs)
            return
        if not isinstance(target, dict) or len(pairs) % 2:
            raise UnsafePickleError(f"it would call __setitem__ of {_short(target)}")
        for index in range(0, len(pairs), 2):
            target[_hashable(pairs[index])] = pairs[index + 1]

    def extend(self, items: list[Any], method: str = "append") -> None:
        target = self.stack[-1]
        if isinstance(target, Called):
            target.state.append(items)
        elif isinstance(target, list):
            target.extend(items)
        else:
            raise UnsafePickleError(f"it would call {method} of {_short(target)} with {_short(items)}")


def _mapping(function: Global, arguments: tuple[Any, ...]) -> dict[Any, Any]:
    """Return the dict that a call of dict, OrderedDict or defaultdict returns."""
    found: dict[Any, Any] = {}
    given = arguments[1:] if function.name == "defaultdict" else arguments
    for items in given:
        pairs = items.items() if isinstance(items, dict) else items
        for key, value in pairs:
            found[_hashable(key)] = value
    return found


def _hashable(key: Any) -> Any:
    return key if isinstance(key, str | int | float | bool | bytes | type(None)) else _short(key)


def _listed(arguments: Any) -> str:
    if not isinstance(arguments, tuple | list):
        return f"({_short(arguments)})"
    return f"({', '.join(_short(one) for one in arguments[:4])}{', ...' if len(arguments) > 4 else ''})"


def _short(value: Any) -> str:
    """Describe a value briefly; nested values are not shown, because the nesting may be unbounded."""
    if isinstance(value, str | bytes | int | float | bool | type(None)):
        text = repr(value[:_SHOWN] if isinstance(value, str | bytes) else value)
    elif isinstance(value, Called):
        text = f"{value.function}(...)"
    elif isinstance(value, Global):
        text = str(value)
    elif isinstance(value, Persistent):
        text = "a persistent id"
    else:
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN + 3 else f"{text[:_SHOWN]}..."


def _put(machine: _Machine, index: Any) -> None:
    machine.memo[int(index)] = machine.stack[-1]


def _memoize(machine: _Machine, _: Any) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


def _global(machine: _Machine, argument: Any) -> None:
    # pickletools joins the two lines with a space.
    module, _, name = str(argument).partition(" ")
    machine.push(machine.name(module, name))


def _stack_global(machine: _Machine, _: Any) -> None:
    name = machine.pop()
    machine.push(machine.name(machine.pop(), name))


def _inst(machine: _Machine, argument: Any) -> None:
    module, _, name = str(argument).partition(" ")
    arguments = tuple(machine.pop_to_mark())
    machine.push(machine.call(machine.name(module, name), arguments, "make"))


def _obj(machine: _Machine, _: Any) -> None:
    kind, *arguments = machine.pop_to_mark()
    machine.push(machine.call(kind, tuple(arguments), "make"))


def _reduce(machine: _Machine, _: Any) -> None:
    arguments = machine.pop()
    machine.push(machine.call(machine.pop(), arguments))


def _newobj(machine: _Machine, _: Any) -> None:
    arguments = machine.pop()
    machine.push(machine.call(machine.pop(), arguments, "make"))


def _newobj_ex(machine: _Machine, _: Any) -> None:
    machine.pop()
    _newobj(machine, None)


def _extension(machine: _Machine, code: Any) -> None:
    raise UnsafePickleError(f"it would import entry {code} of the extension registry of copyreg")


def _persistent(machine: _Machine, _: Any) -> None:
    machine.push(Persistent(machine.pop()))


def _setitem(machine: _Machine, _: Any) -> None:
    value = machine.pop()
    key = machine.pop()
    machine.fill([key, value])


def _append(machine: _Machine, _: Any) -> None:
    machine.extend([machine.pop()])


def _tuple_of(count: int) -> Callable[[_Machine, Any], None]:
    def make(machine: _Machine, _: Any) -> None:
        machine.push(tuple(reversed([machine.pop() for _ in range(count)])))

    return make


def _build(machine: _Machine, _: Any) -> None:
    state = machine.pop()
    machine.build(state)


def _stop(machine: _Machine, _: Any) -> None:
    machine.result = machine.pop()


def _literal(machine: _Machine, argument: Any) -> None:
    machine.push(argument)


def _value(make: Callable[[], Any]) -> Callable[[_Machine, Any], None]:
    return lambda machine, _: machine.push(make())


_LITERALS: Final = (
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "STRING", "BINSTRING", "SHORT_BINSTRING"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE"),
    *("BINUNICODE8", "FLOAT", "BINFLOAT"),
)

_HANDLERS: Final[Mapping[str, Callable[[_Machine, Any], object]]] = {
    **dict.fromkeys(_LITERALS, _literal),
    **dict.fromkeys(("PROTO", "FRAME"), lambda machine, _: None),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda machine, at: machine.push(machine.memo[int(at)])),
    **dict.fromkeys(("EXT1", "EXT2", "EXT4"), _extension),
    "MEMOIZE": _memoize,
    "NONE": _value(lambda: None),
    "NEWTRUE": _value(lambda: True),
    "NEWFALSE": _value(lambda: False),
    "EMPTY_LIST": _value(list),
    "EMPTY_TUPLE": _value(tuple),
    "EMPTY_DICT": _value(dict),
    "EMPTY_SET": _value(list),
    "MARK": _value(_Mark),
    "POP": lambda machine, _: machine.stack.pop(),
    "POP_MARK": lambda machine, _: machine.pop_to_mark(),
    "DUP": lambda machine, _: machine.push(machine.stack[-1]),
    "LIST": lambda machine, _: machine.push(machine.pop_to_mark()),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.pop_to_mark())),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "DICT": lambda machine, _: machine.push(_pairs(machine.pop_to_mark())),
    "FROZENSET": lambda machine, _: machine.push(machine.pop_to_mark()),
    "APPEND": _append,
    "APPENDS": lambda machine, _: machine.extend(machine.pop_to_mark()),
    "ADDITEMS": lambda machine, _: machine.extend(machine.pop_to_mark(), "add"),
    "SETITEM": _setitem,
    "SETITEMS": lambda machine, _: machine.fill(machine.pop_to_mark()),
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "INST": _inst,
    "OBJ": _obj,
    "REDUCE": _reduce,
    "NEWOBJ": _newobj,
    "NEWOBJ_EX": _newobj_ex,
    "BUILD": _build,
    "PERSID": lambda machine, text: machine.push(Persistent(text)),
    "BINPERSID": _persistent,
    "STOP": _stop,
}


def _pairs(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise PickleError("its pickle is damaged: a dict has a key without a value")
    return {_hashable(items[index]): items[index + 1] for index in range(0, len(items), 2)}


def nested(value: Any) -> Iterator[Any]:
    """Yield a value and everything nested in it; each container is yielded once."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict | list | tuple | Called | Persistent):
            if id(here) in seen:
                continue
            seen.add(id(here))
        yield here
        if isinstance(here, dict):
            waiting.extend(here.values())
        elif isinstance(here, list | tuple):
            waiting.extend(here)
        elif isinstance(here, Called):
            waiting.extend([*here.arguments, *here.state])
        elif isinstance(here, Persistent):
            waiting.append(here.value)
