"""Definitions of names and members of classes, read from the source of surgery, with annotations as they are written.

Nothing is imported: a name is followed through the imports of modules, those for type checkers included.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import surgery

ROOT = Path(surgery.__file__).parent

Defining = ast.ClassDef | ast.FunctionDef | ast.Assign | ast.AnnAssign
"""The statements that define a public name or a member."""

_TYPE_VARIABLES = ("TypeVar", "ParamSpec")


@dataclass(frozen=True)
class Definition:
    """A statement that defines a name, and its docstring: empty if it has none. `within` is the class, if any."""

    module: str
    name: str
    node: Defining
    doc: str
    within: str = ""

    @property
    def marks(self) -> frozenset[str]:
        """The names of the decorators."""
        marks = [] if isinstance(self.node, ast.Assign | ast.AnnAssign) else self.node.decorator_list
        return frozenset(ast.unparse(mark.func if isinstance(mark, ast.Call) else mark) for mark in marks)

    @property
    def is_type_variable(self) -> bool:
        """Whether it is a type variable, which says nothing about values."""
        return isinstance(self.value, ast.Call) and ast.unparse(self.value.func) in _TYPE_VARIABLES

    @property
    def hint(self) -> ast.expr | None:
        """The annotation of an attribute, or of the result of a function; None if there is none."""
        if isinstance(self.node, ast.FunctionDef):
            return self.node.returns
        return self.node.annotation if isinstance(self.node, ast.AnnAssign) else None

    @property
    def value(self) -> ast.expr | None:
        """The value of a constant, or the default of an attribute; None if there is none."""
        return self.node.value if isinstance(self.node, ast.Assign | ast.AnnAssign) else None

    @property
    def path(self) -> str:
        """The file, relative to the folder of the package."""
        return _file(self.module).relative_to(ROOT.parent).as_posix()

    def written(self, node: ast.expr) -> str:
        """Return a part of the definition as it is written, on one line."""
        # `ast.get_source_segment` splits the whole file into lines at each call.
        lines = _lines(self.module)[node.lineno - 1 : node.end_lineno]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return " ".join(b" ".join(lines).decode().split())


def find(module: str, name: str) -> Definition | None:
    """Return the definition of a name that is used in a module, which may be dotted; None if it is not of surgery."""
    head, _, rest = name.partition(".")
    origin = _imported(module).get(head, "")
    if rest:
        return find(origin, rest) if _is_module(origin) else None
    own = _statements(module).get(name)
    if own is not None:
        return Definition(module, name, *own)
    holder, _, original = origin.rpartition(".")
    return find(holder, original) if _is_module(holder) else None


def bases(definition: Definition) -> list[Definition]:
    """List the base classes that surgery defines; none for what is not a class."""
    if not isinstance(definition.node, ast.ClassDef):
        return []
    found = (find(definition.module, ast.unparse(base)) for base in definition.node.bases)
    return [base for base in found if base is not None]


def members(definition: Definition) -> dict[str, Definition]:
    """Return the public members of a class, with those of bases with a private name, by name in written order.

    The method of a record is last.
    """
    assert isinstance(definition.node, ast.ClassDef)
    module, found = definition.module, {}
    for base in bases(definition):
        if base.name.startswith("_"):
            found.update(members(base))
    for name, (node, doc) in _pairs(definition.node.body):
        inherited = found.pop(name, None)
        found[name] = Definition(module, name, node, doc or (inherited.doc if inherited else ""), definition.name)
        if isinstance(node, ast.FunctionDef):
            found.update({name: Definition(module, name, *own, definition.name) for name, own in _set_on_self(node)})
    for base in bases(definition):
        if base.name == "Record":
            found = {**found, **{name: one for name, one in members(base).items() if name not in found}}
    return {name: member for name, member in found.items() if not name.startswith("_")}


def constructor(definition: Definition) -> Definition | None:
    """Return the method that makes an instance, if the class or a base of surgery defines it."""
    assert isinstance(definition.node, ast.ClassDef)
    for name, (node, doc) in _pairs(definition.node.body):
        if name == "__init__":
            return Definition(definition.module, name, node, doc, definition.name)
    return next((made for base in bases(definition) if (made := constructor(base)) is not None), None)


def _set_on_self(method: ast.FunctionDef) -> Iterator[tuple[str, tuple[Defining, str]]]:
    """Yield the attributes that a method documents: each with a string after the statement that sets it.

    An attribute that is a parameter has the type of the parameter.
    """
    types = {one.arg: one.annotation for one in (*method.args.args, *method.args.kwonlyargs)}
    for target, (node, doc) in _pairs(method.body):
        value = getattr(node, "value", None)
        hint = types.get(value.id) if isinstance(node, ast.Assign) and isinstance(value, ast.Name) else None
        if hint is not None:
            node = ast.AnnAssign(target=ast.Name(target), annotation=hint, value=None, simple=0)
        if doc and target.startswith("self."):
            yield target.removeprefix("self."), (node, doc)


def _pairs(body: Sequence[ast.stmt]) -> Iterator[tuple[str, tuple[Defining, str]]]:
    """Yield what statements define, with the docstring: that of a function or class, or the string that follows."""
    for node, following in zip(body, [*body[1:], ast.Pass()]):
        if isinstance(node, ast.If):  # for type checkers, or for a version of Python
            yield from _pairs(node.body)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name, (node, ast.get_docstring(node) or "")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            text = following.value if isinstance(following, ast.Expr) else None
            doc = text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else ""
            yield _target(node), (node, inspect.cleandoc(doc))


def _target(node: Defining) -> str:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return node.name
    return ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])


def _is_module(module: str) -> bool:
    return module.partition(".")[0] == "surgery" and _file(module).is_file()


@cache
def _file(module: str) -> Path:
    path = ROOT.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def _lines(module: str) -> list[bytes]:
    return _file(module).read_bytes().splitlines()


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(b"\n".join(_lines(module)))


@cache
def _statements(module: str) -> Mapping[str, tuple[Defining, str]]:
    return dict(_pairs(_tree(module).body))


@cache
def _imported(module: str) -> Mapping[str, str]:
    """Return the full name of each name that a module imports, also in a block for type checkers."""
    found = {}
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and not node.level:
            found.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return found
