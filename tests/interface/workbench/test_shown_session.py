"""A session in a notebook: its page is framed by the notebook and by nothing else, and ends with the session."""

import http.server
import re
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import onnx
import pytest
from support.workbench_client import Client

import surgery
from surgery.model.graph import text

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

SMALL = """g (float[n, 3] x) => (float[n, 3] y) {
    [first] a = Abs(x) [drop] d = Dropout(a) [same] i = Identity(d) [last] y = Neg(i)
}"""


@pytest.fixture
def session(tmp_path: Path) -> Iterator[surgery.Session]:
    (tmp_path / "opened").mkdir()
    onnx.save(text.parse(SMALL), tmp_path / "opened" / "small.onnx")
    with surgery.Session.open(tmp_path / "opened" / "small.onnx") as opened:
        yield opened


def servers() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("workbench")]


def framed(shown: Any) -> tuple[str, str]:
    """Return the port and the token of the frame in the HTML of a cell."""
    found = re.search(r":(\d+)/\?token=([\w-]+)&frame=", shown._repr_html_())
    assert found is not None
    return found[1], found[2]


def test_the_page_and_cells_change_the_same_session(session: surgery.Session) -> None:
    client = Client(session.show().address)
    client.enter()
    assert client.post("act", {"act": "add", "step": "drop-dropout", "version": 0})[1]["ok"]
    assert session.add("drop-identity").ok
    status, answer = client.post("act", {"act": "undo", "version": 1})
    assert status == 409 and [step["title"] for step in answer["state"]["steps"]] == ["drop-dropout", "drop-identity"]
    assert client.post("act", {"act": "undo", "version": 2})[1]["ok"]
    assert [step.title for step in session.steps] == ["drop-dropout"]


def test_a_change_in_a_cell_is_sent_to_the_page(session: surgery.Session) -> None:
    client = Client(session.show().address)
    client.enter()
    with client.events() as events:
        session.add("drop-dropout")
        kinds = [next(events) for _ in range(3)]
        while kinds[-1]["kind"] != "changed":
            kinds.append(next(events))
    assert kinds[-1] == {"kind": "changed", "version": 1} and {"stage", "done"} <= {one["kind"] for one in kinds}


def test_closing_ends_the_thread(session: surgery.Session) -> None:
    before = servers()
    shown = session.show()
    assert session.show() is shown and len(servers()) > len(before)
    address = shown.address
    shown.close()
    assert servers() == before and not shown.is_open and "closed" in repr(shown)
    assert "is closed" in shown._repr_html_() and "iframe" not in shown._repr_html_()
    with pytest.raises(OSError):
        Client(address).enter()
    again = session.show()
    assert again is not shown and "iframe" in again._repr_html_()
    Client(again.address).enter()
    session.close()
    assert servers() == before
    assert session.add("drop-dropout").ok  # closing ends work, and more work begins again


def test_the_end_button_ends_the_page_and_not_the_session(session: surgery.Session) -> None:
    shown = session.show()
    client = Client(shown.address)
    client.enter()
    assert client.post("end", {})[1] == {"ended": True}
    shown._thread.join(10)
    assert not shown.is_open and session.add("drop-dropout").ok


@pytest.mark.parametrize("origin", ["http://localhost:8888", "http://127.0.0.1:8888", "http://localhost"])
def test_only_the_notebook_may_frame_it(session: surgery.Session, origin: str) -> None:
    port, token = framed(session.show())
    client = Client(f"http://localhost:{port}/?token={token}&frame={origin}")
    policy = client.enter()["content-security-policy"]
    assert f"frame-ancestors {origin}" in policy and policy.count("frame-ancestors") == 1
    again = client.ask("GET", "/")  # as a notebook does that draws its cells again
    assert again[0] == 200 and f"frame-ancestors {origin}" in again[1]["content-security-policy"]
    other = Client(f"http://localhost:{port}/?token={token}&frame={origin}")
    assert other.ask("GET", f"/?{other.query}")[0] == 403  # used up


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "https://localhost.evil.example", "*", "http://localhost:8888;script-src *", ""]
)
def test_no_other_page_may_frame_it(session: surgery.Session, origin: str) -> None:
    shown = session.show()
    port, token = framed(shown)
    policy = Client(f"http://localhost:{port}/?token={token}&frame={quote(origin)}").enter()["content-security-policy"]
    assert policy.endswith("frame-ancestors 'none'")
    # The address for a tab opens no frame.
    policy = Client(f"{shown.address}&frame=http://localhost:8888").enter()["content-security-policy"]
    assert policy.endswith("frame-ancestors 'none'")


def test_the_gate_holds(session: surgery.Session) -> None:
    client = Client(session.show().address)
    assert client.ask("GET", "/")[0] == 403 and client.ask("GET", "/api/state")[0] == 403
    client.enter()
    assert client.ask("GET", "/api/state", host="evil.example")[0] == 403
    given = {"act": "add", "step": "drop-dropout", "version": 0}
    assert client.post("act", given, origin="http://localhost:8888")[0] == 403  # not even the notebook


def test_the_page_stays_in_the_folder_of_the_model_and_cells_need_not(session: surgery.Session, tmp_path: Path) -> None:
    client = Client(session.show().address)
    client.enter()
    (tmp_path / "inner.yaml").write_text("steps: [drop-dropout]\n")
    (tmp_path / "other.yaml").write_text("steps: [drop-identity]\n")
    given = {"act": "add", "step": f"use: {tmp_path / 'inner.yaml'}", "version": 0}
    assert "outside of the opened folder" in client.post("act", given)[1]["error"]["message"]
    assert session.add(f"use: {tmp_path / 'inner.yaml'}").ok
    given = {"act": "add", "step": f"use: {tmp_path / 'other.yaml'}", "version": 1}
    assert "outside of the opened folder" in client.post("act", given)[1]["error"]["message"]
    assert client.post("act", {"act": "add", "step": "drop-identity", "version": 1})[1]["ok"]
    assert "outside" in client.post("save", {"place": str(tmp_path / "made")})[1]["error"]["message"]
    assert session.save(tmp_path / "made").model.is_file()


def test_without_the_extra_it_says_what_to_install(session: surgery.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "surgery.interface.workbench.serving", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(surgery.UsageError, match=r"needs uvicorn.*pip install 'onnx-surgery"):
        session.show()


@pytest.mark.slow
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_notebook_shows_it_in_a_frame(session: surgery.Session, browser: Any, tmp_path: Path, host: str) -> None:
    cell = session.show(height=600)._repr_html_()
    (tmp_path / "notebook.html").write_text(f"<!doctype html><title>Notebook</title>{cell}")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as notebook:
        threading.Thread(target=notebook.serve_forever, daemon=True).start()
        page = browser.new_page()
        try:
            page.goto(f"http://{host}:{notebook.server_address[1]}/notebook.html")
            frame = page.frame_locator("iframe")
            frame.locator("body[data-ready]").wait_for(timeout=60_000)
            assert page.locator("iframe").bounding_box()["height"] >= 600
            session.add("drop-dropout")
            frame.locator("#wb-steps > li").wait_for(timeout=60_000)
            frame.get_by_role("button", name="Undo").click()
            frame.get_by_text("No step yet.").wait_for(timeout=60_000)
            assert session.steps == ()
        finally:
            page.close()
            notebook.shutdown()


def test_a_loaded_model_opens_a_session_of_its_own_that_ends_with_its_page(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    onnx.save(text.parse(SMALL), path)
    shown = surgery.load(path).open()
    try:
        client = Client(shown.address)
        client.enter()
        assert client.post("act", {"act": "add", "step": "drop-dropout", "version": 0})[1]["ok"]
        assert client.post("save", {"place": "edited"})[0] == 200
    finally:
        shown.close()
    assert servers() == [] and not shown.is_open
    assert "Dropout" not in [node.op_type for node in onnx.load(tmp_path / "edited" / "small.onnx").graph.node]
