"""`surgery view` and `surgery diff --html`: where pages go, and what is in them."""

import base64
import json
import re
import webbrowser
import zlib
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import parser

from surgery import diff
from surgery.interface import commands as cli
from surgery.interface.pages.models import difference_sections

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x) => (float[2] z) { [one] a = Relu (x) [two] b = Identity (a) [three] z = Neg (b) }"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.onnx"
    onnx.save(parser.parse_model(TEXT), path)
    return path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []

    def note(url: str) -> bool:
        found.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", note)
    return found


def drawing(page: Path) -> dict[str, Any]:
    """Return the drawing document in a page, if its viewer is there; else that there is none."""
    found = re.search(r'id="drawing"[^>]*>\s*([A-Za-z0-9+/=\s]+)<', page.read_text(encoding="utf-8"))
    assert found is not None
    data: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(found[1]), -zlib.MAX_WBITS))
    return data


def test_a_page_is_named_after_the_model_and_contains_its_drawing(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["view", str(model)]) == 0
    assert capsys.readouterr().out == "small.html\n"
    found = drawing(model.with_suffix(".html"))
    assert found["title"] == "small.onnx"
    assert found["states"][0]["nodes"] == 3
    page = model.with_suffix(".html").read_text(encoding="utf-8")
    assert "<title>" in page
    assert "Content-Security-Policy" in page


def test_a_file_that_exists_is_replaced_only_by_force(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = model.with_suffix(".html")
    there.write_text("mine")
    assert cli.main(["view", str(model)]) == 2
    assert "the file exists" in capsys.readouterr().err
    assert there.read_text() == "mine"
    assert cli.main(["view", str(model), "--force"]) == 0
    assert there.read_text() != "mine"


def test_open_needs_no_output_name(model: Path, opened: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["view", str(model), "--open"]) == 0
    written = Path(capsys.readouterr().out.strip())
    assert opened == [written.as_uri()]
    assert drawing(written)["title"] == "small.onnx"
    assert list(model.parent.iterdir()) == [model]
    written.unlink()


def test_open_uses_the_named_page(model: Path, opened: list[str]) -> None:
    assert cli.main(["view", str(model), "-o", "out.html", "--open"]) == 0
    assert opened == [(model.parent / "out.html").as_uri()]


def test_without_a_browser_the_page_is_still_written(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    assert cli.main(["view", str(model), "-o", "out.html", "--open"]) == 2
    assert "out.html: no browser can be started; open the file in one" in capsys.readouterr().err
    assert (model.parent / "out.html").is_file()


def test_the_written_page_is_reported_as_json(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["view", str(model), "-o", "out.html", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    size = (model.parent / "out.html").stat().st_size
    assert told == {"format_version": 1, "output": "out.html", "bytes": size, "nodes": 3, "groups": 0}


def test_an_invalid_model_file_leaves_no_page(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model.write_bytes(b"no model")
    assert cli.main(["view", str(model)]) == 2
    assert [path.name for path in model.parent.iterdir()] == ["small.onnx"]


def test_names_of_a_model_are_text_in_its_page(model: Path) -> None:
    found = onnx.load(model)
    found.graph.node[0].name = found.graph.node[0].output[0] = found.graph.node[1].input[0] = (
        "</script><script>alert(1)"
    )
    found.graph.input[0].name = found.graph.node[0].input[0] = "<img src=x onerror=alert(1)>"
    found.producer_name = "<b>\x1b[31m"
    onnx.save(found, model)
    assert cli.main(["view", str(model)]) == 0
    page = model.with_suffix(".html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "\x1b" not in page


def changed(model: Path) -> Path:
    found = onnx.load(model)
    del found.graph.node[1]
    found.graph.node[1].input[0] = "a"
    onnx.save(found, path := model.with_name("changed.onnx"))
    return path


def test_a_difference_has_a_page_next_to_its_report(
    model: Path, opened: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    page = model.with_name("out.html")
    assert cli.main(["diff", str(model), str(changed(model)), "--html", str(page), "--open"]) == 0
    assert "Identity removed" in capsys.readouterr().out
    assert "Identity removed" in page.read_text(encoding="utf-8")
    assert opened == [page.as_uri()]
    found = drawing(page)
    assert [(state["label"], state["nodes"]) for state in found["states"]] == [("small.onnx", 3), ("changed.onnx", 2)]
    assert sorted(found["nodes"]["died"]) == [-1, -1, -1, -1, 1]


def test_a_difference_begins_with_the_verdict_if_the_models_were_run(model: Path) -> None:
    after, page = changed(model), model.with_name("out.html")

    def summary(*flags: str) -> tuple[int, str]:
        code = cli.main(["diff", str(model), str(after), "--html", str(page), "--force", *flags])
        found = re.search(r'<section id="summary".*?</section>', page.read_text(encoding="utf-8"), re.DOTALL)
        assert found is not None
        return code, found[0]

    code, text = summary()
    assert code == 0 and "The models were not run" in text and "headline" not in text
    code, text = summary("--verify")
    assert code == 0 and "The outputs are bit-identical." in text and "verdict ok" in text
    wrong = onnx.load(after)
    wrong.graph.node[1].op_type = "Abs"
    onnx.save(wrong, after)
    code, text = summary("--verify")
    assert code == 1 and "The outputs differ." in text and "verdict bad" in text


def test_a_difference_says_what_only_the_first_model_accepts(model: Path) -> None:
    found = diff(model, changed(model)).to_json()
    parity = {"ok": False, "verdict": "equal", "message": "", "reason": None, "signature": [], "findings": []}
    summary = difference_sections({**found, "parity": {**parity, "narrowed": ["input 'x': batch is 2"]}})[0].body
    assert "The outputs agree, but the second model accepts less than the first." in summary
    assert "input &#39;x&#39;: batch is 2" in summary and "verdict bad" in summary


def test_a_page_that_exists_is_refused_before_models_are_compared(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = model.with_name("out.html")
    page.write_text("mine")
    assert cli.main(["diff", str(model), "missing.onnx", "--html", str(page)]) == 2
    assert "the file exists" in capsys.readouterr().err
    assert cli.main(["diff", str(model), str(changed(model)), "--html", str(page), "--force"]) == 0
    assert page.read_text(encoding="utf-8") != "mine"


def test_open_requires_a_page(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", str(model), str(model), "--open"]) == 2
    assert "--open requires --html" in capsys.readouterr().err


def test_nodes_have_their_times_if_the_model_is_profiled(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The runtime writes whole microseconds.
    onnx.save(parser.parse_model(TEXT.replace("float[2]", "float[256, rows]")), model)
    assert cli.main(["view", str(model), "--profile", "--dims", "rows=256"]) == 0
    found = drawing(model.with_suffix(".html"))
    names = [found["strings"][name] for name in found["nodes"]["name"]]
    rows = zip(names, found["details"], strict=True)
    times = {name: details["seconds"] for name, details in rows if "seconds" in (details or ())}
    assert times.keys() == {"one", "two", "three"}
    assert all(0 < seconds < 1 for seconds in times.values())
    assert cli.main(["view", str(model), "--force"]) == 0
    assert not any("seconds" in (details or ()) for details in drawing(model.with_suffix(".html"))["details"])
    capsys.readouterr()


def test_costs_of_operators_are_drawn_for_user_dims(
    short_models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, page = str(short_models / "bert-tiny.onnx"), str(tmp_path / "page.html")
    assert cli.main(["view", file, "-o", page, "--costs", "--dims", "sequence=64", "--dims", "batch=2"]) == 0
    text = Path(page).read_text(encoding="utf-8")
    assert 'id="costs"' in text and "sequence=64" in text and "batch=2" in text
    assert "The model: operations and bytes moved in one run" in text
    assert cli.main(["view", file, "-o", page, "--force"]) == 0
    assert 'id="costs"' not in Path(page).read_text(encoding="utf-8")
    capsys.readouterr()
    for flags, said in (
        (["--dims", "batch=2"], "--dims is for --costs and --profile"),
        (["--costs", "--dims", "batch=1,2"], "gives 'batch' 2 sizes"),
        (["--costs", "--dims", "length=2"], "the model has no dim 'length'; its dynamic dims are"),
    ):
        assert cli.main(["view", file, "-o", page, "--force", *flags]) == 2
        assert said in capsys.readouterr().err
