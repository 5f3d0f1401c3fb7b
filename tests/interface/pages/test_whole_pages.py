"""Whole pages in Chromium: accessibility with everything unfolded, hostile names, and A4 paper."""

import base64
import json
import re
import shlex
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from support import drawings

from surgery.interface import commands as cli

pytestmark = pytest.mark.slow

UNFOLD = "document.querySelectorAll('main details').forEach((each) => (each.open = true))"


@pytest.fixture(scope="module")
def pages(short_models: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report, a difference and a view."""
    return written(short_models / "bert-dropout-tiny.onnx", tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="module")
def hostile_pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages on a model in which all names are hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    return written(hostile(folder / "evil\u202e<b>.onnx"), folder)


def hostile(path: Path) -> Path:
    """Write a chain of nodes in scopes, with values, dims and metadata, that are named by `drawings.HOSTILE`."""
    # Text of a protobuf has no lone surrogates.
    names = [name for name in drawings.HOSTILE if "\ud800" not in name]
    ends = [helper.make_tensor_value_info(f"{at}{names[at]}", TensorProto.FLOAT, [names[1], 4]) for at in (0, 4)]
    weight = helper.make_tensor(f"w{names[3]}", TensorProto.FLOAT, [4, 4], [0.1 * at for at in range(16)])
    nodes, last = [], ends[0].name
    for at, name in enumerate(names):
        for op in ("MatMul", "Identity", "Relu", "Dropout"):
            operands = [last, weight.name] if op == "MatMul" else [last]
            last = f"{name} {op} {at}"
            nodes.append(helper.make_node(op, operands, [last], name=f"/{name}/layer.{at}/{op}", doc_string=name))
    nodes.append(helper.make_node("Tanh", [last], [ends[1].name], name="last"))
    model = helper.make_model(
        helper.make_graph(nodes, f"g{names[2]}", ends[:1], ends[1:], [weight]),
        opset_imports=[helper.make_opsetid("", 17)],
        producer_name=names[0],
        doc_string=names[2],
    )
    model.ir_version = 8
    helper.set_model_props(model, {names[0]: names[1], names[3]: names[4]})
    onnx.save(model, path)
    return path


def written(path: Path, folder: Path) -> dict[str, Path]:
    model, result = str(path), str(folder / "result.onnx")
    found = {kind: folder / f"{kind}.html" for kind in ("report", "difference", "view")}
    assert cli.main(["apply", "default", model, "-o", result, "--report", str(found["report"])]) == 0
    assert cli.main(["diff", model, result, "--html", str(found["difference"])]) == 0
    assert cli.main(["view", model, "--costs", "-o", str(found["view"])]) == 0
    return found


@pytest.mark.parametrize("kind", ["report", "difference", "view"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_everybody_can_use_a_page(
    kind: str, width: int, scheme: str, pages: dict[str, Path], open_file: Callable[..., Any]
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_file(pages[kind], width=width, color_scheme=scheme)
    page.wait_for_selector(".sv-toolbar")
    page.evaluate(UNFOLD)
    if kind != "view" and width > 1000:
        page.locator(".sv-site").first.click()
    found = [(each["id"], each["nodes"][0]["html"][:200]) for each in axe.Axe().run(page).response["violations"]]
    assert found == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("kind", ["report", "difference", "view"])
def test_a_page_knows_the_files_of_its_graphs(kind: str, pages: dict[str, Path], short_models: Path) -> None:
    packed = re.search(r'id="drawing">([^<]*)<', pages[kind].read_text(encoding="utf-8"))
    assert packed is not None
    states = json.loads(zlib.decompress(base64.b64decode(packed[1]), -zlib.MAX_WBITS))["states"]
    ends = [str(short_models / "bert-dropout-tiny.onnx"), str(pages[kind].parent / "result.onnx")]
    assert [state["file"] for state in states if "file" in state] == ends[: len(states)]
    assert "file" in states[-1]


@pytest.mark.parametrize("kind", ["report", "difference", "view"])
def test_a_page_prints_on_a4(kind: str, pages: dict[str, Path], open_file: Callable[..., Any]) -> None:
    # 180 mm between the margins, at 96 px an inch.
    page = open_file(pages[kind], width=680, height=1000)
    page.wait_for_selector(".sv-toolbar")
    page.emulate_media(media="print")
    wide = page.evaluate(
        "[...document.querySelectorAll('main *')].filter((each) => each.getBoundingClientRect().right > 681"
        " && getComputedStyle(each).position !== 'absolute').map((each) => each.outerHTML.slice(0, 120))"
    )
    assert wide == []
    printed = page.pdf(prefer_css_page_size=True)
    boxes = set(re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", printed))
    assert {(round(float(width)), round(float(height))) for width, height in boxes} == {(595, 842)}


@pytest.mark.parametrize("kind", ["report", "difference", "view"])
def test_names_of_a_model_are_text_on_each_page(
    kind: str, hostile_pages: dict[str, Path], open_file: Callable[..., Any]
) -> None:
    page = open_file(hostile_pages[kind], width=1280)
    page.wait_for_selector(".sv-toolbar")
    page.evaluate(UNFOLD)
    for each in page.locator(".sv-site").all():
        each.evaluate("(site) => site.click()")
    page.evaluate("document.querySelector('.sv-side.sv-off') && document.querySelector('.sv-toolbar button').click()")
    page.get_by_role("tab", name="Outline").click()
    page.get_by_role("treeitem").first.click()
    assert page.evaluate("window.broken") is None
    assert page.evaluate("document.querySelectorAll('img, b > b, [onerror], [onmouseover]').length") == 0
    assert page.evaluate("document.scripts.length") == 2
    text = page.evaluate("document.body.innerText")
    assert "<script>window.broken=1</script>" in text
    assert not set(text) & set("\x1b\x07\u202e\u2066\u200b")
    assert max(map(len, text.splitlines())) < 1000
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.mark.parametrize("kind", ["report", "view"])
def test_one_click_copies_the_command_that_opens_the_model_in_the_workbench(
    kind: str, pages: dict[str, Path], short_models: Path, open_file: Callable[..., Any]
) -> None:
    page = open_file(pages[kind])
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.wait_for_selector(".sv-toolbar")
    page.get_by_role("button", name="Open in the workbench").click()
    model = str(short_models / "bert-dropout-tiny.onnx")
    command = ["surgery", "open", model, *(["--recipe", "default"] if kind == "report" else [])]
    page.locator("[role=status]", has_text="Copied; run it in a terminal: surgery open").wait_for(state="attached")
    assert shlex.split(page.evaluate("navigator.clipboard.readText()")) == command


def test_a_difference_has_no_model_to_open(pages: dict[str, Path], open_file: Callable[..., Any]) -> None:
    page = open_file(pages["difference"])
    page.wait_for_selector(".sv-toolbar")
    assert page.get_by_role("button", name="Open in the workbench").count() == 0
