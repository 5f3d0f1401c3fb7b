"""The guide to edits by hand: each edit is run in each tool, outputs are compared, no tool needs fewer lines."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import onnx_ir as ir
import onnxruntime
import pytest
from support import ROOT
from support.breadth import sampled

import surgery

PAGE = (ROOT / "docs" / "how-to" / "edit-by-hand.md").read_text(encoding="utf-8")
SECTIONS = {
    title: re.findall(r"^```python\n(.*?)^```$", body, flags=re.MULTILINE | re.DOTALL)
    for title, body in re.findall(r"^## (.+)\n((?:(?!^## ).*\n)*)", PAGE, flags=re.MULTILINE)
}
EDITS = [title for title, bodies in SECTIONS.items() if len(bodies) == 3]
TOOLS = ("surgery", "graphsurgeon", "ir")
NAMES = {"surgery": surgery, "gs": gs, "ir": ir, "np": np, "onnx": onnx}
IMAGES = np.random.default_rng(7).normal(size=(2, 3, 32, 32)).astype(np.float32)


def run(body: str) -> None:
    exec(compile(body, "edit-by-hand.md", "exec"), dict(NAMES))


def outputs(path: str) -> dict[str, np.ndarray[Any, Any]]:
    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {session.get_inputs()[0].name: IMAGES})))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.onnx").write_bytes((ROOT / "models" / "resnet-tiny.onnx").read_bytes())


def test_there_are_five_edits() -> None:
    assert len(EDITS) == 5


@pytest.mark.parametrize("title", sampled(EDITS, 4))
def test_the_tools_agree(title: str) -> None:
    before = outputs("model.onnx")
    for body in SECTIONS[title]:
        run(body)
    first, *others = (outputs(f"{tool}.onnx") for tool in TOOLS)
    for other in others:
        assert list(other) == list(first)
        for name, found in other.items():
            np.testing.assert_allclose(first[name], found, rtol=1e-5, atol=1e-5)
    assert list(first) != list(before) or not np.allclose(first["logits"], before["logits"], atol=1e-4)


@pytest.mark.parametrize("title", EDITS)
def test_no_tool_needs_fewer_lines(title: str) -> None:
    ours, *others = (len(body.splitlines()) for body in SECTIONS[title])
    assert ours <= min(others)


def test_intended_edits_among_others() -> None:
    (body,) = SECTIONS["Several edits, some of them intended"]
    run(body)
    made = onnx.load("surgery.onnx")
    assert made.graph.input[0].name == "image"
    assert not {node.op_type for node in made.graph.node} & {"Relu", "BatchNormalization"}


def test_the_message_is_as_shown() -> None:
    with pytest.raises(surgery.UsageError) as raised, surgery.edit("model.onnx") as g:
        g.remove({"op": "Rellu"})
    assert f"`{str(raised.value).partition('; see')[0]}`" in PAGE
