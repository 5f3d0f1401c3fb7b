"""Searches in the page: which part of a refused step is wrong, which step changes an output; and their Stop."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.workbench_acts import choose, message, operators, picture, saved, settle, steps, until, write_recipe

import surgery
from surgery.base.errors import UsageError
from surgery.interface.workbench.searches import Searches
from surgery.model.graph import text

# Two Relus after an Abs may go, the one after a Tanh may not.
RELUS = """g (float[n, 3] x) => (float[n, 3] y) {
    [abs] a = Abs(x)
    [right] b = Relu(a)
    [tanh] c = Tanh(x)
    [wrong] d = Relu(c)
    [sum] e = Add(b, d)
    [late] f = Abs(e)
    [last] y = Relu(f)
}"""
RULE = "recipe: relus\nrules:\n  relu-away:\n    match: y = Relu(x)\n    emit: y = x\nsteps:\n  - relu-away\n"
BIGGER = {"insert-nodes": {"text": "f = Mul(f, 1.5)"}}


class Pages:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def send(self, **event: Any) -> None:
        self.events.append(event)


def test_the_wrong_places_of_a_refused_step_are_found_and_left_alone() -> None:
    with surgery.Session.open(text.parse(RELUS)) as session:
        searches = Searches(session, Pages())
        with pytest.raises(UsageError, match="no change was refused"):
            searches.blame()
        session.add({"rename": {"nodes": {"abs": "absolute"}}})
        refused = session.write(RULE.replace("steps:\n", "steps:\n  - rename: {nodes: {abs: absolute}}\n"))
        assert not refused.ok and refused.refused is not None
        found = searches.blame()
        assert found["sites"] == 3 and found["rest_holds"]
        assert [one["node"] for one in found["guilty"]] == ["wrong"] and "'y'" in found["guilty"][0]["why"]
        change = session.keep_right()
        assert change.ok and [node.name for node in session.model.proto.graph.node if node.op_type == "Relu"] == [
            "wrong"
        ]
        assert "on_failure: bisect" in session.recipe_yaml() and len(change.steps) == 2
        with pytest.raises(UsageError, match="no change was refused"):
            session.keep_right()


def test_the_first_step_beyond_a_limit_is_found() -> None:
    with surgery.Session.open(text.parse(RELUS)) as session:
        for step in ({"rename": {"nodes": {"abs": "absolute"}}}, BIGGER, "canonical-order"):
            assert session.add(step).ok
        searches = Searches(session, Pages())
        found = searches.changes(session.snapshot, "y", 1e-3)
        assert found["first"] == 1 and found["steps"][0]["largest"] == 0 and found["steps"][1]["largest"] > 0.1
        assert searches.changes(session.snapshot, "y", 1e6)["first"] is None
        with pytest.raises(UsageError):
            searches.changes(session.snapshot, "nowhere", 1e-3)


@pytest.mark.parametrize("search", ["blame", "changes"])
def test_a_search_is_stopped(search: str) -> None:
    with surgery.Session.open(text.parse(RELUS)) as session:
        session.add(BIGGER)
        assert not session.write(RULE).ok

        class Stopping(Pages):
            def send(self, **event: Any) -> None:
                super().send(**event)
                if "run 1" in event["text"] or search == "changes":
                    searches.stop()

        pages = Stopping()
        searches = Searches(session, pages)
        session.add("canonical-order")
        before = session.recipe_yaml()
        if search == "blame":
            assert not session.write(RULE).ok
        with pytest.raises(UsageError, match="the search was stopped; nothing was changed"):
            searches.blame() if search == "blame" else searches.changes(session.snapshot, "y", 0)
        assert session.recipe_yaml() == before and not any("run 3" in one["text"] for one in pages.events)
        assert session.add("drop-dead").ok  # everything still works


@pytest.fixture
def page(serve: Callable[..., str], open_page: Callable[..., Any], tmp_path: Path) -> Any:
    pytest.importorskip("starlette")
    onnx.save(text.parse(RELUS), tmp_path / "model.onnx")
    return open_page(serve(tmp_path / "model.onnx"))


@pytest.mark.slow
def test_a_refused_step_is_bisected_and_done_where_it_is_right(page: Any, tmp_path: Path) -> None:
    write_recipe(page, RULE)
    assert "Refused; nothing was changed" in message(page)
    page.get_by_role("button", name="Which part is wrong?").click()
    until(page, "document.querySelector('#wb-blame').textContent.includes('1 of 3 places is wrong')")
    assert "wrong: output 'y'" in message(page) and "without it, the others are right" in message(page)
    picture(page)
    page.get_by_role("button", name="Select 1 wrong place").click()
    until(page, "document.querySelector('.wb-chips li')?.textContent === 'wrong'")
    page.get_by_role("button", name="Do the step without it").click()
    settle(page)
    assert steps(page) == ["relu-away"] and operators(saved(page, tmp_path / "model.onnx")).count("Relu") == 1


@pytest.mark.slow
def test_the_step_that_changes_an_output_is_found_and_switched_off(page: Any, tmp_path: Path) -> None:
    assert not page.locator("#wb-search").is_visible()
    for step in ({"rename": {"nodes": {"abs": "absolute"}}}, BIGGER, "canonical-order"):
        page.evaluate("(step) => workbench.act({act: 'add', step})", step)
        settle(page)
    page.get_by_text("Find the step that changes an output").click()
    page.get_by_label("Largest difference allowed").fill("0.01")
    page.get_by_label("Largest difference allowed").press("Enter")
    until(page, "document.querySelector('#wb-found').textContent.includes('Step 2, insert-nodes, is the first')")
    picture(page)
    page.get_by_role("button", name="Switch step 2 off").click()
    settle(page)
    assert "Mul" not in operators(saved(page, tmp_path / "model.onnx"))
    page.get_by_label("Largest difference allowed").fill("one")
    page.get_by_role("button", name="Find the step").click()
    until(page, "document.querySelector('#wb-found').textContent.includes('the limit is a number')")


@pytest.mark.slow
def test_a_search_is_stopped_in_the_page(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    entered = threading.Event()

    def slow(self: Searches, *_: Any) -> dict[str, Any]:
        with self._running():
            entered.set()
            while True:
                self._say("step 1 of 1000")
                time.sleep(0.01)

    monkeypatch.setattr(Searches, "blame", slow)
    write_recipe(page, RULE)
    page.get_by_role("button", name="Which part is wrong?").click()
    until(page, "document.querySelector('#wb-blame').textContent.includes('step 1 of 1000')")
    assert entered.is_set()
    picture(page)
    choose(page, "late")  # the page answers meanwhile
    page.get_by_role("button", name="Stop", exact=True).click()
    until(page, "document.querySelector('#wb-blame').textContent.includes('the search was stopped')")
    assert page.get_by_role("button", name="Which part is wrong?").is_visible()
