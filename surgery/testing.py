"""The harness for case files: tests of passes in ONNX text, without any Python.

A case is a file `<folder>/<pass>/<situation>.onnxtxt`. It holds a graph (or a model, when it begins with `<`), and
comments in front of it say what the pass must do:

    # options: {target: onnxruntime}    options of the pass, as in a recipe
    # refused: c is used outside the pattern    the pass declines for this reason (may be repeated)
    # unchanged: why                    the pass does not even look

A line `# after` begins the expected result. For each case the harness asserts that the graph is valid, that the
result equals the expected one up to the names of interior values, that inputs and outputs are as before, that
ONNX Runtime computes the same, and that a second run changes nothing.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery import registry, storage, text
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
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The pass and the situation: "fuse-conv-bn/keeps_a_conv_that_is_read_twice"."""
        return f"{self.pass_name}/{self.path.stem}"


@dataclass(frozen=True)
class Outcome:
    """What a pass made of a case: the models as weightless protos, sites and reasons."""

    before: onnx.ModelProto
    after: onnx.ModelProto
    sites: int
    reasons: tuple[str, ...]


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
    options: dict[str, Any] = {}
    for line in head:
        found = re.match(r"#\s*(options|refused|unchanged):\s*(.*)", line)
        if found is None:
            continue
        key, rest = found.groups()
        if key == "options":
            options = _options(path, rest)
        elif key == "refused":
            refused.append(rest.strip())
        else:
            unchanged = True
    expected = "\n".join(after) if split < len(lines) else None
    if (expected is None) == (not refused and not unchanged):
        raise CaseError("says neither '# after', '# refused: reason' nor '# unchanged: why'", where=str(path))
    return Case(path, path.parent.name, "\n".join(head), expected, tuple(refused), unchanged, options)


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
    declared.apply(graph, declared.bind(options))
    after = storage.proto_from_ir(graph.ir, stored.weights)
    reasons = tuple(dict.fromkeys(refused.reason for refused in graph.refusals))
    return Outcome(stored.proto, after, sum(not site.skipped for site in graph.sites), reasons)


def problems(case: Case) -> Iterator[str]:
    """Yield what is wrong with the outcome of a case; nothing when it is as it should be."""
    declared = registry.find(case.pass_name)
    model = text.parse(case.before)
    outcome = run(model, declared, case.options)
    before, after = storage.ir_from_proto(outcome.before), storage.ir_from_proto(outcome.after)
    changed = text.structural_diff(before, after)
    if case.after is None and changed:
        yield f"the graph changed:\n{changed}"
    if case.after is not None:
        expected = storage.ir_from_proto(storage.from_proto(text.parse(case.after)).proto)
        if not changed:
            yield "the pass did not fire"
        difference = text.structural_diff(expected, after, names=("expected", "got"))
        if difference:
            yield f"the result is another one:\n{difference}"
    for reason in case.refused:
        if reason not in outcome.reasons:
            yield f"not refused because '{reason}'; the reasons given: {list(outcome.reasons)}"
    if case.unchanged and outcome.reasons:
        yield f"refused ({list(outcome.reasons)}), which a '# refused:' line should say"
    again = run(outcome.after, declared, case.options)
    repeated = text.structural_diff(after, storage.ir_from_proto(again.after))
    if repeated:
        yield f"a second run changes more:\n{repeated}"
    yield from _verified(outcome, declared)


def _verified(outcome: Outcome, declared: Pass) -> Iterator[str]:
    from surgery.recipe.schema import InputsSpec, VerifySpec
    from surgery.verify import Verifier, check, signature

    for kind, proto in (("case", outcome.before), ("result", outcome.after)):
        for finding in check(proto.SerializeToString()):
            yield f"the {kind} is not valid: {finding}"
    yield from signature(outcome.before).differences(signature(outcome.after))
    with closing(Verifier(outcome.before.SerializeToString(), InputsSpec(), VerifySpec())) as verifier:
        verdict = verifier.verify(outcome.after.SerializeToString(), declared.parity)
    if verdict.status not in ("equal", "close"):
        yield f"parity: {verdict.status}: {verdict.message or verdict.reason}"


def bless(case: Case) -> None:
    """Rewrite the expected half of a case file, or its reasons, by what the pass does now."""
    outcome = run(text.parse(case.before), registry.find(case.pass_name), case.options)
    changed = text.structural_diff(storage.ir_from_proto(outcome.before), storage.ir_from_proto(outcome.after))
    kept = [line for line in case.before.splitlines() if not re.match(r"#\s*(refused|unchanged):", line)]
    body = "\n".join(kept).strip("\n")
    if changed:
        header = text.parse(case.before)
        resolved = storage.resolve(outcome.after)
        same_imports = list(header.opset_import) == list(resolved.opset_import)
        bare = same_imports and not case.before.lstrip("# \n").startswith("<") and not resolved.functions
        result = text.print_graph(resolved) if bare else text.print_model(resolved)
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
    return Example(declared.example, text.print_graph(storage.resolve(outcome.after)))


def reason_texts(declared: Pass) -> list[str]:
    """List the reasons for which a pass refuses, in the order of its source; a hole in one is shown as "…"."""
    source = inspect.getmodule(declared.function)
    return list(
        dict.fromkeys(re.sub(r"\\(.)", r"\1", reason.pattern.replace(".+", "…")) for reason in _reasons(source))
    )


def reasons_in(passes: Iterable[Pass]) -> dict[str, set[re.Pattern[str]]]:
    """List, by pass, the reasons that its module can refuse with, as patterns (an f-string has holes)."""
    return {declared.name: set(_reasons(inspect.getmodule(declared.function))) for declared in passes}


def _reasons(module: Any) -> Iterator[re.Pattern[str]]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(module)))
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
