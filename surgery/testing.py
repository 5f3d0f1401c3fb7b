"""The harness for case files: tests of passes in ONNX text, without any Python.

A case is a file `<folder>/<pass>/<situation>.onnxtxt`. It holds a graph (or a model, when it begins with `<`), and
comments in front of it say what the pass must do:

    # options: {target: onnxruntime}    options of the pass, as in a recipe
    # refused: c is used outside the pattern    the pass declines for this reason (may be repeated)
    # unchanged: why                    the pass does not even look
    # unverified: ONNX Runtime has no kernel for Dropout(1)    what keeps parity from being tried
    # declared: yes    what is declared of intermediate values is compared too

A line `# after` begins the expected result. For each case the harness asserts that the graph is valid, that the
result equals the expected one up to the names of interior values, that inputs and outputs are as before, that
ONNX Runtime computes the same, and that a second run changes nothing.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from surgery import bridges, registry, storage, text
from surgery.errors import SurgeryError
from surgery.graph import Graph

if TYPE_CHECKING:
    import onnx

    from surgery.registry import Pass

SUFFIX = ".onnxtxt"
_AFTER = "# after"


class CaseError(SurgeryError):
    """A case file that is not written as it should be."""

    code = "case"


@dataclass(frozen=True)
class Case:
    """One case file."""

    path: Path
    pass_name: str
    before: str
    after: str | None
    refused: tuple[str, ...] = ()
    unchanged: bool = False
    unverified: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    declared: bool = False

    @property
    def name(self) -> str:
        """The pass and the situation: "fuse-conv-bn/keeps_a_conv_that_is_read_twice"."""
        return f"{self.pass_name}/{self.path.stem}"


@dataclass(frozen=True)
class Outcome:
    """What a pass made of a case: the models as weightless protos, sites and reasons, and the weights of both."""

    before: onnx.ModelProto
    after: onnx.ModelProto
    sites: int
    reasons: tuple[str, ...]
    weights: storage.Weights


def cases(folder: Path) -> list[Case]:
    """Read all case files below a folder; the name of a case's own folder is the pass."""
    return [read_case(path) for path in sorted(folder.glob(f"*/*{SUFFIX}"))]


def read_case(path: Path) -> Case:
    """Read one case file; CaseError when it does not say what is expected."""
    lines = path.read_text(encoding="utf-8").splitlines()
    split = next((number for number, line in enumerate(lines) if line.strip() == _AFTER), len(lines))
    head, after = lines[:split], lines[split + 1 :]
    refused: list[str] = []
    unchanged = False
    unverified: str | None = None
    declared = False
    options: dict[str, Any] = {}
    for line in head:
        found = re.match(r"#\s*(options|refused|unchanged|unverified|declared):\s*(.*)", line)
        if found is None:
            continue
        key, rest = found.groups()
        if key == "options":
            options = _options(path, rest)
        elif key == "refused":
            refused.append(rest.strip())
        elif key == "unverified":
            unverified = rest.strip()
        elif key == "declared":
            declared = True
        else:
            unchanged = True
    expected = "\n".join(after) if split < len(lines) else None
    if (expected is None) == (not refused and not unchanged):
        raise CaseError("says neither '# after', '# refused: reason' nor '# unchanged: why'", where=str(path))
    source = "\n".join(head)
    return Case(path, path.parent.name, source, expected, tuple(refused), unchanged, unverified, options, declared)


def _options(path: Path, source: str) -> dict[str, Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        options = YAML(typ="safe").load(source)
    except YAMLError as error:
        raise CaseError("the options are not YAML", where=str(path)) from error
    if not isinstance(options, dict):
        raise CaseError("the options are not a mapping", where=str(path))
    return options


def run(model: onnx.ModelProto, declared: Pass, options: dict[str, Any]) -> Outcome:
    """Run one pass over a model in memory."""
    stored = storage.from_proto(model)
    graph = Graph(storage.ir_from_proto(stored.proto))
    bridges.apply(declared, graph, declared.bind(options))
    after = storage.proto_from_ir(graph.ir, stored.weights)
    reasons = tuple(dict.fromkeys(refused.reason for refused in graph.refusals))
    return Outcome(stored.proto, after, sum(not site.skipped for site in graph.sites), reasons, stored.weights)


def problems(case: Case) -> Iterator[str]:
    """Yield what is wrong with the outcome of a case; nothing when it is as it should be."""
    declared = registry.find(case.pass_name)
    model = text.parse(case.before)
    outcome = run(model, declared, case.options)
    before, after = storage.ir_from_proto(outcome.before), storage.ir_from_proto(outcome.after)
    changed = text.structural_diff(before, after, declared=case.declared)
    if case.after is None and changed:
        yield f"the graph changed:\n{changed}"
    if case.after is not None:
        stored = storage.from_proto(text.parse(case.after))
        expected = storage.ir_from_proto(stored.proto, stored.weights)
        if not changed:
            yield "the pass did not fire"
        difference = text.structural_diff(expected, after, names=("expected", "got"), declared=case.declared)
        if difference:
            yield f"the result is another one:\n{difference}"
    for reason in case.refused:
        if reason not in outcome.reasons:
            yield f"not refused because '{reason}'; the reasons given: {list(outcome.reasons)}"
    if case.unchanged and outcome.reasons:
        yield f"refused ({list(outcome.reasons)}), which a '# refused:' line should say"
    again = run(storage.resolve(outcome.after), declared, case.options)
    repeated = text.structural_diff(after, storage.ir_from_proto(again.after), declared=case.declared)
    if repeated:
        yield f"a second run changes more:\n{repeated}"
    yield from _verified(outcome, declared, case.unverified)


def _verified(outcome: Outcome, declared: Pass, unverified: str | None) -> Iterator[str]:
    from surgery.recipe.schema import InputsSpec, VerifySpec
    from surgery.verify import Verifier, check, signature

    before, after = (proto.SerializeToString(deterministic=True) for proto in (outcome.before, outcome.after))
    yield from (f"the case is not valid: {finding}" for finding in check(before))
    if after == before:
        return
    yield from (f"the result is not valid: {finding}" for finding in check(after))
    yield from signature(outcome.before).differences(signature(outcome.after))
    with closing(Verifier(before, InputsSpec(), VerifySpec())) as verifier:
        verdict = verifier.verify(after, declared.parity)
    if unverified is not None:
        if (verdict.status, verdict.message or verdict.reason) != ("unverified", unverified):
            yield f"parity: {verdict.status}, not as the case says: {verdict.message or verdict.reason}"
    elif verdict.status not in ("equal", "close"):
        yield f"parity: {verdict.status}: {verdict.message or verdict.reason}"


def bless(case: Case) -> None:
    """Rewrite the expected half of a case file, or its reasons, by what the pass does now."""
    outcome = run(text.parse(case.before), registry.find(case.pass_name), case.options)
    before, after = storage.ir_from_proto(outcome.before), storage.ir_from_proto(outcome.after)
    changed = text.structural_diff(before, after, declared=case.declared)
    kept = [line for line in case.before.splitlines() if not re.match(r"#\s*(refused|unchanged):", line)]
    body = "\n".join(kept).strip("\n")
    if changed:
        header = text.parse(case.before)
        resolved = storage.resolve(outcome.after)
        same_imports = list(header.opset_import) == list(resolved.opset_import)
        graph = "\n".join(line for line in case.before.splitlines() if not line.startswith("#"))
        bare = same_imports and not graph.lstrip().startswith("<") and not resolved.functions
        result = text.print_graph(resolved, declarations=case.declared) if bare else text.print_model(resolved)
        case.path.write_text(f"{body}\n\n{_AFTER}\n{result}\n", encoding="utf-8")
        return
    reasons = [f"# refused: {reason}" for reason in outcome.reasons] or ["# unchanged: nothing to do"]
    case.path.write_text("\n".join([*reasons, body]) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Example:
    """The example of a pass's docstring, and what the pass makes of it, as ONNX text."""

    before: str
    after: str


def example(declared: Pass) -> Example | None:
    """Run the example of a pass's docstring; None when there is none."""
    if declared.example is None:
        return None
    outcome = run(text.parse(declared.example), declared, {})
    before, after = storage.ir_from_proto(outcome.before), storage.ir_from_proto(outcome.after)
    # Where only declarations changed they are what the example is about.
    declarations = not text.structural_diff(before, after)
    return Example(declared.example, text.print_graph(storage.resolve(outcome.after), declarations=declarations))


def reason_texts(declared: Pass) -> list[str]:
    """List the reasons for which a pass refuses, in the order of its source; a hole in one is shown as "…"."""
    reasons = (reason.pattern.replace(".+", "…") for reason in _reasons(declared))
    return list(dict.fromkeys(re.sub(r"\\(.)", r"\1", reason) for reason in reasons))


def reasons_in(passes: Iterable[Pass]) -> dict[str, set[re.Pattern[str]]]:
    """List, by pass, the reasons that its module can refuse with, as patterns (an f-string has holes)."""
    return {declared.name: set(_reasons(declared)) for declared in passes}


def _reasons(declared: Pass) -> Iterator[re.Pattern[str]]:
    """Yield the reasons in the module of a pass and in what it uses of the `_shared` module beside it."""
    module = sys.modules[declared.origin]
    sources: list[Any] = [module, *_shared_functions(vars(module).values())]
    for source in sources:
        yield from _reasons_in(inspect.getsource(source))


def _shared_functions(names: Iterable[Any]) -> list[FunctionType]:
    """List the functions of `_shared` modules among these objects, those in tables too, and what they call."""
    found: dict[FunctionType, None] = {}
    pending = list(names)
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending += [value for value in item.values() if isinstance(value, FunctionType)]
        elif isinstance(item, FunctionType) and item.__module__.endswith("._shared") and item not in found:
            found[item] = None
            pending += [item.__globals__[name] for name in _names(item.__code__) if name in item.__globals__]
    return list(found)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _reasons_in(source: str) -> Iterator[re.Pattern[str]]:
    tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called == "require" and len(node.args) == 2:
            yield _reason(node.args[1])
        elif called == "Refusal" and len(node.args) == 1:
            yield _reason(node.args[0])


def _reason(expression: ast.expr) -> re.Pattern[str]:
    if isinstance(expression, ast.JoinedStr):
        parts = [re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+" for part in expression.values]
        return re.compile("".join(parts))
    if isinstance(expression, ast.Constant):
        return re.compile(re.escape(str(expression.value)))
    return re.compile(".+")
