"""Which API a pass is written in, told by the annotation of its first parameter."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx_graphsurgeon
import onnx_graphsurgeon as gs
import onnx_ir
import onnx_ir as ir
import pytest
from onnx import ModelProto as Message

import surgery
from surgery import Graph
from surgery.base.errors import UsageError
from surgery.engine.registry import api as apis
from surgery.engine.registry import declare
from surgery.engine.registry.catalog import catalog
from surgery.interface import commands as cli


def by_text(model: ir.Model) -> None: ...
def by_full_name(model: onnx_ir.Model) -> None: ...
def by_alias(model: Message) -> None: ...
def by_quotes(model: "gs.Graph") -> None: ...  # noqa: UP037
def by_package(graph: surgery.Graph) -> None: ...
def own(graph: Graph, *, level: int = 1) -> None: ...
def not_annotated(graph) -> None: ...


def by_object(kind: Any) -> Callable[..., None]:
    def function(model: Any) -> None: ...

    function.__annotations__["model"] = kind
    return function


FUNCTIONS = [
    (by_text, "onnx_ir.Model"),
    (by_full_name, "onnx_ir.Model"),
    (by_alias, "onnx.ModelProto"),
    (by_quotes, "gs.Graph"),
    (by_package, "Graph"),
    (own, "Graph"),
    (not_annotated, "Graph"),
    (by_object(onnx.ModelProto), "onnx.ModelProto"),
    (by_object(onnx_graphsurgeon.Graph), "gs.Graph"),
    (by_object(ir.Model), "onnx_ir.Model"),
    (by_object(Graph), "Graph"),
]


@pytest.mark.parametrize(("function", "api"), FUNCTIONS)
def test_the_annotation_picks_the_api(function: Callable[..., None], api: str) -> None:
    assert apis.api_of("some-pass", function) == api


IMPORTS = [
    ("import onnx_graphsurgeon as osg", "osg.Graph", "gs.Graph"),
    ("import onnx_ir", "onnx_ir.Model", "onnx_ir.Model"),
    ("from onnx_ir import Model as M", "M", "onnx_ir.Model"),
    ("import onnx", "onnx.ModelProto", "onnx.ModelProto"),
    ("from surgery import Graph", "Graph", "Graph"),
]


@pytest.mark.parametrize(("line", "annotation", "api"), IMPORTS)
def test_annotations_imported_under_type_checking_are_resolved(
    tmp_path: Path, line: str, annotation: str, api: str
) -> None:
    name = f"typed-{abs(hash((line, annotation)))}"
    source = f"""from __future__ import annotations
from typing import TYPE_CHECKING
from surgery import graph_pass
if TYPE_CHECKING:
    {line}

@graph_pass("{name}")
def typed(model: {annotation}) -> None:
    \"\"\"Do nothing.\"\"\"
"""
    path = tmp_path / "typed.py"
    path.write_text(source)
    catalog.load_plugin(str(path))
    assert catalog.find(name).api == api


WRONG = [
    (by_object(int), "works on 'int'"),
    (by_object("np.ndarray"), "works on 'np.ndarray'"),
    (by_object("gs"), "works on 'gs'"),
    (by_object("gs.Node"), "works on 'gs.Node'"),
    (by_object("ir.Nothing"), "works on 'ir.Nothing'"),
    (by_object("unheard_of.Graph"), "works on 'unheard_of.Graph'"),
    (by_object("ir.Model | None"), "works on 'ir.Model | None'"),
    (by_object(onnx.GraphProto), "works on 'GraphProto'"),
    (lambda: None, "has no parameter for the model"),
    (lambda *, level=1: None, "has no parameter for the model"),
]
numbers = itertools.count()


@pytest.mark.parametrize(("function", "message"), WRONG)
def test_any_other_annotation_is_an_error_at_the_declaration(function: Callable[..., None], message: str) -> None:
    name = f"wrong-annotation-{next(numbers)}"
    with pytest.raises(UsageError, match=r"Graph, onnx_ir\.Model, gs\.Graph, onnx\.ModelProto") as caught:
        declare.graph_pass(name)(function)
    assert caught.value.what.startswith(f"pass '{name}' {message}")
    assert name not in catalog.passes()


def test_a_plugin_with_a_wrong_annotation_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.py"
    path.write_text("from surgery import graph_pass\n@graph_pass('odd-pass')\ndef odd(model: str): ...\n")
    code = cli.main(["run", "odd-pass", "model.onnx", "--plugin", str(path)])
    shown = capsys.readouterr().err
    assert code == 2 and "pass 'odd-pass' works on 'str', which is not an API for passes" in shown
    assert "Traceback" not in shown
