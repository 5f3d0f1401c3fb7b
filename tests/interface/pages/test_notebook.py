"""What notebooks show: compact HTML that loads nothing, with the text of models as text."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
from support import ROOT
from support.html_pages import Page

import surgery

PLUGIN = ROOT / "tests" / "support" / "plugin_wrong.py"
EVIL = "</div><script>alert(1)</script>\u202e"
TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x) => (float[2] y) { a = Identity(x)  y = Relu(a) }"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    made = onnx.parser.parse_model(TEXT)
    made.graph.input[0].name = f"x{EVIL}"
    made.graph.node[0].input[0] = f"x{EVIL}"
    path = tmp_path / "<i>model.onnx"
    onnx.save(made, path)
    return path


def read(html: str) -> Page:
    page = Page(html)
    for one in page.elements:
        assert one.tag in {"div", "span", "details", "summary", "table", "thead", "tbody", "tr", "th", "td"}, one
        assert one.attributes.keys() <= {"style", "scope"}, one
    assert "\u202e" not in html
    return page


def test_a_result(model: Path) -> None:
    result = surgery.apply(model, "tidy")
    page = read(result._repr_html_())
    text = " ".join(one.text for one in page.all("div"))
    assert "tidy: The result is bit-identical to the original." in text and "drop-identity" in text
    assert "Nodes 1 (from 2, \u221250 %)" in " ".join(text.split())


def test_a_difference(model: Path, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(TEXT.replace("Relu", "Abs")), tmp_path / "other.onnx")
    page = read(surgery.diff(model, tmp_path / "other.onnx")._repr_html_())
    rows = [[cell.text for cell in page.all("td") if cell.parents[-1] is row] for row in page.all("tr")]
    assert ["Relu", "1", "0", "\u22121"] in rows and ["Abs", "0", "1", "+1"] in rows
    assert "differ in names and storage at most" in read(surgery.diff(model, model)._repr_html_()).elements[0].text


@pytest.mark.parametrize("look", [surgery.inspect, surgery.load])
def test_a_model(look, model: Path) -> None:
    text = read(look(model)._repr_html_()).elements[0].text
    assert "<i>model.onnx" in text and "</div><script>alert(1)</script>\\u202e" in text and "ai.onnx 17" in text
    assert "Relu" in text and "2 operators" in text


def test_a_model_in_memory() -> None:
    assert "a model in memory" in surgery.inspect(onnx.parser.parse_model(TEXT))._repr_html_()


def test_a_view_is_a_page_in_a_frame(model: Path) -> None:
    view = surgery.view(model)
    page = Page(view._repr_html_())
    (frame,) = page.elements
    assert frame.tag == "iframe" and frame.attributes["srcdoc"] == view.html
    assert frame.attributes["sandbox"] == "allow-scripts allow-downloads"
    assert "<i>model.onnx" in frame.attributes["title"]
    assert "\u202e" not in view.html and "<script>alert(1)" not in view.html


def test_every_answer_is_shown(model: Path) -> None:
    answers = {
        "Pair: ok": surgery.verify(model, model),
        "Planning: ok": surgery.plan(model, "tidy"),
        "Study of opset": surgery.opset(model),
        "Why of": surgery.explain("fuse-gelu", model),
        "Validity: ok": surgery.check(model),
    }
    for headline, answer in answers.items():
        assert headline in repr(answer) and len(repr(answer)) < 120
        assert headline in answer._repr_html_()


def test_measurements_cuts_and_bisections_are_shown(model: Path, tmp_path: Path) -> None:
    spec = surgery.BenchSpec(repeats=6)
    page = read(surgery.bench(model, model, spec=spec)._repr_html_())
    assert page.elements[0].text.strip().startswith("Comparison with '<i>model.onnx' (")
    cells = [cell.text for cell in page.all("td")]
    assert len(cells) == 10 and cells[0] == str(model) and cells[2:4] == ["", ""]
    assert re.fullmatch(r"\d\.\d{3} to \d\.\d{3}", cells[8])
    made = surgery.split(model, at=["a"])
    assert repr(made) == "<Split of '<i>model.onnx': ok, 2 parts, equal>"
    cells = [cell.text for cell in read(made._repr_html_()).all("td")]
    assert len(cells) == 10 and cells[6] == "1" and cells[8:] == ["a", "y"]
    written = surgery.export_weights(ROOT / "models" / "resnet-tiny.onnx", tmp_path / "w.npz")
    assert repr(written).startswith("<ExportedWeights: ") and "w.npz" in read(written._repr_html_()).elements[0].text
    imported = surgery.import_weights(ROOT / "models" / "resnet-tiny.onnx", [tmp_path / "w.npz"])
    assert repr(imported) == f"<Imported: ok, {written.tensors} initializers>"
    assert repr(imported)[1:-1] in read(imported._repr_html_()).elements[0].text


def test_a_bisection_names_the_guilty_sites(model: Path) -> None:
    steps = {"recipe": "r", "plugins": [str(PLUGIN)], "steps": ["drop-identity", "wrong-drop-relu"]}
    blame = surgery.bisect(model, steps, trust=True)
    assert repr(blame) == "<Blame of 'r': step 'wrong-drop-relu' fails, 1 of 1 site guilty>"
    page = read(blame._repr_html_())
    assert next(cell.text for cell in page.all("td")) == "1" and "instead of" in page.elements[0].text
    assert repr(surgery.bisect(model, "tidy")) == "<Blame of 'tidy': no step fails>"
