"""`surgery plan`, `surgery apply` of a plan, and a model alone."""

import json
from pathlib import Path

import onnx
import pytest

from surgery.interface import commands as cli
from surgery.model.graph import text

MODEL = """
<ir_version: 10, opset_import: ["" : 20]>
g (float[batch, 4] x) => (float[batch, 4] y) { [first] i = Identity(x) [second] j = Identity(i) [last] y = Relu(j) }
"""
RECIPE = "recipe: r\nsteps: [drop-identity]\n"
PLUGIN = '''
from surgery import Graph, Parity, graph_pass


@graph_pass("plan-identity", parity=Parity.EXACT)
def plan_identity(graph: Graph) -> None:
    """Drop Identity nodes."""
    for node in graph.nodes("Identity"):
        graph.replace(node.outputs[0], node.required_input(0))
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(text.parse(MODEL), tmp_path / "m.onnx")
    (tmp_path / "r.yaml").write_text(RECIPE)
    return tmp_path


def surgery(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_plan_is_shown_without_writing_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(folder.iterdir())
    code, out, err = surgery(capsys, "plan", "r.yaml", "m.onnx")
    assert (code, sorted(folder.iterdir())) == (0, before)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0].startswith("1 drop-identity -2 nodes, -") and lines[0].endswith("(r.yaml:2)")
    assert lines[1:3] == ["1:1 Identity first -> nothing -1", "1:2 Identity second -> nothing -1"]
    assert lines[-1].startswith("plan: 3 -> 1 nodes (-67 %), ")
    assert lines[-1].endswith("; 2 sites in 1 step, not verified")
    assert err.endswith("no plan written; use -o FILE to save it\n")


def test_long_names_keep_their_end(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "/model/encoder/layers.0/attention/output/Identity"
    model = text.parse(MODEL)
    model.graph.node[0].name = name
    onnx.save(model, "m.onnx")
    (line,) = (one for one in surgery(capsys, "plan", "r.yaml", "m.onnx")[1].splitlines() if "1:1" in one)
    shown = line.split()[2]
    assert len(shown) == 32 and shown[0] == "…" and name.endswith(shown[1:])
    assert name in surgery(capsys, "plan", "r.yaml", "m.onnx", "-v")[1].replace("\n", "")


def test_a_plan_in_json_equals_the_file_and_adds_the_outcome(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = surgery(capsys, "plan", "r.yaml", "m.onnx", "-o", "plan.json", "--format", "json")
    shown, written = json.loads(out), json.loads((folder / "plan.json").read_text())
    assert code == 0 and (shown.pop("ok"), shown.pop("failure")) == (True, None)
    assert shown == written and written["format"] == "surgery-plan" and written["format_version"] == 1


def test_a_plan_in_markdown_shows_names_as_code(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = surgery(capsys, "plan", "r.yaml", "m.onnx", "--format", "markdown")
    assert code == 0 and "- 1: `Identity first` -> `nothing`" in out
    assert any(line.startswith("| 1 | `drop-identity` | 2 | -2 | ") for line in out.splitlines())


def test_the_exit_code_shows_whether_a_plan_changes_the_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert surgery(capsys, "plan", "r.yaml", "m.onnx", "--exit-code")[0] == 1
    assert surgery(capsys, "apply", "r.yaml", "m.onnx", "-o", "done.onnx")[0] == 0
    code, out, _ = surgery(capsys, "plan", "r.yaml", "done.onnx", "--exit-code")
    assert (code, out) == (0, "nothing to do: 1 node, not verified\n")


def test_a_plan_is_applied_from_another_folder(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "plans").mkdir()
    (folder / "elsewhere").mkdir()
    assert surgery(capsys, "plan", "r.yaml", "m.onnx", "-o", "plans/p.json")[0] == 0
    assert surgery(capsys, "apply", "r.yaml", "m.onnx", "-o", "plain.onnx")[0] == 0
    monkeypatch.chdir(folder / "elsewhere")
    code, out, err = surgery(capsys, "apply", "../plans/p.json", "-o", "out.onnx")
    assert (
        code == 0 and "as planned: 2 sites in 1 step\n" in err and out.splitlines()[-1].startswith("ok: 3 -> 1 nodes")
    )
    assert Path("out.onnx").read_bytes() == (folder / "plain.onnx").read_bytes()


def test_a_plan_that_was_moved_without_its_recipe(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    surgery(capsys, "plan", "r.yaml", "m.onnx", "-o", "plan.json")
    (folder / "moved").mkdir()
    Path("plan.json").rename("moved/plan.json")
    assert surgery(capsys, "apply", "moved/plan.json")[2] == (
        "surgery: moved/plan.json: its recipe moved/r.yaml does not exist; it is looked for relative to the plan; "
        "put the plan back, or make it again\n"
    )
    code, _, said = surgery(capsys, "plan", "moved/plan.json", "m.onnx")
    assert (code, said) == (2, "surgery: 'moved/plan.json' is a plan, not a recipe; apply it: surgery apply PLAN\n")


def test_a_field_of_a_plan_with_the_wrong_type(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    surgery(capsys, "plan", "r.yaml", "m.onnx", "-o", "plan.json")
    plan = json.loads(Path("plan.json").read_text())
    for change, words in (
        ({"steps": "all"}, "steps: it must be a list"),
        ({"steps": [1]}, "steps.0: it must be an object"),
        ({"before": {**plan["before"], "nodes": "many"}}, "before.nodes: it must be a whole number"),
        ({"again": "maybe"}, "again: it must be true or false"),
        ({"verified": "twice"}, "verified: Input should be 'none', 'each' or 'end'"),
    ):
        Path("wrong.json").write_text(json.dumps({**plan, **change}))
        code, _, said = surgery(capsys, "apply", "wrong.json")
        assert code == 2 and said.startswith(f"surgery: wrong.json: {words}; make the plan again: ")


def test_a_site_can_be_skipped_by_flag_and_by_hand(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    surgery(capsys, "plan", "r.yaml", "m.onnx", "-o", "plan.json")
    code, out, _ = surgery(capsys, "apply", "plan.json", "--skip", "1:1", "-o", "flag.onnx", "--format", "json")
    found = json.loads(out)["plan"]
    assert code == 0 and [one["anchor"] for one in found["skipped"]] == ["first"]
    assert (found["left_out"], found["not_reached"]) == ([], [])
    lines = (folder / "plan.json").read_text().splitlines()
    edited = [line.replace('"skip": false', '"skip": true') if '"anchor": "first"' in line else line for line in lines]
    assert edited != lines
    (folder / "plan.json").write_text("\n".join(edited))
    code, _, err = surgery(capsys, "apply", "plan.json", "-o", "hand.onnx")
    assert code == 0 and "as planned: 1 site skipped\n" in err
    assert (folder / "hand.onnx").read_bytes() == (folder / "flag.onnx").read_bytes()
    assert [node.op_type for node in onnx.load("hand.onnx").graph.node] == ["Identity", "Relu"]


def test_each_change_since_the_plan_has_a_line_and_nothing_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    surgery(capsys, "plan", "r.yaml", "m.onnx", "-o", "plan.json")
    onnx.save(text.parse(MODEL.replace("Relu", "Neg")), folder / "m.onnx")
    (folder / "r.yaml").write_text(f"{RECIPE}# more\n")
    code, out, err = surgery(capsys, "apply", "plan.json", "-o", "out.onnx")
    assert (code, out, (folder / "out.onnx").exists()) == (2, "", False)
    first, model, recipe = err.splitlines()
    assert first == "surgery: plan.json: the dependencies of the plan have changed; make the plan again"
    assert model.startswith("  model 'm.onnx' in Neg 'last' (new), Relu 'last' (gone): ")
    assert recipe.startswith("  file 'r.yaml': ")


def test_the_flags_of_a_plan_apply_to_its_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    surgery(capsys, "plan", "r.yaml", "m.onnx", "--dims", "batch=2,3", "-o", "plan.json")
    code, out, _ = surgery(capsys, "apply", "plan.json", "--format", "json")
    assert code == 0 and {one["dims"]["batch"] for one in json.loads(out)["bindings"]} == {2, 3}
    code, _, err = surgery(capsys, "apply", "plan.json", "--dims", "batch=4")
    assert code == 2 and err == (
        "surgery: plan.json: the plan was made with --dims batch=2,3, not with --dims batch=4; "
        "omit --dims, or make another plan\n"
    )


def test_the_local_code_of_a_plan_needs_trust(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "own.py").write_text(PLUGIN)
    (folder / "r.yaml").write_text("recipe: r\nsteps: [plan-identity]\n")
    assert surgery(capsys, "plan", "r.yaml", "m.onnx", "--plugin", "own.py", "-o", "plan.json")[0] == 0
    code, _, err = surgery(capsys, "apply", "plan.json")
    assert code == 2 and err == (
        "surgery: plan.json: the plan loads local code: --plugin own.py; give the flag again, or pass --trust\n"
    )
    assert surgery(capsys, "apply", "plan.json", "--trust")[0] == 0
    assert surgery(capsys, "apply", "plan.json", "--plugin", "own.py")[0] == 0


def test_a_plan_over_a_file_needs_force(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "plan.json").write_text("mine")
    code, _, err = surgery(capsys, "plan", "r.yaml", "m.onnx", "-o", "plan.json")
    assert code == 2 and "plan.json: the file exists" in err and (folder / "plan.json").read_text() == "mine"


def test_skip_is_for_plans(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = surgery(capsys, "apply", "r.yaml", "m.onnx", "--skip", "1:1")
    assert (code, err) == (
        2,
        "surgery: --skip is for plans; make one: surgery plan RECIPE MODEL -o plan.json\n",
    )


# A model alone


@pytest.mark.parametrize("name", ["m.onnx", "m.bin"])
def test_a_model_alone_means_the_recipe_default(folder: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (folder / "m.onnx").rename(folder / name)
    code, out, _ = surgery(capsys, "apply", name, "--format", "json")
    assert code == 0 and json.loads(out)["recipe"] == "default"
    code, out, _ = surgery(capsys, "plan", name, "--format", "json")
    assert code == 0 and json.loads(out)["basis"]["recipe"] == "default"


@pytest.mark.parametrize("command", ["apply", "plan"])
def test_a_file_of_another_kind_is_refused(folder: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    (folder / "photo").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
    code, _, err = surgery(capsys, command, "photo")
    assert code == 2 and err.startswith(
        "surgery: photo: this is neither a recipe (text), nor a plan (JSON), nor an ONNX model ("
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.onnx"], "none.onnx: "),
        (["m.onnx", "r.yaml"], "'m.onnx' is a model, not a recipe; the recipe comes first, then the model"),
        (["deflaut"], "no recipe 'deflaut'; did you mean 'default'?"),
        (["plan.json"], "plan.json: basis: Field required; make the plan again: surgery plan RECIPE MODEL -o FILE"),
    ],
)
def test_mistakes_in_arguments_have_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (folder / "plan.json").write_text('{"format": "surgery-plan", "format_version": 1, "verified": "none"}')
    code, _, err = surgery(capsys, "apply", *arguments)
    assert code == 2 and err.startswith(f"surgery: {message}") and len(err.splitlines()) == 1
