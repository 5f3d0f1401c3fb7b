"""The states of a model over a run: replaying state k gives the model that step k left."""

from pathlib import Path

import pytest
from support.replaying import Tape, expected, replayed

from surgery import Graph, Parity, graph_pass
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.pipeline import Pipeline
from surgery.engine.pipeline.run_options import RunOptions
from surgery.model import storage
from surgery.model.graph import text

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]

RUNS = [
    *[(name, "default") for name in sorted(path.stem for path in (ROOT / "models").glob("*.onnx"))],
    ("bert-tiny", "bert"),
    ("bert-tiny.ts", "ort"),
    ("bert-tiny.ts", "fp16"),
    ("gpt2-tiny", "gpt2"),
    ("gpt2-tiny", "int8-dynamic"),
    ("llama-tiny", "llama"),
    ("resnet-tiny", "npu"),
    ("resnet-tiny", "vision"),
    ("resnet-tiny", "modern"),
    ("t5-enc-tiny", "t5"),
    ("vit-tiny", "vit"),
    ("whisper-enc-tiny", "whisper"),
]


def run(path: Path, recipe: str) -> Tape:
    stored, tape = storage.load(path), Tape()
    loaded = recipes.load(recipe)
    pipeline = Pipeline(stored, loaded, trusted=True, recorder=tape)
    try:
        pipeline.run(loaded.steps)
        pipeline.settle()
    finally:
        pipeline.close()
    return tape


@pytest.mark.parametrize(("model", "recipe"), RUNS)
def test_each_state_is_the_model_that_its_step_left_and_each_change_is_reported(
    short_models: Path, model: str, recipe: str
) -> None:
    tape = run(short_models / f"{model}.onnx", recipe)
    assert len(tape.models) == len(tape.rows.states) > 1
    for state, proto in enumerate(tape.models):
        nodes, edges = expected(proto)
        found = replayed(tape.rows, state)
        assert found[0] == nodes, state
        assert found[1] == edges, state
        assert tape.rows.states[state].nodes == nodes.total()
    told = {(change.state, row) for change in tape.rows.changes for row in change.rows}
    for number, row in enumerate(tape.rows.rows):
        if not row.is_port:
            assert row.born == 0 or (row.born, number) in told
            assert row.died == -1 or (row.died, number) in told
    assert {(one.state, one.row) for one in tape.rows.alterations} <= told


MODEL = """g (float[n,2] x) => (float[n,2] y) {
    i = Identity(x) a = Relu(i) b = Relu(a) d = Dropout(b) c = Cast<to=1>(d) y = Neg(c) }"""


@graph_pass("history-wrong", parity=Parity.EXACT)
def history_wrong(graph: Graph) -> None:
    """Turn each Relu into another function, which is wrong."""
    for node in graph.nodes("Relu"):
        with graph.site(node) as new:
            new.replace(node.outputs[0], new.node("Abs", node.required_input(0)))


@graph_pass("history-rename", parity=Parity.EXACT)
def history_rename(graph: Graph) -> None:
    """Rename all nodes and inner values."""
    for number, node in enumerate(graph.ir.graph):
        node.name = f"n{number}"
    ports = {*graph.ir.graph.inputs, *graph.ir.graph.outputs}
    values = [value for node in graph.ir.graph for value in node.outputs if value not in ports]
    graph.rename_values({value: f"v{number}" for number, value in enumerate(values)})


def applied(steps: str, more: str = "") -> tuple[runner.Result, Tape]:
    tape = Tape()
    loaded = recipes.parse(f"recipe: t\n{more}\nsteps: {steps}")
    return runner.apply(text.parse(MODEL), loaded, options=RunOptions(history=tape, contained=False)), tape


def check(result: runner.Result, tape: Tape) -> None:
    """Check that a history has the committed steps and nothing else, each with its record."""
    assert result.history is tape
    committed = [(n, step) for n, step in enumerate(result.steps) if step.status == "committed" and step.sites]
    states = tape.rows.states[1:]
    assert [(state.step, state.label, state.nodes) for state in states] == [
        (number, step.name, step.nodes_after) for number, step in committed
    ]
    for state, proto in enumerate(tape.models):
        assert replayed(tape.rows, state) == expected(proto)
    assert replayed(tape.rows, len(states)) == expected(result.proto)


@pytest.mark.parametrize("mode", ["each", "end"])
def test_a_change_that_is_rolled_back_is_in_no_state(mode: str) -> None:
    steps = "[drop-identity, {pass: history-wrong, on_failure: rollback}, drop-dropout, drop-no-op]"
    result, tape = applied(steps, f"verify: {{mode: {mode}}}")
    check(result, tape)
    assert [state.label for state in tape.rows.states] == ["original", "drop-identity", "drop-dropout", "drop-no-op"]
    assert "Abs" not in {row.node.op for row in tape.rows.rows}


def test_a_run_that_ends_early_has_the_states_so_far() -> None:
    result, tape = applied("[drop-identity, {pass: history-wrong, on_failure: abort}, drop-dropout]")
    check(result, tape)
    assert [state.label for state in tape.rows.states] == ["original", "drop-identity"]
    assert not result.ok


def test_a_run_records_no_history_by_default() -> None:
    assert runner.apply(text.parse(MODEL), recipes.parse("recipe: t\nsteps: [drop-identity]")).history is None


def test_a_node_of_another_name_is_the_same_node() -> None:
    _, tape = applied("[history-rename]")
    assert replayed(tape.rows, 1) == expected(tape.models[1])
    assert all((row.born, row.died) == (0, -1) for row in tape.rows.rows)
    assert {row.node.name for row in tape.rows.rows if not row.is_port} == {f"n{number}" for number in range(6)}
    assert all(one.what.startswith("name: none -> n") for one in tape.rows.alterations)


def test_the_fate_of_each_removed_node_is_reported() -> None:
    _, tape = applied("[drop-identity, drop-dropout]")
    fates = {row.node.op: (row.killer, row.fate) for row in tape.rows.rows if row.died != -1}
    assert fates == {
        "Identity": ("drop-identity", "bypassed: its readers read 'x'"),
        "Dropout": ("drop-dropout", "bypassed: its readers read 'b'"),
    }
