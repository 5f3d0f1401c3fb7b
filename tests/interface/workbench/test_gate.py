"""Who is let in: nobody without the token, from another site, by another name, or to files elsewhere."""

import http.client
import json
import time
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.html_pages import checked
from support.workbench_client import Client

from surgery.model.graph import text

SMALL = """g (float[n, 3] x) => (float[n, 3] y)
<float[3, 3] w = {1, -2, 3, 4, 5, -6, 7, 8, 9}> {
    [matmul] m = MatMul(x, w)
    [drop] d = Dropout(m)
    [neg] y = Neg(d)
}"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "opened"
    folder.mkdir()
    onnx.save(text.parse(SMALL), folder / "small.onnx")
    return folder / "small.onnx"


@pytest.fixture
def client(serve: Any, model: Path) -> Client:
    return Client(serve(model))


def test_the_token_opens_the_page_once_and_the_cookie_then(client: Client) -> None:
    assert client.ask("GET", "/")[0] == 403
    assert client.ask("GET", "/?token=" + "a" * 43)[0] == 403
    assert client.ask("GET", "/api/state")[0] == 403
    assert client.ask("GET", "/api/state?" + client.query)[0] == 403  # not here
    headers = client.enter()
    assert "HttpOnly" in headers["set-cookie"] and "SameSite=Strict" in headers["set-cookie"]
    assert client.ask("GET", "/api/state")[0] == 200 and client.ask("GET", "/")[0] == 200
    other = Client(f"http://{client.host}/?{client.query}")
    assert other.ask("GET", f"/?{client.query}")[0] == 403  # used up
    other.cookie = client.cookie[:-1] + "x"
    assert other.ask("GET", "/api/state")[0] == 403
    other.cookie = client.cookie[:-1] + "\xe9"
    assert other.ask("GET", "/api/state")[0] == 403
    other.cookie = "=;;\x01"
    assert other.ask("GET", "/api/state")[0] == 403


def test_the_page_may_load_and_run_nothing_else(client: Client) -> None:
    headers = client.enter()
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["connect-src"] == "'self'"
    assert policy["script-src"].startswith("'sha256-") and "unsafe" not in headers["content-security-policy"]
    assert policy["frame-ancestors"] == "'none'" and headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1.evil:{port}", "[::1]:{port}"]
)
def test_another_name_of_this_machine_is_refused(client: Client, host: str) -> None:
    client.enter()
    name = host.format(port=client.host.partition(":")[2])
    assert client.ask("GET", "/api/state", host=name)[0] == 403
    assert client.post("act", {"act": "undo", "version": 0}, host=name, origin=f"http://{name}")[0] == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", "https://{host}", "http://127.0.0.1:1"])
def test_changes_from_another_site_are_refused(client: Client, origin: str) -> None:
    client.enter()
    given = {"act": "add", "step": "drop-dropout", "version": 0}
    assert client.post("act", given, origin=origin.format(host=client.host))[0] == 403
    assert json.loads(client.ask("GET", "/api/state")[2])["steps"] == []
    assert client.post("act", given)[1]["ok"]


def test_what_is_no_mapping_in_json_is_refused(client: Client) -> None:
    client.enter()
    for body, kind in (([], "application/json"), ({"act": "undo"}, "text/plain")):
        status, answer = client.post("act", body, content_type=kind)
        assert status == 400 and "not a mapping" in answer["error"]["message"]
    status, answer = client.post("act", {"act": "burn", "version": 0})
    assert status == 400 and "no act 'burn'" in answer["error"]["message"]
    for given in ({"act": "move", "number": "0", "to": 0}, {"act": "add"}, {"act": "write", "text": 3}):
        assert client.post("act", {**given, "version": 0})[0] == 400
    assert client.post("save", {"place": "x" * (5 << 20)})[0] == 400


def test_files_outside_of_the_opened_folder_are_neither_read_nor_written(client: Client, model: Path) -> None:
    client.enter()
    outside = model.parent.parent
    (outside / "inner.yaml").write_text("steps: [drop-dropout]\n")
    onnx.save(text.parse(SMALL), outside / "other.onnx")
    (model.parent / "link").symlink_to(outside)
    steps = [
        f"merge: {{model: {outside / 'other.onnx'}, mode: parallel}}",
        "merge: {model: ../other.onnx, mode: parallel}",
        f"use: {outside / 'inner.yaml'}",
        f"merge: {{model: {model.parent / 'link' / 'other.onnx'}, mode: parallel}}",
    ]
    for step in steps:
        status, answer = client.post("act", {"act": "add", "step": step, "version": 0})
        assert status == 400 and "outside of the opened folder" in answer["error"]["message"], step
    assert client.post("act", {"act": "add", "step": "drop-dropout", "version": 0})[1]["ok"]
    for place in (str(outside / "made"), "../made", "link/made", "/tmp/made.onnx"):
        status, answer = client.post("save", {"place": place})
        assert status == 400 and "outside of the opened folder" in answer["error"]["message"], place
    assert not (outside / "made").exists()
    status, answer = client.post("save", {"place": "made"})
    assert status == 200 and sorted(answer["files"]) == [
        "made/small.onnx",
        "made/small.onnx.intoto.json",
        "made/small.report.html",
        "made/small.report.json",
        "made/small.yaml",
    ]


def test_a_recipe_with_local_code_is_refused_without_trust(client: Client, model: Path) -> None:
    client.enter()
    (model.parent / "mine.py").write_text("raise SystemExit('this ran')\n")
    text_of = f"plugins: [{model.parent / 'mine.py'}]\nsteps: [drop-dropout]\n"
    status, answer = client.post("act", {"act": "write", "text": text_of, "version": 0})
    assert status == 400 and "--trust" in answer["error"]["message"]


def test_a_tab_that_is_behind_is_answered_with_what_is_there_now(client: Client) -> None:
    client.enter()
    assert client.post("act", {"act": "add", "step": "drop-dropout", "version": 0})[1]["state"]["version"] == 1
    status, answer = client.post("act", {"act": "add", "step": "drop-dead", "version": 0})
    assert status == 409 and "another tab" in answer["error"]["message"]
    assert [step["title"] for step in answer["state"]["steps"]] == ["drop-dropout"]


def test_the_page_ends_the_server(client: Client) -> None:
    client.enter()
    assert client.post("end", {})[1] == {"ended": True}
    for _ in range(100):
        try:
            client.ask("GET", "/api/state")
        except (OSError, http.client.HTTPException):
            return
        time.sleep(0.05)
    pytest.fail("the server still answers")


def test_the_saved_report_is_shown_where_its_scripts_reach_nothing(client: Client, model: Path) -> None:
    assert client.ask("GET", "/report")[0] == 403
    client.enter()
    assert client.ask("GET", "/report")[0] == 404
    assert client.post("act", {"act": "add", "step": "drop-dropout", "version": 0})[1]["ok"]
    assert client.post("save", {"place": "made"})[0] == 200
    status, headers, html = client.ask("GET", "/report")
    assert status == 200 and html == (model.parent / "made" / "small.report.html").read_text()
    assert headers["content-security-policy"] == "sandbox allow-scripts allow-downloads; frame-ancestors 'none'"
    assert headers["x-content-type-options"] == "nosniff"
    page = checked(html)
    assert "The result is bit-identical to the original." in page.text and "drop-dropout" in page.by_id("steps").text
    recipe = model.parent / "made" / "small.yaml"
    assert f"surgery open {model} --recipe {recipe}" in page.by_id("environment").text
    (model.parent / "made" / "small.report.html").unlink()
    assert client.ask("GET", "/report")[0] == 404


def test_a_report_that_exists_is_not_overwritten(client: Client, model: Path) -> None:
    client.enter()
    (model.parent / "made").mkdir()
    (model.parent / "made" / "small.report.html").write_text("mine")
    assert client.post("act", {"act": "add", "step": "drop-dropout", "version": 0})[1]["ok"]
    status, answer = client.post("save", {"place": "made"})
    assert status == 400 and "small.report.html: the file exists" in answer["error"]["message"]
    assert [path.name for path in (model.parent / "made").iterdir()] == ["small.report.html"]
    assert client.post("save", {"place": "made", "force": True})[0] == 200
