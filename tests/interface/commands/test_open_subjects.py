"""What `surgery open` opens: models at URLs, plans, models of batches, and the folders of bisections."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

import surgery
from surgery.engine.recipe import recipe_lookup
from surgery.features.workbench.draft_file import state_folder
from surgery.interface import commands as cli
from surgery.model.graph import text

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

MODEL = """
<ir_version: 10, opset_import: ["" : 20]>
g (float[batch, 4] x) => (float[batch, 4] y) {
    [first] i = Identity(x) [second] j = Identity(i) [drop] d = Dropout(j) [last] y = Relu(d)
}
"""
WRONG = '''
from surgery import Parity, graph_pass


@graph_pass("make-neg", parity=Parity.EXACT)
def make_neg(graph, *, op: str = "Abs"):
    """Replace Relu by another operator."""
    for node in graph.nodes("Relu"):
        with graph.site(node) as new:
            new.replace(node.outputs[0], new.node(op, *node.inputs))
'''
Opened = Callable[..., SimpleNamespace]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(text.parse(MODEL), tmp_path / "m.onnx")
    (tmp_path / "r.yaml").write_text("# mine\nrecipe: r\nsteps:\n  - drop-identity\n  - drop-dropout\n")
    return tmp_path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Opened]:
    """Runs `surgery open`, and returns what the page would show, or what the command says."""
    from surgery.interface.workbench import serving

    states: list[dict[str, Any]] = []

    def run(*arguments: object, act: Callable[[Any], object] = lambda shared: None) -> SimpleNamespace:
        def serve(shared: Any, socket: object, **_: object) -> None:
            try:
                act(shared)
                states.append(shared.state())
            finally:
                shared.close()

        monkeypatch.setattr(serving, "serve", serve)
        code = cli.main(["open", *map(str, arguments), "--no-browser"])
        said = capsys.readouterr().err
        assert (code == 0) == bool(states) and code < 3, said
        return SimpleNamespace(code=code, said=said, **(states.pop() if states else {}))

    yield run
    assert states == []


def titles(state: SimpleNamespace) -> list[tuple[str, str]]:
    return [(step["title"], step["status"]) for step in state.steps]


def test_another_open_session_of_the_model_is_named(folder: Path, opened: Opened) -> None:
    with surgery.Session.open(folder / "m.onnx") as session:
        assert session.shared_with is None
        warning = f"another session of this model is open (process {os.getpid()}), and writes the same draft"
        assert opened(folder / "m.onnx").said == f"surgery: warning: {warning}\n"
        assert "another session" in opened(folder / "m.onnx").said  # the mark is that of the first session
        assert "another session" not in opened(folder / "m.onnx", "--recipe", folder / "r.yaml").said
    assert "another session" not in opened(folder / "m.onnx").said


def test_the_page_shows_what_each_recipe_is_for(folder: Path, opened: Opened) -> None:
    shown = {one["name"]: one["about"] for one in opened(folder / "m.onnx").recipes}
    assert set(shown) == set(recipe_lookup.names()) and all(shown.values())
    assert (
        shown["moves"] == "Simplify shape computations and data movement. Bit-identical except for the sign of zeros."
    )


def test_a_model_at_a_url_is_edited_and_saved_in_the_current_folder(folder: Path, opened: Opened) -> None:
    pytest.importorskip("fsspec")
    import surgery

    stored = surgery.load(folder / "m.onnx")
    surgery.save(stored.proto, "memory://open/m.onnx", stored.weights, force=True)
    (folder / "m.onnx").unlink()
    head = MODEL.partition(">")[0] + ">"
    onnx.save(text.parse(head + "g (float[2] a) => (float[2] b) { [neg] b = Neg(a) }"), folder / "other.onnx")

    def act(shared: Any) -> None:
        assert shared.act({"act": "add", "step": "drop-dropout", "version": 0})["ok"]
        merged = "merge: {model: other.onnx, mode: parallel}"
        made = shared.act({"act": "add", "step": merged, "version": 1})
        assert made["ok"], made

    found = opened("memory://open/m.onnx", act=act)
    assert (found.title, found.folder) == ("m.onnx", str(folder))
    again = opened("memory://open/m.onnx", act=lambda shared: shared.save({"place": "edited"}))
    assert again.reopened and titles(again)[0][0] == "drop-dropout"
    assert sorted(path.name for path in (folder / "edited").iterdir()) == [
        "m.onnx",
        "m.onnx.intoto.json",
        "m.report.html",
        "m.report.json",
        "m.yaml",
    ]
    report = (folder / "edited" / "m.report.json").read_text()
    assert "memory://open/m.onnx" in report and "surgery-" not in json.dumps(json.loads(report)["input"])


def test_a_plan_opens_its_model_and_its_recipe(folder: Path, opened: Opened) -> None:
    (folder / "plans").mkdir()
    assert cli.main(["plan", "r.yaml", "m.onnx", "-o", "plans/p.json"]) == 0
    found = opened("plans/p.json")
    assert found.folder == str(folder) and found.recipe.startswith("# mine\n")
    assert titles(found) == [("drop-identity", "committed"), ("drop-dropout", "committed")]


def test_a_plan_opens_with_its_flags_and_without_the_sites_it_skips(folder: Path, opened: Opened) -> None:
    (folder / "outer.yaml").write_text("recipe: outer\nsteps:\n  - use: r.yaml\n")
    flags = ["--except", "drop", "--dims", "batch=3"]
    assert cli.main(["plan", "outer.yaml", "m.onnx", *flags, "-o", "p.json"]) == 0
    plan = json.loads((folder / "p.json").read_text())
    assert [site["anchor"] for site in plan["steps"][0]["sites"]] == ["first", "second"]
    plan["steps"][0]["sites"][1]["skip"] = True
    (folder / "p.json").write_text(json.dumps(plan))
    nodes: list[str] = []

    def act(shared: Any) -> None:
        nodes.extend(node.name for node in shared.session.model.proto.graph.node)

    found = opened("p.json", act=act)
    assert nodes == ["second", "drop", "last"]
    assert "except: [drop, second]" in found.recipe and "batch: [3]" in found.recipe, found.recipe
    assert found.recipe.count("drop-dropout") == 1


def test_a_plan_whose_model_has_changed_is_refused(folder: Path, opened: Opened) -> None:
    assert cli.main(["plan", "r.yaml", "m.onnx", "-o", "p.json"]) == 0
    onnx.save(text.parse(MODEL.replace("Relu", "Abs")), folder / "m.onnx")
    found = opened("p.json")
    assert found.code and "the dependencies of the plan have changed" in found.said


def test_a_plan_that_skips_what_has_no_node_is_refused(folder: Path, opened: Opened) -> None:
    assert cli.main(["plan", "r.yaml", "m.onnx", "-o", "p.json"]) == 0
    plan = json.loads((folder / "p.json").read_text())
    plan["steps"][0]["sites"][0] |= {"skip": True, "anchor": "", "removes": []}
    (folder / "p.json").write_text(json.dumps(plan))
    assert "site 1:1 is skipped, and has no node" in opened("p.json").said


def test_a_model_of_a_batch_opens_with_its_recipe(folder: Path, opened: Opened) -> None:
    for name in ("a.onnx", "deep/b.onnx"):
        (folder / "zoo" / name).parent.mkdir(parents=True, exist_ok=True)
        onnx.save(text.parse(MODEL), folder / "zoo" / name)
    assert cli.main(["batch", "r.yaml", "zoo", "-o", "out", "-j", "1", "--results", "rows.jsonl"]) == 0
    for place in ("out", "out/ledger.sqlite", "rows.jsonl"):
        found = opened(place, "--row", "deep/b.onnx", "--fresh")
        assert (found.title, found.folder) == ("b.onnx", str(folder / "zoo" / "deep"))
        assert titles(found) == [("drop-identity", "committed"), ("drop-dropout", "committed")]
    said = opened("out").said
    assert "out: this batch has 2 models; choose one: --row a.onnx, --row deep/b.onnx" in said
    said = opened("out", "--row", "b.onx").said
    assert "this batch has no model 'b.onx'; did you mean 'a.onnx' or 'deep/b.onnx'?" in said


def test_the_folder_of_a_bisection_opens_the_reduced_model_with_the_step(folder: Path, opened: Opened) -> None:
    (folder / "wrong.py").write_text(WRONG)
    steps = "steps:\n  - drop-dropout\n  - pass: make-neg\n    with: {op: Neg}\n    when: {nodes: '> 1'}\n"
    (folder / "wrong.yaml").write_text(f"plugins: [wrong.py]\n{steps}")
    assert cli.main(["bisect", "wrong.yaml", "m.onnx", "--trust", "-o", "repro"]) == 1
    assert "--trust" in opened("repro").said
    found = opened("repro", "--trust")
    assert (found.title, found.folder) == ("original.onnx", str(folder / "repro"))
    ((title, status),) = titles(found)
    assert title.startswith("make-neg: {op: Neg}") and status == "off"
    assert found.refused["message"]
    # A folder of an older release has no recipe.
    (folder / "repro" / "step.yaml").unlink()
    assert titles(opened("repro", "--plugin", "wrong.py", "--fresh"))[0][0].startswith("make-neg ")
    (folder / "repro" / "report.json").write_text("[]")
    assert "this is not the report of surgery bisect" in opened("repro").said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([""], "this folder is neither the output of surgery batch nor that of surgery bisect; name a model in it"),
        (["m.onnx", "--row", "a.onnx"], "--row names a model of a batch; name its output folder, or its results"),
        (["p.json", "--recipe", "r.yaml"], "--recipe is for models, and 'p.json' has a recipe; omit the flag"),
        (["none.onnx"], "none.onnx"),
        (["none.json"], "none.json"),
        (["r.yaml"], "r.yaml"),
        (["torn.json"], "torn.json: this is not valid JSON"),
        (["memory://open/none.json"], "memory://open/none.json"),
    ],
)
def test_what_cannot_be_opened_is_one_line(folder: Path, opened: Opened, arguments: list[str], message: str) -> None:
    assert cli.main(["plan", "r.yaml", "m.onnx", "-o", "p.json"]) == 0
    (folder / "torn.json").write_text('{"format": "surgery-plan", "format_version": 1, ')
    found = opened(str(folder) if not arguments[0] else arguments[0], *arguments[1:])
    last = found.said.strip().splitlines()[-1]
    assert found.code == 2 and last.startswith("surgery: ") and message in last


def test_files_elsewhere_are_read_only_if_the_given_recipe_names_them(folder: Path, opened: Opened) -> None:
    inside, outside = folder / "inside", folder / "outside"
    inside.mkdir(), outside.mkdir()
    shutil.move(folder / "m.onnx", inside / "m.onnx")
    shutil.move(folder / "r.yaml", outside / "inner.yaml")
    shutil.copy(outside / "inner.yaml", outside / "other.yaml")
    (outside / "outer.yaml").write_text("recipe: outer\nsteps:\n  - use: inner.yaml\n")

    def act(shared: Any) -> None:
        with pytest.raises(Exception, match="outside of the opened folder"):
            shared.act({"act": "add", "step": f"use: {outside / 'other.yaml'}", "version": 0})

    found = opened("inside/m.onnx", "--recipe", "outside/outer.yaml", act=act)
    assert len(found.steps) == 1 and state_folder().is_dir()
