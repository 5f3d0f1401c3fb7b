"""Questions are answered while a step runs, and a drawing continues the one before it."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.breadth import sampled
from support.workbench_client import Client

import surgery
from surgery.features.workbench.live_run import LiveRun
from surgery.model.graph import text

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

MODEL = """g (float[n, 3] x) => (float[n, 3] y)
<float[3, 3] w = {1, -2, 3, 4, 5, -6, 7, 8, 9}> {
    [matmul] m = MatMul(x, w)
    [first] d = Dropout(m)
    [abs] a = Abs(d)
    [second] e = Dropout(a)
    [same] i = Identity(e)
    [neg] y = Neg(i)
}"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small.onnx"
    onnx.save(text.parse(MODEL), path)
    return path


class SlowSteps:
    """Makes steps wait until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started, self.may_end = threading.Event(), threading.Event()
        run = LiveRun.run

        def slow(*given: Any) -> Any:
            self.started.set()
            assert self.may_end.wait(60)
            return run(*given)

        monkeypatch.setattr(LiveRun, "run", slow)


QUESTIONS: dict[str, Callable[[Client], tuple[int, Any]]] = {
    "offers": lambda client: client.post("offers", {"names": ["first"]}),
    "why": lambda client: client.post("why", {"pass": "drop-dropout", "node": "abs"}),
    "values": lambda client: client.post("values", {"tensor": "a"}),
    "state": lambda client: (client.ask("GET", "/api/state")[0], None),
    "drawing": lambda client: (client.ask("GET", "/api/drawing")[0], None),
}


@pytest.mark.parametrize("question", sampled(QUESTIONS, 3))
def test_a_question_does_not_wait_for_a_step_that_runs(
    serve: Any, model: Path, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    client = Client(serve(model))
    client.enter()
    slow = SlowSteps(monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        act = pool.submit(client.post, "act", {"act": "add", "step": "drop-dropout", "version": 0})
        try:
            assert slow.started.wait(30)
            status, answer = QUESTIONS[question](client)
            assert status == 200 and not act.done()
            if question == "offers":
                assert {one["name"]: one for one in answer}["drop-dropout"]["sites"] == 1
        finally:
            slow.may_end.set()
        assert act.result()[1]["ok"]
    assert json.loads(client.ask("GET", "/api/state")[2])["nodes"] == 4


def test_what_is_asked_after_a_step_is_answered_of_the_model_after_it(serve: Any, model: Path) -> None:
    client = Client(serve(model))
    client.enter()
    assert client.post("offers", {"names": ["first"]})[0] == 200
    client.post("act", {"act": "add", "step": "drop-dropout", "version": 0})
    status, answer = client.post("offers", {"names": ["first"]})
    assert status == 400 and "no node and no tensor 'first'" in answer["error"]["message"]


def test_a_drawing_that_continues_is_the_one_that_begins_anew(model: Path) -> None:
    from surgery.interface.workbench.drawings import Drawings

    kept = Drawings("small.onnx")
    with surgery.Session.open(model) as session:

        def check() -> Any:
            drawn = kept.of(session.snapshot)
            assert json.loads(drawn) == json.loads(Drawings("small.onnx").of(session.snapshot))
            return [state["label"] for state in json.loads(drawn)["states"]]

        assert check() == ["original"]
        session.add("drop-dropout")
        assert check() == ["original", "drop-dropout"]
        session.add("drop-identity")
        session.add({"rename": {"nodes": {"neg": "last"}}})
        assert check() == ["original", "drop-dropout", "drop-identity", "rename"]
        session.undo()
        assert check() == ["original", "drop-dropout", "drop-identity"]
        session.redo()
        session.remove(0)
        assert check() == ["original", "drop-identity", "rename"]
        session.switch(0, False)
        assert check() == ["original", "rename"]


def test_an_added_step_is_compared_once_however_many_there_are_before_it(model: Path) -> None:
    from surgery.interface.workbench.drawings import Drawings

    kept, costs = Drawings("small.onnx"), []
    with surgery.Session.open(model) as session:
        kept.of(session.snapshot)
        for number in range(6):
            session.add({"rename": {"nodes": {f"abs{number - 1}" if number else "abs": f"abs{number}"}}})
            assert kept._history is not None
            before = kept._history.looked_at
            kept.of(session.snapshot)
            costs.append(kept._history.looked_at - before)
        assert len(set(costs)) == 1 and 0 < costs[0] < 30
        started = kept._history.looked_at
        session.undo()
        kept.of(session.snapshot)
        session.redo()
        kept.of(session.snapshot)
        assert kept._history.looked_at == started  # both are kept


def test_a_moment_stays_as_it_is_when_the_session_changes(model: Path) -> None:
    with surgery.Session.open(model) as session:
        session.add("drop-dropout")
        then = session.snapshot
        session.add("drop-identity")
        session.remove(0)
        assert [step.title for step in then.steps] == ["drop-dropout"] and len(then.model.proto.graph.node) == 4
        assert [step.title for step in session.snapshot.steps] == ["drop-identity"]
        offers = {one.name: one.sites for one in session.queries.offers(then, ["same"])}
        assert offers["drop-identity"] == 1 and len(session.model.proto.graph.node) == 5


def test_many_questions_at_once_are_all_answered(serve: Any, model: Path) -> None:
    client = Client(serve(model))
    client.enter()
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(client.post, "offers", {"names": [name]}) for name in ("first", "abs", "same") * 4]
        version = 0
        for step in ("drop-dropout", "drop-identity"):
            version += client.post("act", {"act": "add", "step": step, "version": version})[1]["ok"]
            time.sleep(0.01)
        assert all(future.result()[0] in (200, 400) for future in asked)  # 400: the node is gone by then
    assert version == 2
