"""The commands that edit a model by one pass: what their arguments mean, what they write, and what wrong ones get."""

import json
from pathlib import Path

import onnx
import pytest
from support.breadth import sampled

from surgery.engine import recipe
from surgery.engine.recipe.writer import written
from surgery.engine.registry.catalog import catalog
from surgery.interface import commands as cli
from surgery.interface.command_line import _settings
from surgery.interface.commands import _single_pass
from surgery.model.graph import text

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 4] x, float[4] s) => (float[batch, 4] y, float[batch, 4] z) {
    ["enc/relu"] a = Relu(x)
    ["enc/mul"] b = Mul(a, s)
    ["dec/leaky"] c = LeakyRelu<alpha = 0.1>(b)
    ["dec/neg"] y = Neg(c)
    ["z"] z = Abs(c)
}"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    model = text.parse(MODEL)
    model.graph.doc_string = "written by export.py"
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path


def surgery(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def shown(path: Path) -> str:
    """Return the inputs, nodes and outputs of a model as text."""
    model = onnx.load(path)
    ports = [
        f"{value.name}[{','.join(dim.dim_param or str(dim.dim_value) for dim in value.type.tensor_type.shape.dim)}]"
        for value in (*model.graph.input, *model.graph.output)
    ]
    nodes = [f"{node.op_type}:{','.join(node.output)}" for node in model.graph.node]
    return f"{' '.join(ports)} | {' '.join(nodes)} | {model.opset_import[0].version}"


PORTS = "x[batch,4] s[4] y[batch,4] z[batch,4]"
NODES = "Relu:a Mul:b LeakyRelu:c Neg:y Abs:z"


@pytest.mark.parametrize(
    ("typed", "step", "result"),
    sampled(
        [
            (
                "rename m.onnx x=image batch=N z=last",
                {"rename": {"tensors": {"x": "image", "z": "last"}, "dims": {"batch": "N"}, "nodes": {"z": "last"}}},
                "image[N,4] s[4] y[N,4] last[N,4] | Relu:a Mul:b LeakyRelu:c Neg:y Abs:last | 17",
            ),
            (
                "rename m.onnx z=last --kind outputs",
                {"rename": {"outputs": {"z": "last"}}},
                "x[batch,4] s[4] y[batch,4] last[batch,4] | Relu:a Mul:b LeakyRelu:c Neg:y Abs:last | 17",
            ),
            (r"rename m.onnx re:enc/(.*)=\1", {"rename": {"nodes": {"re:enc/(.*)": r"\1"}}}, f"{PORTS} | {NODES} | 17"),
            ("rename m.onnx enc/*=e/*", {"rename": {"nodes": {"enc/*": "e/*"}}}, f"{PORTS} | {NODES} | 17"),
            (
                "set-dims m.onnx batch=1",
                {"set-dims": {"dims": {"batch": 1}}},
                f"{PORTS.replace('batch', '1')} | {NODES} | 17",
            ),
            ("set-dims m.onnx x=2,?", {"set-dims": {"ports": {"x": [2, None]}}}, None),
            ("set-dims m.onnx x:2,4", {"set-dims": {"ports": {"x": [2, 4]}}}, None),
            ("set-dims m.onnx --batch-size 3", {"set-dims": {"rebatch": 3}}, None),
            (
                "insert m.onnx Clip --after b --operands 0,1/2",
                {"insert-after": {"tensors": ["b"], "op": "Clip", "operands": [0, 0.5]}},
                None,
            ),
            (
                "insert m.onnx Elu --before {op:Neg} --attribute alpha=0.5",
                {"insert-before": {"nodes": {"op": "Neg"}, "op": "Elu", "attributes": {"alpha": 0.5}}},
                None,
            ),
            (
                "insert m.onnx Relu --after-node dec/neg",
                {"insert-after": {"nodes": "dec/neg", "op": "Relu"}},
                None,
            ),
            (
                "remove m.onnx --op Neg,Abs",
                {"remove-nodes": {"nodes": {"op": ["Neg", "Abs"]}}},
                None,
            ),
            (
                "remove m.onnx dec/leaky enc/relu",
                {"remove-nodes": {"nodes": ["dec/leaky", "enc/relu"]}},
                f"{PORTS} | Mul:b Neg:y Abs:z | 17",
            ),
            ("remove m.onnx --outputs z", {"remove-outputs": {"outputs": ["z"]}}, None),
            (
                "remove m.onnx --inputs s=[1,2,3,1/2]",
                {"remove-inputs": {"inputs": {"s": [1, 2, 3, 0.5]}}},
                f"x[batch,4] y[batch,4] z[batch,4] | {NODES} | 17",
            ),
            (
                "replace m.onnx --op LeakyRelu --with Relu --attribute alpha=null",
                {"replace-op": {"nodes": {"op": "LeakyRelu"}, "op": "Relu", "attributes": {"alpha": None}}},
                f"{PORTS} | Relu:a Mul:b Relu:c Neg:y Abs:z | 17",
            ),
            ("upgrade m.onnx 18", {"upgrade-opset": {"to": 18}}, f"{PORTS} | {NODES} | 18"),
            ("upgrade m.onnx --to 18", {"upgrade-opset": {"to": 18}}, f"{PORTS} | {NODES} | 18"),
            ("downgrade m.onnx 13", {"downgrade-opset": {"to": 13}}, f"{PORTS} | {NODES} | 13"),
            ("strip m.onnx", "strip-metadata", f"{PORTS} | {NODES} | 17"),
            ("strip m.onnx --set node_names=true", {"strip-metadata": {"node_names": True}}, f"{PORTS} | {NODES} | 17"),
            ("cut m.onnx --inputs b", {"cut": {"inputs": ["b"]}}, None),
            ("cut m.onnx b", {"cut": {"outputs": ["b"]}}, None),
            ("set-dims m.onnx x[0]=2", {"set-dims": {"ports": {"x": [2, None]}}}, None),
            ("add-outputs m.onnx a b", {"add-outputs": {"outputs": ["a", "b"]}}, None),
            (
                "replace m.onnx Relu Sigmoid",
                {"replace-op": {"nodes": {"op": "Relu"}, "op": "Sigmoid"}},
                f"{PORTS} | {NODES.replace('Relu:a', 'Sigmoid:a')} | 17",
            ),
            *(
                (
                    f"replace m.onnx {typed}",
                    {"replace-op": {"nodes": {"op": "Relu"}, "op": "LeakyRelu", "attributes": {"alpha": 0.25}}},
                    f"{PORTS} | {NODES.replace('Relu:a', 'LeakyRelu:a')} | 17",
                )
                for typed in ("Relu LeakyRelu --alpha .25", "--with=LeakyRelu --op Relu --alpha=.25")
            ),
            (
                "insert m.onnx Clip --after b --operands -1,1",
                {"insert-after": {"tensors": ["b"], "op": "Clip", "operands": [-1, 1]}},
                None,
            ),
        ],
        2,
    ),
)
def test_a_command_runs_the_pass_with_these_options(
    typed: str, step: object, result: str | None, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = surgery(capsys, *typed.split(), "-o", "out.onnx", "--format", "json")
    assert code == 0, err
    report = json.loads(out)
    assert [one["status"] for one in report["steps"]] == ["committed"]
    (folder / "r.yaml").write_text(report["yaml"])
    found, wanted = (recipe.parse(given).steps[0] for given in (report["yaml"], written({"steps": [step]})))
    assert isinstance(found, recipe.PassStep) and isinstance(wanted, recipe.PassStep)
    assert (found.name, found.options) == (wanted.name, wanted.options)
    if result is not None:
        assert shown(folder / "out.onnx") == result
    # The same bytes as by the pass.
    code, _, err = surgery(capsys, "apply", "r.yaml", "m.onnx", "-o", "again.onnx")
    assert code == 0, err
    assert shown(folder / "again.onnx") == shown(folder / "out.onnx")


def test_a_rule_replaces_nodes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rule = ("--match", "y = Relu(x)", "--emit", "y = Sigmoid(x)")
    code, _, err = surgery(capsys, "replace", "m.onnx", *rule, "-o", "out.onnx")
    assert code == 0, err
    assert "| Sigmoid:" in shown(folder / "out.onnx")


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("rename m.onnx", "no name is given; write it like pixel_values=image"),
        ("rename m.onnx x", "'x' is not of the form OLD=NEW; write it like pixel_values=image"),
        ("rename m.onnx batc=N", "the model has no tensor, node or dim 'batc'; did you mean 'batch'?"),
        ("rename m.onnx x=y2 --kind dim", "--kind dim: there is no such kind; choose from inputs, outputs, "),
        ("set-dims m.onnx", "no size is given; write it like batch=1"),
        ("set-dims m.onnx batch", "'batch' is not of the form DIM=SIZE"),
        ("insert m.onnx Relu", "no place is given; pass one of --after TENSOR"),
        ("insert m.onnx Relu --after a --before b", "several places are given"),
        ("remove m.onnx", "nothing to remove is given; pass the names of nodes"),
        ("remove m.onnx enc/relu --outputs z", "a call removes nodes, inputs or outputs; "),
        ("replace m.onnx --op Relu", "what replaces the nodes is not given; write it like"),
        ("replace m.onnx --match y=Relu(x)", "--match and --emit go together"),
        ("set-dims m.onnx x[2]=1", "'x' has 2 dims, and there is no dim 2; the first dim is 0"),
        ("set-dims m.onnx q[0]=1", "the model has no input or output 'q'"),
        ("upgrade m.onnx twenty", "'twenty' is not the number of an opset"),
        ("upgrade m.onnx 18 --to 19", "two opsets are given; give one"),
        ("cut m.onnx", "no tensor is given; pass --inputs NAME or --outputs NAME"),
    ],
)
def test_wrong_arguments_get_one_line(
    typed: str, answer: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = surgery(capsys, *typed.split(), "-o", "out.onnx")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert answer in err
    assert not (folder / "out.onnx").exists()


def test_the_help_of_each_has_an_example_that_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    for name, edit in _single_pass.EDITS.items():
        assert f"\n    surgery {name} model.onnx " in edit.about
        with pytest.raises(SystemExit):
            cli.main([name, "--help"])
        assert edit.about.strip() in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("set-dims", "dims={batch:1}", {"batch": 1}),
        ("set-dims", "dims={batch:1, length: n}", {"batch": 1, "length": "n"}),
        ("set-dims", "dims={x:0:2}", {"x:0": 2}),
        ("insert-after", "operands=[1/255, -1/2, a/2]", [1 / 255, -0.5, "a/2"]),
        ("insert-after", "operands=['1/255']", ["1/255"]),
        ("rename", "inputs={a: 1/2}", {"a": "1/2"}),  # a new name is a text
        ("remove-nodes", "nodes=1/2", "1/2"),
        ("set-attribute", "value=1/4", 0.25),
    ],
)
def test_values_are_read_as_people_write_them(name: str, given: str, value: object) -> None:
    option = given.partition("=")[0]
    assert _settings.read(catalog.find(name), [given]) == {option: value}


def test_a_number_splits_into_parts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = surgery(capsys, "split", "m.onnx", "2", "-o", "parts")
    assert code == 0 and "in sequence: equal" in out, err
    assert [path.name for path in sorted((folder / "parts").glob("*.onnx"))] == ["m.1.onnx", "m.2.onnx"]
    code, _, err = surgery(capsys, "split", "m.onnx", "b")
    assert (code, err) == (2, "surgery: 'b' is not a number of parts; for a tensor, pass --at TENSOR\n")


def test_a_folder_in_place_of_the_recipe_of_a_batch_means_default(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "models").mkdir()
    (folder / "m.onnx").rename(folder / "models" / "m.onnx")
    code, out, err = surgery(capsys, "batch", "models", "-o", "out", "--jobs", "1")
    assert code == 0 and out.startswith("ok: 1 model: 1 done"), out + err
    assert (folder / "out" / "m.onnx").is_file()
    code, _, err = surgery(capsys, "batch", "tidy", "-o", "out")
    assert code == 2 and "SOURCE is missing; pass models or a folder" in err


@pytest.mark.parametrize("typed", ["add-output", "add-outputs"])
def test_outputs_are_added_by_either_name(typed: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = surgery(capsys, typed, "m.onnx", "b", "-o", "out.onnx")
    assert code == 0, err
    assert [one.name for one in onnx.load(folder / "out.onnx").graph.output] == ["y", "z", "b"]
