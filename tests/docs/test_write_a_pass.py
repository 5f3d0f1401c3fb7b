"""What the guide "Write a pass" shows is run: its passes, its recipe, its commands and its case files."""

import ast
import re
import shlex
from pathlib import Path

import onnx
import pytest
from support import ROOT

from surgery.engine import recipe
from surgery.engine.pipeline import runner
from surgery.engine.registry.catalog import catalog
from surgery.features import testing
from surgery.interface import commands as cli
from surgery.model import storage
from surgery.model.graph import text

pytestmark = pytest.mark.slow

GUIDE = (ROOT / "docs" / "how-to" / "write-a-pass.md").read_text(encoding="utf-8")
WAYS = ("pattern", "graph", "ir", "gs", "proto", "rule")
# A rule of onnxscript is a class, the name of which is not that of the pass.
CLASSES = {"drop-dropout-rule": "DropDropout", "fuse-conv-bn-rule": "FuseConvBn"}


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, flags=re.MULTILINE | re.DOTALL)
    return [body for found, body in fenced if found == language]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, short_models: Path) -> Path:
    """A folder with what the guide says a reader has saved, and the passes known."""
    folder = tmp_path_factory.mktemp("guide")
    (folder / "models").symlink_to(short_models)
    (folder / "my_passes.py").write_text("\n\n".join(blocks("python")))
    (folder / "mine.yaml").write_text(blocks("yaml")[0])
    catalog.load_plugin(str(folder / "my_passes.py"))
    return folder


def run(model: Path | onnx.ModelProto, steps: str, verify: str = "{}") -> runner.Result:
    return runner.apply(model, recipe.parse(f"recipe: guide\nverify: {verify}\nsteps: [{steps}]", "guide.yaml"))


def test_commands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    commands = [line for block in blocks("console") for line in block.splitlines() if line.startswith("surgery ")]
    assert len(commands) == 2
    for command in commands:
        assert cli.main(shlex.split(command)[1:]) == 0, command


@pytest.mark.parametrize(
    ("job", "model", "gone"),
    [
        ("drop-dropout", "bert-dropout-tiny", "Dropout"),
        ("drop-dropout", "bert-tiny", "Dropout"),
        ("fuse-conv-bn", "resnet-tiny", "BatchNormalization"),
    ],
)
def test_all_ways_give_the_same_result_on_real_models(folder: Path, job: str, model: str, gone: str) -> None:
    path = folder / "models" / f"{model}.onnx"
    results = {
        way: run(path, f"{{fold-constants: {{max_growth: 1MB}}}}, {job}-{way}, drop-dead, drop-identity", "{mode: off}")
        for way in WAYS
    }
    expected = _graph(results["graph"])
    for way, result in results.items():
        assert result.steps[1].status == "committed" and gone not in result.output.ops, way
        assert text.structural_diff(expected, _graph(result)) == "", way


def _graph(result: runner.Result) -> object:
    return storage.ir_from_proto(result.proto, result.stored.weights)


CONV_BN = """g (float[N,1,4,4] x) => (float[N,1,4,4] y)
<float[1,1,1,1] w = {2}, float[1] s = {3}, float[1] h = {0.5}, float[1] mu = {0.5}, float[1] v = {2}> {
    d = Dropout(x)
    c = Conv(d, w)
    y = BatchNormalization(c, s, h, mu, v)
}"""


@pytest.mark.parametrize("way", WAYS)
def test_each_way_is_verified(folder: Path, way: str) -> None:
    result = run(text.parse(CONV_BN), f"drop-dropout-{way}, fuse-conv-bn-{way}, drop-dead, drop-identity")
    assert [step.status for step in result.steps[:2]] == ["committed", "committed"]
    assert [step.sites for step in result.steps[:2]] == [1, 1]
    assert result.output.ops == {"Conv": 1}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_keeps_overridable_initializers(folder: Path, way: str) -> None:
    model = text.parse(CONV_BN)
    scale = onnx.helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, [1])
    model.graph.input.append(scale)
    result = run(model, f"fuse-conv-bn-{way}")
    assert [step.status for step in result.steps] == ["unchanged"]


@pytest.mark.parametrize("way", WAYS)
def test_each_way_leaves_a_dropout_in_training(folder: Path, way: str) -> None:
    model = text.parse("""g (float[n] x, bool mode) => (float[n] y) <float ratio = {0.5}> {
        d = Dropout(x, ratio, mode)
        y = Neg(d)
    }""")
    assert run(model, f"drop-dropout-{way}").output.ops["Dropout"] == 1


def test_the_lines_of_code_are_counted() -> None:
    source = "\n\n".join(blocks("python"))
    definitions = {
        node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    rows = [line for line in GUIDE.splitlines() if re.match(r"\|.*\| \d+ \| \d+ \|", line)]
    told = [tuple(int(cell) for cell in re.findall(r"\| (\d+) (?=\|)", row)) for row in rows]
    counted = [
        tuple(
            _lines(definitions[CLASSES.get(name, name.replace("-", "_"))], source)
            for name in (f"drop-dropout-{way}", f"fuse-conv-bn-{way}")
        )
        for way in WAYS
    ]
    assert told == counted


def _lines(node: ast.FunctionDef | ast.ClassDef, source: str) -> int:
    """Count lines from the decorator to the end, `add_pass` included, without docstring and blank lines."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    lines = source.splitlines()[first - 1 : node.end_lineno]
    docstring = node.body[0]
    assert docstring.lineno == docstring.end_lineno
    return sum(bool(line.strip()) for line in lines) - 1 + isinstance(node, ast.ClassDef)


def test_the_other_passes_of_the_guide(folder: Path) -> None:
    one = "g (float[3] x) => (float[3] y) <float[3] w = {0.12345, 1, 2}> { y = Mul(x, w) }"
    result = run(text.parse(one), "only-one-output, round-weights: {digits: 2}", "{mode: off}")
    assert [step.status for step in result.steps] == ["committed", "committed"]
    assert result.proto.graph.doc_string == "result: y"
    assert onnx.numpy_helper.to_array(result.proto.graph.initializer[0])[0] == pytest.approx(0.12)
    two = "g (float[3] x) => (float[3] y, float[3] z) { y = Exp(x) z = Exp(x) }"
    result = run(text.parse(two), "only-one-output, share-subexpressions")
    assert [step.status for step in result.steps] == ["unchanged", "committed"]
    assert [refused.reason for refused in result.steps[0].refusals] == ["the model has several outputs"]


@pytest.mark.parametrize("number", [0, 1])
def test_the_case_files(folder: Path, tmp_path: Path, number: int) -> None:
    body = blocks("text")[number]
    path = tmp_path / body.splitlines()[0].removeprefix("# ")
    path.parent.mkdir()
    path.write_text(body)
    testing.check(testing.read_case(path))
