"""The cookbook: each recipe runs on its own, as a reader would run it, and prints the line that is shown."""

import contextlib
import re
from pathlib import Path

import pytest
from support import ROOT, lacking, page_blocks
from support.shown import normalized

pytestmark = pytest.mark.usefixtures("standard_passes")

PAGE = (ROOT / "docs" / "how-to" / "cookbook.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^### (.+)\n((?:(?!^##).*\n)*)", PAGE, flags=re.MULTILINE))
QUICK = {
    *("Append NMS (NonMaxSuppression) to a detector, such as a YOLO", "Fix the length of a KV cache"),
    *("Fix the batch size, or another dynamic dim", "Cut the head off: features instead of scores"),
    *("Put the weights of a fine-tune into an exported model", "Why was this not fused?", "Upgrade to opset 21"),
    *("Pin a result by a lock file", "Which nodes does OpenVINO, CUDA, TensorRT, CoreML or an NPU not run?"),
}
"""The others are slow tests."""
EXACT = {
    *QUICK,
    *("Rename inputs, outputs or dims", "Remove an output", "Reorder outputs or inputs", "Insert a Clip"),
    *("Add an output for debugging: an intermediate tensor", "Keep only the encoder, the backbone, or any part"),
    *("Store the weights in an external file", "Histogram of operators", "Which opsets are possible?"),
}
"""Those that print the same numbers on each machine."""


def without_figures(text: str) -> str:
    """Return a printed text without its numbers, which differ from machine to machine and from release to release."""
    text = re.sub(r"\b\d+ min (?=\d+ s\b)", "", normalized(text))
    return re.sub(r"# [kM]?B\b", "# bytes", re.sub(r"\d[\d.,]*", "#", text))


def is_command(line: str) -> bool:
    return line.startswith(("surgery ", "python "))


@pytest.mark.parametrize(
    "title", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in RECIPES]
)
def test_the_recipe(title: str, tmp_path: Path) -> None:
    (tmp_path / "models").symlink_to(ROOT / "models")
    printed, shown = "", []
    with contextlib.chdir(tmp_path):
        for language, body in page_blocks.fenced(RECIPES[title]):
            name = page_blocks.file_name(body)
            if name is not None:
                Path(name).write_text(body)
                continue
            assert language == "console"
            for line in body.splitlines():
                if not is_command(line):
                    shown.append(line)
                    continue
                code, said = page_blocks.run(line)
                if re.search(r"^not met +speed", said, flags=re.MULTILINE):
                    pytest.skip("this processor computes in 8 bits no faster")
                assert code == page_blocks.expected_code(line), f"{line}\n{said}"
                printed += said
    assert shown and ". ." not in printed
    exact = title in EXACT and not lacking.are_old()
    compared = normalized if exact else without_figures
    for line in shown:
        assert compared(line) in compared(printed), printed


def test_there_are_forty_recipes_and_the_quick_ones_exist() -> None:
    assert len(RECIPES) >= 40
    assert set(RECIPES) >= QUICK
    for title, text in RECIPES.items():
        commands = [line for _, body in page_blocks.fenced(text) for line in body.splitlines() if is_command(line)]
        assert 1 <= len(commands) <= 3, title
