"""A session of edits: steps added, undone, moved and switched, each verified, and saved as `surgery apply` saves."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import onnx
import onnxruntime
import pytest

import surgery
from surgery.base.errors import ExpectationError, OutputError, RecipeError, UsageError
from surgery.engine.pipeline.records import StepRecord
from surgery.engine.provenance import statement
from surgery.features.workbench.step_outcomes import SessionStep
from surgery.interface import commands as cli
from surgery.model.graph import text
from surgery.model.graph.state import Refused

# Two Dropouts and an Identity around two layers, and a Relu that no one needs: what Abs returns has no sign.
SMALL = """g (float[batch, 3] x) => (float[batch, 3] y)
<float[3, 3] w = {1, -2, 3, 4, 5, -6, 7, 8, 9}> {
    [matmul] m = MatMul(x, w)
    [first] d = Dropout(m)
    [abs] a = Abs(d)
    [relu] r = Relu(a)
    [second] e = Dropout(r)
    [same] i = Identity(e)
    [neg] y = Neg(i)
}"""
WRONG = {"replace-op": {"nodes": "abs", "op": "Sigmoid", "keeps": "close"}}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small.onnx"
    onnx.save(text.parse(SMALL), path)
    return path


def operators(session: surgery.Session) -> list[str]:
    return [node.op_type for node in session.model.proto.graph.node]


def test_a_step_says_what_it_changed_and_how_it_was_verified(model: Path) -> None:
    with surgery.Session.open(model) as session:
        change = session.add("drop-dropout")
        (step,) = change.steps
        assert change.ok and change.refused is None
        assert (step.title, step.status, step.on, step.nodes) == ("drop-dropout", "committed", True, 5)
        assert step.verdict is not None and step.verdict.status == "equal" and step.tolerance == 0.0
        assert step.changed.removed == ("first", "second") and step.changed.added == ()
        assert step.changed.altered == ("abs", "same")  # they read what the Dropouts read
        assert step.seconds > 0 and step.to_json()["changed"]["removed"]["count"] == 2
        assert operators(session) == ["MatMul", "Abs", "Relu", "Identity", "Neg"]
        assert "1 of 1 steps, 5 nodes" in repr(session)


def test_the_model_is_known_before_and_after_each_step(model: Path) -> None:
    with surgery.Session.open(model) as session:
        session.add("drop-dropout")
        session.add("drop-identity")
        counts = [len(session.model_after(step).proto.graph.node) for step in (-1, 0, 1)]
        assert counts == [7, 5, 4] and [len(proto.graph.node) for proto in session.states()] == counts
        with pytest.raises(UsageError, match="there is no step 2"):
            session.model_after(2)


def test_a_refused_step_changes_nothing_and_shows_where_it_is_wrong(model: Path) -> None:
    with surgery.Session.open(model) as session:
        session.add("drop-dropout")
        before = session.recipe_yaml()
        change = session.add(WRONG)
        assert not change.ok and len(change.steps) == 1
        refused = change.refused
        assert refused is not None and refused.title == "replace-op" and "abs" in refused.nodes
        value = refused.value
        # The first output that differs is a sigmoid, and thus at most 1, or what follows from it.
        assert value is not None and value.original != value.changed
        assert refused.line == 4 and "replace-op" in refused.text
        assert session.recipe_yaml() == before and operators(session).count("Abs") == 1
        assert session.add("drop-identity").ok and operators(session) == ["MatMul", "Abs", "Relu", "Neg"]


def test_a_step_that_cannot_be_read_names_its_place(model: Path) -> None:
    with surgery.Session.open(model) as session:
        with pytest.raises(RecipeError, match="no pass 'drop-droput'; did you mean 'drop-dropout'"):
            session.add("drop-droput")
        with pytest.raises(RecipeError, match="needs the option 'nodes'"):
            session.add("remove-nodes")
        with pytest.raises(UsageError, match="a step is the name of a pass"):
            session.add(3)  # type: ignore[arg-type]
        assert session.steps == ()


def test_undo_and_redo_run_nothing(model: Path) -> None:
    with surgery.Session.open(model) as session:
        for name in ("drop-dropout", "drop-identity"):
            session.add(name)
        done = session.steps
        assert [step.title for step in session.undo().steps] == ["drop-dropout"]
        assert session.undo().steps == () and not session.can_undo and operators(session).count("Dropout") == 2
        with pytest.raises(UsageError, match="nothing to undo"):
            session.undo()
        session.redo()
        assert session.redo().steps == done and not session.can_redo
        session.undo()
        session.add("drop-dead")
        assert not session.can_redo and [step.title for step in session.steps] == ["drop-dropout", "drop-dead"]


def test_after_a_step_in_the_middle_is_removed_the_later_ones_run_on_the_model_before_it(model: Path) -> None:
    with surgery.Session.open(model) as session:
        session.add("drop-dropout")
        session.add({"rename": {"nodes": {"relu": "kept"}}})
        session.add("drop-identity")
        change = session.remove(1)
        assert change.ok and [step.title for step in change.steps] == ["drop-dropout", "drop-identity"]
        names = [node.name for node in session.model.proto.graph.node]
        assert "relu" in names and "kept" not in names and "same" not in names
        first, last = change.steps
        assert first.records[0].cached and last.status == "committed"


def test_a_change_with_which_a_later_step_fails_is_not_made(model: Path) -> None:
    with surgery.Session.open(model) as session:
        session.add({"rename": {"nodes": {"relu": "kept"}}})
        session.add({"set-attribute": {"nodes": "kept", "name": "alpha", "value": 1.0, "keeps": "close"}})
        assert len(session.steps) == 1  # a Relu has no alpha
        assert session.add({"remove-nodes": {"nodes": "kept", "keeps": "close"}}).ok
        change = session.switch(0, False)
        assert not change.ok and change.refused is not None and change.refused.title == "remove-nodes"
        assert "kept" in change.refused.message and session.steps[0].on
        change = session.move(0, 1)
        assert not change.ok and [step.title for step in session.steps] == ["rename", "remove-nodes"]


def test_steps_are_switched_moved_and_replaced(model: Path) -> None:
    with surgery.Session.open(model) as session:
        session.add("drop-dropout")
        session.add("drop-identity")
        off = session.switch(0, False)
        assert [(step.title, step.status) for step in off.steps] == [
            ("drop-dropout", "off"),
            ("drop-identity", "committed"),
        ]
        assert operators(session).count("Dropout") == 2 and "Identity" not in operators(session)
        assert "  # - drop-dropout\n" in session.recipe_yaml()
        assert [step.title for step in session.move(1, 0).steps] == ["drop-identity", "drop-dropout"]
        replaced = session.replace(1, "- rename: {nodes: {neg: last}}")
        assert replaced.ok and [step.title for step in replaced.steps] == ["drop-identity", "rename"]
        assert session.model.proto.graph.node[-1].name == "last"
        with pytest.raises(UsageError, match="there is no step 5"):
            session.move(5, 0)


def test_a_recipe_written_by_hand_keeps_its_comments_and_mistakes_have_places(model: Path) -> None:
    written = "recipe: mine\nsteps:\n  # why\n  - drop-dropout   # here\n  - pass: drop-identity\n\nverify: {}\n"
    with surgery.Session.open(model) as session:
        assert session.write(written).ok
        assert session.recipe_yaml() == written.replace("\n\n", "\n")
        session.switch(1, False)
        assert "# why\n  - drop-dropout   # here\n" in session.recipe_yaml()
        with pytest.raises(RecipeError) as error:
            session.write("recipe: mine\nsteps:\n  - drop-dropout\n  - drop-identiti\n")
        assert [(one.line, one.column) for one in error.value.problems] == [(4, 5)]
        assert len(session.steps) == 2


def test_a_recipe_is_opened_up_to_the_step_that_is_refused(model: Path) -> None:
    recipe = ["drop-dropout", WRONG, "drop-identity"]
    with surgery.Session.open(model, recipe) as session:
        assert [step.status for step in session.steps] == ["committed", "off", "off"]
        assert session.refused is not None and session.refused.title == "replace-op"
        assert session.switch(2, True).ok and operators(session) == ["MatMul", "Abs", "Relu", "Neg"]


def test_nested_recipes_and_rounds_are_one_step(model: Path) -> None:
    with surgery.Session.open(model) as session:
        change = session.add("repeat: until-stable\nsteps: [drop-identity, drop-dropout]")
        assert change.ok and change.steps[0].title == "repeat until-stable" and change.steps[0].status == "committed"
        assert len(change.steps[0].records) > 2 and change.steps[0].changed.removed == ("first", "second", "same")


def test_what_is_saved_is_what_apply_makes_of_the_saved_recipe(model: Path, tmp_path: Path) -> None:
    with surgery.Session.open(model) as session:
        session.add("drop-dropout")
        session.add({"rename": {"nodes": {"relu": "kept"}}})
        session.add("drop-identity")
        session.remove(1)
        session.add({"set-dims": {"dims": {"batch": 2}}})
        session.add({"remove-nodes": {"nodes": "relu", "keeps": "exact"}})
        saved = session.save(tmp_path / "edited")
    assert saved.model == tmp_path / "edited" / "small.onnx" and saved.result.ok
    assert sorted(path.name for path in saved.model.parent.iterdir()) == [
        "small.onnx",
        "small.onnx.intoto.json",
        "small.report.json",
        "small.yaml",
    ]
    report = json.loads(saved.report.read_text())
    assert report["ok"] and [step["pass"] for step in report["steps"]][:2] == ["drop-dropout", "drop-identity"]
    again = tmp_path / "again.onnx"
    assert cli.main(["apply", str(saved.recipe), str(model), "-o", str(again)]) == 0
    assert again.read_bytes() == saved.model.read_bytes()
    made = onnx.load(again)
    assert [node.op_type for node in made.graph.node] == ["MatMul", "Abs", "Neg"]
    assert statement.carried(made) is not None
    assert onnxruntime.InferenceSession(again).get_inputs()[0].shape == [2, 3]


def test_a_recipe_with_relative_paths_can_be_saved_elsewhere(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "inner.yaml").write_text("steps: [drop-dropout]\n")
    (folder / "outer.yaml").write_text("steps:\n  - use: inner.yaml\n")
    with surgery.Session.open(model, folder / "outer.yaml") as session:
        saved = session.save(tmp_path / "elsewhere" / "made.onnx")
        assert str(folder) in saved.recipe.read_text()
    again = tmp_path / "again.onnx"
    assert cli.main(["apply", str(saved.recipe), str(model), "-o", str(again)]) == 0
    assert again.read_bytes() == saved.model.read_bytes()


def test_nothing_is_written_if_the_result_is_not_accepted_or_a_file_exists(model: Path, tmp_path: Path) -> None:
    place = tmp_path / "edited"
    with surgery.Session.open(model) as session:
        with pytest.raises(UsageError, match="the session has no step"):
            session.save(place)
        session.write("steps: [drop-dropout]\nexpect: {nodes: 1}\n")
        with pytest.raises(ExpectationError, match="the recipe expects nodes: == 1"):
            session.save(place)
        assert list(place.iterdir()) == []
        session.write("steps: [drop-dropout]\n")
        session.save(place)
        content = (place / "small.yaml").read_text()
        session.add("drop-identity")
        with pytest.raises(OutputError, match="exists"):
            session.save(place)
        assert (place / "small.yaml").read_text() == content
        session.save(place, force=True)
        assert "drop-identity" in (place / "small.yaml").read_text()


def test_a_killed_session_is_opened_again_as_it_was(model: Path) -> None:
    program = (
        "import os, signal, sys, surgery\n"
        "session = surgery.Session.open(sys.argv[1])\n"
        "session.add('drop-dropout'); session.add('drop-identity'); session.switch(0, False)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(model)], env={**os.environ})
    assert ended.returncode == -signal.SIGKILL
    with surgery.Session.open(model) as session:
        assert session.reopened
        assert [(step.title, step.status) for step in session.steps] == [
            ("drop-dropout", "off"),
            ("drop-identity", "committed"),
        ]
        # The outcome of the step was stored before the kill, or the step runs again: the verdict is there either way.
        assert session.steps[1].verdict is not None
    with surgery.Session.open(model, fresh=True) as session:
        assert session.steps == ()


def test_a_draft_belongs_to_the_model_and_goes_when_it_is_saved_or_discarded(model: Path, tmp_path: Path) -> None:
    with surgery.Session.open(model) as session:
        session.add("drop-dropout")
    changed = text.parse(SMALL.replace("Neg(i)", "Exp(i)"))
    onnx.save(changed, model)
    with surgery.Session.open(model) as session:
        assert not session.reopened and session.steps == ()
        session.add("drop-identity")
    with surgery.Session.open(model) as session:
        assert session.reopened
        session.save(tmp_path / "made.onnx")
    with surgery.Session.open(model) as session:
        assert not session.reopened
        session.add("drop-identity")
        session.discard()
    with surgery.Session.open(model) as session:
        assert not session.reopened


def test_a_killed_session_does_not_count_as_another_one(model: Path) -> None:
    code = "import sys, surgery; surgery.Session.open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(model)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "open\n"
        with surgery.Session.open(model) as session:
            assert session.shared_with == other.pid
        other.kill()
        other.wait()
    with surgery.Session.open(model) as session:
        assert session.shared_with is None


def test_a_damaged_draft_is_no_draft(model: Path) -> None:
    with surgery.Session.open(model) as session:
        session.add("drop-dropout")
        (draft,) = Path(os.environ["XDG_STATE_HOME"]).rglob("draft.json")
    for content in ("", "[]", '{"version": 2}', '{"version": 1, "steps": [{}]}'):
        draft.write_text(content)
        with surgery.Session.open(model) as session:
            assert not session.reopened and session.steps == ()


def test_local_code_needs_trust(model: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit('this ran')\n")
    recipe = "plugins: [./mine.py]\nsteps: [drop-dropout]\n"
    path = tmp_path / "local.yaml"
    path.write_text(recipe)
    with pytest.raises(UsageError, match="--trust"):
        surgery.Session.open(model, path)
    with surgery.Session.open(model) as session, pytest.raises(UsageError, match="--trust"):
        session.write(recipe.replace("./mine.py", str(tmp_path / "mine.py")))


def test_what_is_prepared_ahead_changes_nothing(model: Path) -> None:
    with surgery.Session.open(model) as session:
        session.add("drop-dropout")
        assert not session.add(WRONG).ok  # the pipeline has to be replayed
        before = session.steps, session.recipe_yaml()
        session.prepare()
        assert (session.steps, session.recipe_yaml()) == before and session.can_undo and not session.can_redo
        assert next(one for one in session.offers(["same"]) if one.name == "drop-identity").sites == 1
        assert session.add("drop-identity").steps[-1].status == "committed"


def test_the_values_of_a_tensor_are_those_of_the_model_now(model: Path) -> None:
    with surgery.Session.open(model) as session:
        (first, *_) = session.values("a")
        assert (first >= 0).all() and first.shape[1] == 3
        session.add({"replace-op": {"nodes": "abs", "op": "Neg", "keeps": "nothing"}})
        assert (abs(session.values("a")[0]) == first).all() and (session.values("a")[0] < 0).any()
        session.undo()
        assert (session.values("a")[0] == first).all()


def test_a_step_says_which_places_it_left_as_before() -> None:
    model = text.parse(
        """g (float[n, 2, 4, 4] x) => (float[n, 2, 4, 4] y, float[n, 2, 4, 4] z)
        <float[2, 2, 1, 1] w = {1, 2, 3, 4}, float[2] one = {1, 1}, float[2] zero = {0, 0}, float[2] v = {2, 3}> {
            [conv] c = Conv(x, w)
            [norm] b = BatchNormalization(c, one, zero, zero, v)
            [read] z = Conv(b, w)
            [shared] y = BatchNormalization(z, one, zero, zero, v)
        }"""
    )
    with surgery.Session.open(model) as session:
        [step] = session.add("fuse-conv-bn").steps
        assert step.left == (("shared", "c is a graph output"),)
        why = "c is a graph output"
        assert step.to_json()["left"] == {
            "count": 1,
            "places": [{"node": "shared", "why": why}],
            "reasons": [{"pass": "fuse-conv-bn", "why": why, "count": 1, "nodes": ["shared"]}],
        }


def test_the_places_that_several_passes_left_are_grouped_by_pass_and_reason() -> None:
    def record(name: str, *refusals: Refused) -> StepRecord:
        return StepRecord(name, "unchanged", 9, 9, refusals=refusals)

    many = [Refused(f"n{number}", "rare" if number == 3 else "often") for number in range(9)]
    # The second round of a recipe refuses the same places again.
    records = (record("drop", many[0]), record("fuse", *many), record("fuse", *many), record("drop", many[0]))
    step = SessionStep(0, "use default", "- use: default", True, "unchanged", records)
    first, *rest = step.to_json()["left"]["reasons"]
    assert first == {"pass": "fuse", "why": "often", "count": 8, "nodes": ["n0", "n1", "n2", "n4", "n5"]}
    assert [(one["pass"], one["why"], one["nodes"]) for one in rest] == [
        ("drop", "often", ["n0"]),
        ("fuse", "rare", ["n3"]),
    ]
    various = record("fuse", *(Refused(f"n{number}", f"reason {number}") for number in range(20)))
    left = SessionStep(0, "fuse", "- fuse", True, "unchanged", (various,)).to_json()["left"]
    assert left["count"] == 20 and len(left["reasons"]) == 12
