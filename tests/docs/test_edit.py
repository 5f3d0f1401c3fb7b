"""The guide to edits: its commands are run in order, in one folder; each edit has an example that does what it says."""

import contextlib
import io
import json
import re
import runpy
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest
from support import ROOT

from surgery.base.promises import Parity
from surgery.engine.registry.catalog import catalog
from surgery.interface import commands as cli
from surgery.model.proto.signature import signature

pytestmark = pytest.mark.slow

GUIDE = (ROOT / "docs" / "how-to" / "edit-a-model.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, flags=re.MULTILINE | re.DOTALL)
COMMANDS = [line for language, body in BLOCKS if language == "console" for line in body.splitlines()]
OTHERS = {"set-layout", "unroll-loop", "inline-functions", "inline-if"}
"""Edits that are in folders of other passes."""


@dataclass
class Ran:
    """What a command did."""

    code: int
    answer: dict[str, Any]
    errors: str


@dataclass
class Session:
    """All commands of the guide, run one after the other."""

    folder: Path
    ran: dict[str, Ran]

    def steps(self) -> Iterator[dict[str, Any]]:
        """Yield what each step of a recipe came to, of all that went well."""
        for ran in self.ran.values():
            if ran.code == 0:
                yield from ran.answer.get("steps", [])


def run(command: str) -> Ran:
    """Run a command of the guide; its report is JSON."""
    program, *arguments = shlex.split(command, comments=True)
    if program == "python":
        runpy.run_path(arguments[0])
        return Ran(0, {}, "")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main([*arguments, "--format", "json"])
    return Ran(code, json.loads(out.getvalue() or "{}"), err.getvalue())


def test_the_guide(tmp_path: Path, short_models: Path) -> None:
    """All of it in one test: a command needs what those before it wrote."""
    (tmp_path / "models").symlink_to(short_models)
    for _, body in BLOCKS:
        named = re.match(r"# ([\w.-]+)\n", body)
        if named:
            (tmp_path / named.group(1)).write_text(body)
    with contextlib.chdir(tmp_path):
        session = Session(tmp_path, {command: run(command) for command in COMMANDS})
    for check in (commands, examples, promises, intended, signatures, opsets, metadata, blocks, weights, messages):
        check(session)


def commands(session: Session) -> None:
    for command, ran in session.ran.items():
        expected = re.search(r"# exit code (\d)$", command)
        assert ran.code == int(expected.group(1) if expected else 0), f"{command}\n{ran.errors}\n{ran.answer}"


def edits() -> set[str]:
    """List the passes that the guide is about."""
    return {name for name, found in catalog.passes().items() if found.theme in ("edit", "opset")} | OTHERS


def examples(session: Session) -> None:
    done = {step["pass"] for step in session.steps() if step["status"] == "committed"}
    assert edits() - done == set()


def test_each_edit_is_explained() -> None:
    rows = {name for line in GUIDE.splitlines() if line.startswith("| `") for name in re.findall(r"`([\w-]+)`", line)}
    assert edits() - rows == set()


def promises(session: Session) -> None:
    passes = catalog.passes()
    for step in session.steps():
        if step["status"] == "unchanged":
            continue
        meant = passes[step["pass"]].parity is Parity.INTENDED
        assert step["verdict"] in ({"intended"} if meant else {"equal", "close"}), step


def intended(session: Session) -> None:
    steps = session.ran["surgery apply other.yaml -o other.onnx"].answer["steps"]
    assert [step["verdict"] for step in steps] == ["intended"] * 10
    (count,) = re.findall(r"`(\d+) changes on purpose", GUIDE)
    assert int(count) == len(steps)


SIGNATURES = {
    "renamed.onnx": "image float[batch, 3, height, width] => logits float[batch, 10]",
    "stem.onnx": "pixel_values float[batch, 3, height, width] => stem float",
    "rest.onnx": "stem float => logits float[batch, 10]",
    "features.onnx": "pixel_values float[batch, 3, height, width] => features float",
    "twins.onnx": "pixel_values float[batch, 3, height, width] => logits float[batch, 10], features float",
    "camera.onnx": "image uint8[1, 48, 48, 3] => scores float[1, 3], classes int64[1, 3]",
    "detections.onnx": "raw float[batch, 8, boxes] => "
    "nms_boxes float, nms_scores float, nms_images int64, nms_classes int64",
    "layout.onnx": "pixel_values float[images, 64, 64, 3] => logits float[images, 10]",
    "tokens.onnx": "input_ids int32[batch, tokens] => last_hidden_state float16[batch, tokens, 24]",
    "other.onnx": "pixel_values float[batch, 3, height, width] => logits float[batch, 10]",
    "straight.onnx": "x float[n] => y float[n]",
}


def signatures(session: Session) -> None:
    for name, expected in SIGNATURES.items():
        assert ends(onnx.load(session.folder / name), expected) == expected


def ends(model: onnx.ModelProto, like: str) -> str:
    """Write inputs and outputs in a line; the dims of those alone that have some in `like`."""
    found = signature(model)

    def port(value: Any) -> str:
        kind = value.type.removeprefix("tensor(").removesuffix(")")
        dims = f"[{', '.join(map(str, value.dims))}]"
        return f"{value.name} {kind}{dims if f'{value.name} {kind}[' in like else ''}"

    return " => ".join(", ".join(map(port, ports)) for ports in (found.inputs, found.outputs))


def opsets(session: Session) -> None:
    for name, version in {"older.onnx": 13, "newer.onnx": 21}.items():
        (domain,) = onnx.load(session.folder / name).opset_import
        assert domain.version == version


def metadata(session: Session) -> None:
    model = onnx.load(session.folder / "camera.onnx")
    entries = {entry.key: entry.value for entry in model.metadata_props}
    assert entries["license"] == "Apache-2.0" and len(json.loads(entries["labels"])) == 10
    assert model.graph.input[0].doc_string == "RGB, 48 x 48"


def blocks(session: Session) -> None:
    model = onnx.load(session.folder / "blocks.onnx")
    assert [function.name for function in model.functions] == ["Layer"]
    assert sum(node.op_type == "Layer" for node in model.graph.node) == 2
    assert not onnx.load(session.folder / "flat.onnx").functions


def weights(session: Session) -> None:
    outside = onnx.load(session.folder / "outside.onnx", load_external_data=False)
    places = {tensor.data_location for tensor in outside.graph.initializer}
    assert onnx.TensorProto.EXTERNAL in places and (session.folder / "outside.onnx.data").is_file()
    inside = onnx.load(session.folder / "inside.onnx", load_external_data=False)
    assert {tensor.data_location for tensor in inside.graph.initializer} == {onnx.TensorProto.DEFAULT}


def messages(session: Session) -> None:
    for command in COMMANDS:
        if command.endswith("# exit code 2") and "rename" in command:
            errors = session.ran[command].errors
            assert "the model has no tensor, node or dim 'pixel_value'; did you mean 'pixel_values'?" in errors
    message = "the model has no tensor, node or dim 'pixel_value'; did you mean 'pixel_values'?"
    assert message in GUIDE.replace("\n", " ")
