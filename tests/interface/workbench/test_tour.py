"""`surgery open --demo`: the guided tour, done by mouse and by keyboard, and what the demo leaves."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.workbench_acts import add, choose, picture, steps, until

from surgery.features.workbench.demo_model import demo_model
from surgery.interface import commands as cli

Demo = Callable[[], tuple[subprocess.Popen[str], str]]


def test_the_model_is_valid_small_and_always_the_same() -> None:
    model = demo_model()
    onnx.checker.check_model(model, full_check=True)
    assert model.ByteSize() < 300_000 and model == demo_model()
    assert {"Softmax", "Erf", "Dropout"} <= {node.op_type for node in model.graph.node}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "surgery: MODEL is missing; name a model, or try 'surgery open --demo'"),
        (["m.onnx", "--demo"], "surgery: --demo has a model of its own; omit --demo, or MODEL, --recipe and --row"),
        (["--demo", "--recipe", "default"], "surgery: --demo has a model of its own"),
    ],
)
def test_the_demo_takes_no_model(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    assert cli.main(["open", *arguments, "--no-browser"]) == 2
    assert message in capsys.readouterr().err


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    """Starts the demo; what it writes to temporary folders is in `tmp`."""
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    (tmp_path / "tmp").mkdir()
    started: list[subprocess.Popen[str]] = []

    def start() -> tuple[subprocess.Popen[str], str]:
        environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "XDG_STATE_HOME": str(tmp_path / "state")}
        command = [sys.executable, "-m", "surgery", "open", "--demo", "--no-browser"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
        )
        started.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.communicate()


def at(page: Any, title: str) -> None:
    page.get_by_role("heading", name=title).wait_for(timeout=60_000)
    picture(page)


def end(page: Any, process: subprocess.Popen[str]) -> str:
    page.get_by_role("button", name="End", exact=True).click()
    said = process.communicate(timeout=30)[1]
    assert process.returncode == 0, said
    return said


@pytest.mark.slow
def test_the_tour_goes_on_when_a_person_has_done_what_it_says(
    demo: Demo, open_page: Callable[..., Any], tmp_path: Path
) -> None:
    process, address = demo()
    page = open_page(address)
    at(page, "1 of 8: Select a node")
    choose(page, "/encoder/layer.0/attention/self/dropout/Dropout")
    at(page, "2 of 8: Read why not")
    page.get_by_text("Not here:").click()
    page.locator("#wb-offers details[data-pass]:has(> div.wb-form), #wb-offers .wb-more[open] summary").last.click()
    at(page, "3 of 8: Add a step")
    add(page, "drop-dropout")
    at(page, "4 of 8: See its verdict")
    assert steps(page) == ["drop-dropout"] and page.locator("#wb-steps.wb-pointed").is_visible()
    page.get_by_role("button", name="Next", exact=True).click()
    at(page, "5 of 8: Undo it")
    page.get_by_role("button", name="Undo").click()
    at(page, "6 of 8: Look at values")
    choose(page, "/encoder/layer.0/attention/self/Softmax")
    page.get_by_role("button", name="Look at values").click()
    at(page, "7 of 8: Edit the recipe")
    page.get_by_role("button", name="Write two steps").click()
    page.keyboard.press("Control+Enter")
    at(page, "8 of 8: Save")
    assert steps(page) == ["drop-dropout", "fuse-layer-norm"]
    page.get_by_role("button", name="Save model, recipe, report and provenance").click()
    at(page, "That was the tour")
    page.get_by_role("button", name="Close", exact=True).click()
    assert page.locator("#wb-tour").is_hidden() and page.locator(".wb-pointed").count() == 0
    said = end(page, process)
    (folder,) = (tmp_path / "tmp").glob("surgery-demo-*")
    assert f"what you saved is in {folder}" in said
    made = onnx.load(folder / "edited" / "bert-demo.onnx")
    operators = [node.op_type for node in made.graph.node]
    assert operators.count("LayerNormalization") == 5 and "Dropout" not in operators


@pytest.mark.slow
def test_the_tour_can_be_left_and_begun_again_with_the_keyboard(
    demo: Demo, open_page: Callable[..., Any], tmp_path: Path
) -> None:
    process, address = demo()
    page = open_page(address)
    at(page, "1 of 8: Select a node")
    focused = "document.activeElement"
    until(page, f"{focused}.id === 'wb-tour-title'")  # so that a screen reader reads it
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate(f"{focused}.textContent") == "Go there"
    page.keyboard.press("Enter")
    assert page.evaluate(f"{focused}.className") == "sv-stage"
    page.keyboard.press("/")
    page.keyboard.type("dropout")
    page.keyboard.press("Enter")
    at(page, "2 of 8: Read why not")
    # The focus stays where people are, and the text is announced.
    assert page.evaluate(f"document.querySelector('#wb-tour').contains({focused})") is False
    assert page.locator("#wb-tour [aria-live=polite]").inner_text()
    page.get_by_role("button", name="Skip", exact=True).press("Enter")
    at(page, "3 of 8: Add a step")
    page.keyboard.press("Escape")
    assert page.locator("#wb-tour").is_hidden() and page.evaluate(f"{focused}.textContent") == "Tour"
    page.keyboard.press("Enter")
    at(page, "2 of 8: Read why not")  # a node is selected
    page.get_by_role("button", name="End the tour").click()
    assert end(page, process).strip() == "" and list((tmp_path / "tmp").glob("surgery-demo-*")) == []
    assert [path for path in (tmp_path / "state").rglob("*") if path.is_file()] == []


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (600, "dark")])
def test_everybody_can_read_every_stop(demo: Demo, open_page: Callable[..., Any], width: int, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    _, address = demo()
    page = open_page(address, width=width, color_scheme=scheme)
    at(page, "1 of 8")
    for number in range(1, 9):
        found = [
            (one["id"], [node["html"][:120] for node in one["nodes"]][:3])
            for one in axe.run(page).response["violations"]
            if one["impact"] in ("serious", "critical")
        ]
        assert found == [], number
        box = page.locator("#wb-tour").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width, number
        page.get_by_role("button", name="Next" if number == 4 else "Skip", exact=True).click()
    at(page, "That was the tour")


@pytest.mark.slow
def test_other_models_have_no_tour(serve: Callable[..., str], open_page: Callable[..., Any], tmp_path: Path) -> None:
    onnx.save(demo_model(), tmp_path / "mine.onnx")
    page = open_page(serve(tmp_path / "mine.onnx"))
    assert page.get_by_role("button", name="Tour").count() == 0 and page.locator("#wb-tour").count() == 0
