"""Questions about a run, each answered in at most three clicks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import ROOT
from support.breadth import sampled

from surgery.interface import commands as cli

PICTURES = ROOT / "docs" / "images" / "questions"
"""What each reader saw at last; `--bless` takes the pictures again."""


@pytest.fixture(scope="module")
def report(short_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    (folder / "models").symlink_to(short_models)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert cli.main(["apply", "default", "models/bert-dropout-tiny.onnx", "--report", "report.html"]) == 0
    return folder / "report.html"


@pytest.fixture(scope="module")
def difference(short_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("difference") / "difference.html"
    models = [str(short_models / f"{name}.onnx") for name in ("bert-tiny.ts", "bert-dropout-tiny")]
    assert cli.main(["diff", *models, "--html", str(path)]) == 0
    return path


class Reader:
    """Someone who reads a page: counts the clicks; typing into a field that has the focus is none."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.clicks = 0

    def click(self, what: Any) -> None:
        what.first.click()
        self.clicks += 1

    def section(self, title: str) -> str:
        """Follow a link of the table of contents; return the text of the section."""
        link = self.page.get_by_role("navigation").get_by_role("link", name=title, exact=True)
        self.click(link)
        return str(self.page.locator(f"section{link.get_attribute('href')}").inner_text())

    def found(self, query: str) -> str:
        """Search, and choose the first result; return the details of the node."""
        field = self.page.locator(".sv-search")
        self.click(field)
        field.fill(query)
        self.click(self.page.locator(".sv-results [role=option]"))
        return self.panel()

    def panel(self) -> str:
        return str(self.page.locator(".sv-panel").inner_text())


QUESTIONS: dict[str, Callable[[Reader], None]] = {}


def question(text: str) -> Callable[[Callable[[Reader], None]], Callable[[Reader], None]]:
    def noted(answer: Callable[[Reader], None]) -> Callable[[Reader], None]:
        QUESTIONS[text] = answer
        return answer

    return noted


@question("What happened to the Dropout of layer 1?")
def _(reader: Reader) -> None:
    text = reader.found("layer.1 Dropout")
    assert "/model/encoder/layer.1/" in text
    assert "Removed by drop-dropout" in text


@question("Which pass created this Split, and from which nodes?")
def _(reader: Reader) -> None:
    text = reader.found("Split delay-split")
    assert "Made by" in text
    assert "MatMul" in text


@question("Where is the largest error?")
def _(reader: Reader) -> None:
    text = reader.section("Accuracy")
    assert "The worst is last_hidden_state[" in text


@question("Which step used most of the tolerance?")
def _(reader: Reader) -> None:
    text = reader.section("Steps")
    assert "Tolerance used" in text
    assert "%" in text


@question("What did fold-constants do, and to which nodes?")
def _(reader: Reader) -> None:
    reader.click(reader.page.locator(".sv-pass", has_text="fold-constants").get_by_role("button"))
    assert "fold-constants" in reader.panel()


@question("What does the graph look like after the second-to-last step?")
def _(reader: Reader) -> None:
    last = reader.page.locator(".sv-timeline").inner_text()
    reader.click(reader.page.locator(".sv-timeline").get_by_role("button"))
    assert reader.page.locator(".sv-timeline").inner_text() != last


@question("What are the shape and type of the result of a Softmax?")
def _(reader: Reader) -> None:
    assert "float[batch,12,sequence,sequence]" in reader.found("Softmax")


@question("Which operators were removed?")
def _(reader: Reader) -> None:
    assert "Dropout" in reader.section("Operators")


@question("Which input sizes were used?")
def _(reader: Reader) -> None:
    reader.section("Inputs tried")
    sets = reader.page.locator("section#inputs details")
    reader.click(sets.locator("summary"))
    assert "batch" in sets.first.inner_text()
    assert "sequence" in sets.first.inner_text()


@question("How can I reproduce the result?")
def _(reader: Reader) -> None:
    assert "surgery apply default" in reader.section("Reproduce")


@pytest.mark.parametrize("text", sampled(QUESTIONS, 6))
def test_at_most_three_clicks(text: str, report: Path, open_file: Callable[..., Any], request: Any) -> None:
    page = open_file(report, width=1100, height=720)
    page.wait_for_selector(".sv-toolbar")
    reader = Reader(page)
    QUESTIONS[text](reader)
    assert 1 <= reader.clicks <= 3
    if request.config.getoption("--bless"):
        number = list(QUESTIONS).index(text) + 1
        shown = {"x": 0, "y": 0, "width": 1100, "height": 720 if number < 10 else 320}  # not this machine
        page.screenshot(path=PICTURES / f"{number:02}.jpg", type="jpeg", quality=60, clip=shown)


def test_the_questions_are_written_down() -> None:
    written = (ROOT / "docs" / "how-to" / "see-what-was-done.md").read_text(encoding="utf-8")
    for number, text in enumerate(QUESTIONS, start=1):
        assert f"{number}. {text} " in written
        assert f"(../images/questions/{number:02}.jpg)" in written


def test_a_node_of_only_one_model_is_found_in_a_difference(difference: Path, open_file: Callable[..., Any]) -> None:
    page = open_file(difference, height=900)
    page.wait_for_selector(".sv-toolbar")
    reader = Reader(page)
    assert "Dropout" in reader.found("Dropout")
    assert reader.clicks <= 3
