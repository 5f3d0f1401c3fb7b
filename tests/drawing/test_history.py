"""The states of a model over a run: replaying state k gives the model that step k left."""

from pathlib import Path

import pytest
from support.replaying import Tape, expected, replayed

from surgery import recipe as recipes
from surgery import storage
from surgery.engine.pipeline import Pipeline

ROOT = Path(__file__).parent.parent.parent

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
def test_each_state_is_the_model_that_its_step_left_and_each_change_is_told(
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
