"""A large tree ensemble runs once for each input, whatever changes around it, and again if it changes itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.tree_ensembles import trees

from surgery.base.promises import Parity
from surgery.features.bisection.probe import Prober
from surgery.model import storage
from surgery.model.runtime.engine import Engine, RunOutcome
from surgery.model.runtime.setup import SessionSetup
from surgery.verification.comparing.compare import ComparisonRules
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.running import ensembles
from surgery.verification.running.ensembles import EnsembleEngine, KnownOutputs
from surgery.verification.verdict.verifier import Verifier

FEEDS = [
    {"x": np.asarray(rows, np.float32)} for rows in ([[-3, 0]], [[5, 1], [9_999, 2]], [[40_000, 0], [1, 1], [2, 2]])
]


Make = Callable[..., bytes]


@pytest.fixture(name="make")
def _make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setattr(ensembles, "LARGE", 1 << 16)
    kept = []

    def make(*nodes: onnx.NodeProto, outputs: str = "y", columns: int | str = 2) -> bytes:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", columns])
        made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 1]) for name in outputs.split()]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
        path = tmp_path / f"{len(kept)}.onnx"
        onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], made), opset_imports=opsets, ir_version=8), path)
        kept.append(storage.load(path))
        skeleton: bytes = kept[-1].proto.SerializeToString(deterministic=True)
        return skeleton

    yield make
    for stored in kept:
        stored.weights.close()


@pytest.fixture(name="ran")
def _ran(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of inputs on which an ensemble ran apart."""
    found: list[int] = []
    run = Engine.run

    def counted(engine: Engine, skeleton: bytes, feeds: Any, **how: Any) -> RunOutcome:
        if type(engine) is Engine and b"TreeEnsemble" in skeleton:
            found.append(len(feeds))
        return run(engine, skeleton, feeds, **how)

    monkeypatch.setattr(Engine, "run", counted)
    return found


@pytest.fixture(name="engine")
def _engine() -> Iterator[EnsembleEngine]:
    with closing(EnsembleEngine("onnxruntime", 60.0, None, 0, known=KnownOutputs())) as engine:
        yield engine


def _whole(skeleton: bytes, feeds: Any) -> list[Any]:
    with closing(Engine("onnxruntime", 60.0, None, 0)) as engine:
        return _listed(engine.run(skeleton, feeds))


def _listed(outcome: RunOutcome) -> list[Any]:
    assert outcome.failure is None
    return [
        run if isinstance(run, str) else {name: value.tolist() for name, value in run.items()} for run in outcome.runs
    ]


DOUBLED = helper.make_node("Add", ["x", "x"], ["a"])
RETURNED = helper.make_node("Neg", ["b"], ["y"])


def test_an_ensemble_runs_once_on_each_input(make: Make, engine: EnsembleEngine, ran: list[int]) -> None:
    first = make(DOUBLED, trees(5), RETURNED)
    second = make(
        helper.make_node("Add", ["x", "x"], ["d"]), trees(5, read="d", made="e"), helper.make_node("Abs", ["e"], ["y"])
    )
    assert _listed(engine.run(first, FEEDS)) == _whole(first, FEEDS)
    ran.clear()
    assert _listed(engine.run(first, FEEDS)) == _listed(engine.run(first, FEEDS[:2])) + _listed(
        engine.run(first, FEEDS[2:])
    )
    found = _listed(engine.run(second, FEEDS))
    assert not ran
    assert found == _whole(second, FEEDS) != _whole(first, FEEDS)
    ran.clear()
    engine.run(second, [*FEEDS, {"x": np.zeros((1, 2), np.float32)}])
    assert ran == [1]


@pytest.mark.parametrize("change", ["threshold", "weight", "input"])
def test_a_change_of_it_or_its_input_is_not_overlooked(
    change: str, make: Make, engine: EnsembleEngine, ran: list[int]
) -> None:
    first = make(DOUBLED, trees(5), RETURNED)
    changed = trees(6 if change == "threshold" else 5, 2.0 if change == "weight" else 1.0)
    second = make(helper.make_node("Mul" if change == "input" else "Add", ["x", "x"], ["a"]), changed, RETURNED)
    engine.run(first, FEEDS)
    ran.clear()
    found = _listed(engine.run(second, FEEDS))
    assert ran[0] >= 2
    assert found == _whole(second, FEEDS) != _whole(first, FEEDS)


def test_several_ensembles_with_nodes_between_and_none_around(
    make: Make, engine: EnsembleEngine, ran: list[int]
) -> None:
    nodes = [trees(5, read="x"), trees(-7, read="x", made="c"), helper.make_node("Sub", ["b", "c"], ["d"])]
    skeleton = make(*nodes, trees(-9, read="d", made="y"), outputs="y c")
    assert _listed(engine.run(skeleton, FEEDS)) == _whole(skeleton, FEEDS)
    ran.clear()
    engine.run(skeleton, FEEDS)
    assert not ran
    assert _listed(engine.run(make(trees(5, read="x", made="y")), FEEDS)) == _whole(
        make(trees(5, read="x", made="y")), FEEDS
    )


def test_an_input_that_is_rejected_has_the_message_of_the_runtime(make: Make, engine: EnsembleEngine) -> None:
    shape = helper.make_node("Constant", [], ["two"], value_ints=[1, -1, 2])
    nodes = [shape, helper.make_node("Reshape", ["x", "two"], ["r"]), helper.make_node("Squeeze", ["r"], ["a"])]
    skeleton = make(*nodes, trees(5), RETURNED, columns="M")
    feeds = [FEEDS[1], {"x": np.zeros((1, 3), np.float32)}, FEEDS[2]]
    found, expected = _listed(engine.run(skeleton, feeds)), _whole(skeleton, feeds)
    assert isinstance(found[1], str) and "reshaped" in found[1] and found == expected
    narrow = make(DOUBLED, trees(5), RETURNED)
    (message,) = _listed(engine.run(narrow, [{"x": np.zeros((1, 3), np.float32)}]))
    assert isinstance(message, str) and "invalid dimensions" in message


def test_an_input_is_checked_against_its_declaration(make: Make, engine: EnsembleEngine) -> None:
    engine.run(make(trees(5, read="x", made="y")), FEEDS)
    (message, *_) = _listed(engine.run(make(trees(5, read="x", made="y"), columns=3), FEEDS))
    assert isinstance(message, str) and "invalid dimensions" in message


def test_a_model_that_cannot_be_divided_runs_whole(make: Make, engine: EnsembleEngine) -> None:
    draws = make(helper.make_node("RandomUniformLike", ["x"], ["a"], seed=1.0), trees(5), RETURNED)
    assert _listed(engine.run(draws, FEEDS[:1])) == _whole(draws, FEEDS[:1])
    shadowed = make(DOUBLED, trees(5), RETURNED, outputs="y x", columns=1)
    assert _listed(engine.run(shadowed, [{"x": np.ones((1, 1), np.float32)}]))


def test_the_verdict_is_that_of_the_whole_model(make: Make, ran: list[int]) -> None:
    identity = helper.make_node("Identity", ["x"], ["a"])
    original = make(identity, trees(5), RETURNED)
    with closing(Verifier(original, InputsSpec(), VerifySpec())) as verifier:
        verifier.original.prepare()
        assert sum(ran) >= len(verifier.original.runs)
        ran.clear()
        kept = verifier.verify(make(trees(5, read="x"), RETURNED), Parity.EXACT)
        assert kept.passed and not ran
        assert verifier.verify(
            make(trees(5, read="x"), helper.make_node("Abs", ["b"], ["y"])), Parity.EXACT
        ).is_different
        assert verifier.verify(make(trees(500, read="x"), RETURNED), Parity.CLOSE).is_different


def test_a_control_run_and_a_run_as_deployed_use_no_known_results(make: Make) -> None:
    run = ReferenceRun(make(DOUBLED, trees(5), RETURNED), InputsSpec(), VerifySpec())
    run.prepare()
    made = [run.engine_for("onnxruntime", **how) for how in ({}, {"anew": True}, {"deployed": True})]  # type: ignore[arg-type]
    assert [type(engine) for engine in made] == [EnsembleEngine, Engine, Engine]
    small = ReferenceRun(make(DOUBLED, helper.make_node("Neg", ["a"], ["y"])), InputsSpec(), VerifySpec())
    small.prepare()
    assert type(small.engine_for("onnxruntime")) is Engine


def test_a_search_for_a_difference_runs_the_ensemble_once(make: Make, ran: list[int]) -> None:
    original = onnx.load_model_from_string(make(DOUBLED, trees(5), RETURNED))
    wrong = onnx.load_model_from_string(make(DOUBLED, trees(5), helper.make_node("Abs", ["b"], ["y"])))
    prober = Prober(ComparisonRules(Parity.CLOSE), 60.0, None, 0, SessionSetup())
    with closing(prober):
        for changed, kind in ((original, None), (wrong, "values"), (wrong, "values")):
            shown = prober.show(original, changed, FEEDS[0])
            assert (shown.kind if shown is not None else None) == kind
    assert ran == [1]
