"""The Python reference: every public name once, with its text, and nothing that is private."""

import ast
import builtins
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from textwrap import dedent

import pytest
from support import ROOT

import surgery
from surgery.base import errors
from surgery.interface.docsgen import definitions_in_source as source
from surgery.interface.docsgen import python_pages
from surgery.interface.docsgen import signatures_in_source as signatures
from surgery.interface.docsgen.public_groups import INHERITED, INTERNAL, PAGES

LISTED = [name for page in PAGES.values() for group in page.groups for name in group.names]
FUNCTIONS = [name for name in surgery.__all__ if inspect.isfunction(getattr(surgery, name))]


@cache
def page() -> str:
    """Write the pages as one, which takes most of a second."""
    return "".join(python_pages.pages().values())


@cache
def entries() -> dict[str, str]:
    return dict(re.findall(r"^### (?:class )?`?(\w+)`?\n((?:(?!^##).*\n?)*)", page(), flags=re.MULTILINE))


def documented(name: str) -> Iterator[source.Definition]:
    """Yield what the entry of a public name documents."""
    found = python_pages.public(name)
    yield found
    if isinstance(found.node, ast.ClassDef):
        yield from python_pages.shown_members(found).values()


def test_each_public_name_is_in_one_group() -> None:
    assert [name for name, count in Counter(LISTED).items() if count > 1] == []
    assert set(LISTED) == {*surgery.__all__, "__version__"}
    assert set(LISTED) <= set(entries())


def test_the_typed_names_are_the_lazy_ones() -> None:
    for name in surgery.__all__:
        found = python_pages.public(name)
        assert getattr(surgery, name) is getattr(__import__(found.module, fromlist=[name]), found.name)


@pytest.mark.parametrize("name", surgery.__all__)
def test_a_public_name_and_its_methods_are_described(name: str) -> None:
    silent = [one.name for one in documented(name) if not one.doc and isinstance(one.node, ast.FunctionDef)]
    assert python_pages.public(name).doc and silent == []


@pytest.mark.parametrize("name", surgery.__all__)
def test_errors_in_the_text_can_be_caught(name: str) -> None:
    """Each error that a docstring names is a public name or one of Python's."""
    named = {word for one in documented(name) for word in re.findall(r"\b[A-Z]\w*Error\b", one.doc)}
    assert {word for word in named if word not in surgery.__all__ and not hasattr(builtins, word)} == set()


def test_errors_that_commands_end_with_are_public() -> None:
    codes = {kind.code: kind for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")}
    public = {getattr(surgery, name).code for name in surgery.__all__ if name.endswith("Error")}
    assert public == set(codes)


READING = [
    *("apply", "run", "plan", "view", "inspect", "histogram", "opset", "explain", "diff", "verify", "check", "bench")
]


@pytest.mark.parametrize("name", [*READING, "edit", "load", "save", "split", "bisect", "export", "import_weights"])
def test_functions_of_models_name_their_errors(name: str) -> None:
    assert re.search(r"\bRaises\b[^.]*\w+Error", python_pages.public(name).doc)


@pytest.mark.parametrize("name", READING)
def test_a_missing_file_raises_what_the_text_says(name: str, standard: dict[str, tuple[object, ...]]) -> None:
    with pytest.raises(surgery.ModelFileError):
        getattr(surgery, name)(*standard.get(name, ("missing.onnx",)))
    text = python_pages.public(name).doc
    assert "ModelFileError" in text or "the errors of `surgery.apply`" in text


@pytest.fixture
def standard() -> dict[str, tuple[object, ...]]:
    pair = dict.fromkeys(("diff", "verify", "bench"), (ROOT / "models" / "resnet-tiny.onnx", "missing.onnx"))
    return {**pair, "run": ("missing.onnx", "fuse-gelu"), "explain": ("fuse-gelu", "missing.onnx")}


def test_a_plan_is_not_verified_in_an_unknown_way() -> None:
    with pytest.raises(surgery.UsageError, match="'all' is no way to verify a plan; choose none, each, end"):
        surgery.plan(ROOT / "models" / "resnet-tiny.onnx", "tidy", verify="all")  # type: ignore[arg-type]


def test_signatures_have_every_parameter() -> None:
    for name in FUNCTIONS:
        signature = entries()[name].split("```")[1]
        missing = [one for one in inspect.signature(getattr(surgery, name)).parameters if f"{one}:" not in signature]
        assert missing == [], name


def test_signatures_name_what_is_described() -> None:
    """Names of surgery in a signature are public, or the entry says what they are."""
    entry = entries()["apply"]
    assert (
        "recipe: Given" in entry and "- `Given` is `str | Path | Recipe | Mapping[str, Any] | Sequence[Any]`" in entry
    )
    assert "layout: Layout = " in entry and '- `Layout` is `Literal["keep", "single", "external"]`' in entry
    assert "options: RunOptions = RunOptions()," in entry
    assert f'target: str | Path = "{surgery.edit.__kwdefaults__["target"]}"' in entries()["edit"]


PARTS = {
    "Recipe": "a name, path, list, mapping or text is taken too",
    "Observer": "receives the progress; an object with the same methods will do",
    "NameMapping": "the content of a mapping file, which the command reads",
    "TensorSource": "a row of that",
    "Weights": "an attribute of what surgery.load returns",
    "Target": "an attribute of the graph of a pass",
    "GraphState": "the base class of the graph of a pass",
}
"""Classes in signatures of functions that are no names of surgery, and why none is needed."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_classes_in_signatures_are_public_or_documented(name: str) -> None:
    found = signatures.named(signatures.hints(python_pages.public(name))).values()
    classes = {one.name for one in found if isinstance(one.node, ast.ClassDef)}
    assert classes - set(entries()) - set(PARTS) == set()
    described = {one for one in classes if f"`{one}`: " in entries()[name] or f"[`{one}`](" in entries()[name]}
    assert classes - set(entries()) - described == set()


def test_settings_are_constructed_from_public_names() -> None:
    """The classes that stay inside name code of a local file, or say where in a recipe something is written."""
    settings = next(group.names for group in PAGES["python"].groups if group.title == "Settings")
    fields = [one for name in settings for one in source.members(python_pages.public(name)).values()]
    kinds = signatures.named((one, one.hint) for one in fields if isinstance(one.node, ast.AnnAssign) and one.hint)
    hidden = {one.name for one in kinds.values() if isinstance(one.node, ast.ClassDef)} - set(surgery.__all__)
    assert hidden == {"GeneratorSpec", "MetricSpec", "Place"}
    assert "dims: Mapping[str, tuple[int, ...]] = {}," in entries()["InputsSpec"]
    assert "accuracy: AccuracySpec = AccuracySpec()," in entries()["VerifySpec"]


def test_pages_import_only_public_names() -> None:
    deep = re.compile(r"(?:from|import) surgery\.(?:base|model|verification|engine|features|interface)\b")
    pages = [path for path in (ROOT / "docs").rglob("*.md") if deep.search(path.read_text(encoding="utf-8"))]
    assert pages == []


def test_private_names_and_modules_do_not_appear() -> None:
    prose = re.sub(r"^Source: .*$", "", page(), flags=re.MULTILINE)
    assert set(re.findall(r"(?<![\w/.#])_[a-z]\w*", prose)) == set()
    assert set(re.findall(r"\bsurgery\.\w+\.\w+", prose)) - {"surgery.Session.open"} == set()
    members = {line.split("(")[0] for line in re.findall(r"^- `(\w+)[(:]", entries()["Graph"], flags=re.MULTILINE)}
    assert {"nodes", "site", "opset", "fresh"} <= members
    assert members & {"finish", "begin", "refresh", "settle_order", "calibration", "memory", "weights"} == set()


def test_exceptions_of_the_tables_exist() -> None:
    classes = {found.name: found for page in PAGES.values() for found in python_pages._entries(page).values()}
    for name, hidden in INTERNAL.items():
        assert set(hidden) <= set(source.members(classes[name])), name
    for name in INHERITED:
        assert source.bases(classes[name]), name


def test_what_passes_use_of_a_graph_is_described() -> None:
    shown = set(python_pages.shown_members(python_pages.public("Graph")))
    used = {
        node.attr
        for path in (ROOT / "passes").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "graph"
    }
    members = {name for name in dir(surgery.Graph) if not name.startswith("_")} & used
    assert len(members) > 20 and members - shown == set()


def test_names_in_the_text_are_links() -> None:
    assert "Raises [`UsageError`](#class-usageerror) if" in page()
    assert "Without `run`, ONNX Runtime only loads it." in entries()["check"]  # its parameter, not the function
    assert "what [`surgery.load`](#load) returns" in entries()["apply"]
    assert "[`UsageError`](python.md#class-usageerror)" in entries()["Graph"]


def test_examples_in_the_text_are_code() -> None:
    blocks = re.findall(r"^( *)```python\n(.*?)^\1```$", page(), flags=re.MULTILINE | re.DOTALL)
    examples = [dedent(body) for _, body in blocks if re.match(r" *(with|new\.|surgery\.run\(\")", body)]
    assert len(examples) == 5
    for example in examples:
        ast.parse(example)
