"""Lineage as it is told: `inspect --lineage`, and `diff`, which matches nodes with it and without."""

import json
from pathlib import Path

import onnx
import pytest

import surgery
from surgery.base.errors import UsageError
from surgery.base.operators.subgraphs import nodes
from surgery.engine import recipe
from surgery.features.differences.diff import correspond
from surgery.features.differences.node_differences import Correspondence
from surgery.features.inspection.pass_counts import descent
from surgery.interface import commands as cli
from surgery.model.graph import text
from surgery.model.proto.lineage import FROM_KEY, KEYS, PASS_KEY, Lineage
from surgery.model.proto.lineage_entries import entries

MODEL = """g (float[1,1,4,4] x) => (float[1,1,4,4] y)
<float[1,1,1,1] w = {2}, float[1] s = {3}, float[1] h = {1}, float[1] mu = {0}, float[1] v = {1}>
{ [copy] i = Identity(x) [conv] c = Conv(i, w) [norm] n = BatchNormalization(c, s, h, mu, v) [act] y = Relu(n) }"""
FOLDED = """g (float[2,3] x) => (float[2,2] y) <float[2,3] w = {1,2,3,4,5,6}>
{ [turn] t = Transpose(w) [layer] y = MatMul(x, t) }"""


def run(model: onnx.ModelProto, *steps: str) -> onnx.ModelProto:
    result = surgery.apply(model, recipe.parse(f"steps: [{', '.join(steps)}]"))
    assert result.ok
    return result.proto


def unstamped(model: onnx.ModelProto, *, names: bool = True) -> onnx.ModelProto:
    """The model without lineage, and if need be without names of nodes."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for thing in (*nodes(copy), *copy.graph.initializer):
        kept = [entry for entry in thing.metadata_props if entry.key not in KEYS]
        del thing.metadata_props[:]
        thing.metadata_props.extend(kept)
        if not names and isinstance(thing, onnx.NodeProto):
            thing.ClearField("name")
    return copy


def groups(found: Correspondence) -> list[tuple[str, str]]:
    return [(str(group), group.how) for group in found.groups]


def removed(found: Correspondence) -> dict[str, str]:
    return {item.entry.name: item.now for item in found.removed}


@pytest.fixture
def original() -> onnx.ModelProto:
    return text.parse(MODEL)


@pytest.fixture
def optimized(original: onnx.ModelProto) -> onnx.ModelProto:
    return run(original, "drop-identity", "fuse-conv-bn")


@pytest.fixture
def files(
    original: onnx.ModelProto, optimized: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(original, "model.onnx")
    onnx.save(optimized, "opt.onnx")


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# Descent


def test_descent_counts_by_pass(optimized: onnx.ModelProto) -> None:
    found = descent(optimized)
    assert [count.to_json() for count in found.passes] == [{"pass": "fuse-conv-bn", "nodes": 1, "constants": 0}]
    assert [entry.lineage for entry in found.found] == [Lineage(("fuse-conv-bn",), ("conv", "norm"))]
    assert (found.nodes, found.cut) == (2, 0)


def test_descendants_of_a_node_of_the_original(optimized: onnx.ModelProto) -> None:
    found = descent(optimized)
    assert [entry.op for entry in found.descendants("norm").found] == ["Conv"]
    assert [entry.lineage for entry in found.descendants("act").found] == [None]
    assert found.descendants("copy").found == ()


def test_a_new_node_with_an_old_name_is_not_the_old_node() -> None:
    model = text.parse("g (float[n] x) => (float[n] y) { [old] y = Abs(x) }")
    model.graph.node[0].metadata_props.add(key=PASS_KEY, value="a-pass")
    assert descent(model).descendants("old").found == ()
    model.graph.node[0].metadata_props.add(key=FROM_KEY, value='["old"]')
    assert len(descent(model).descendants("old").found) == 1


def test_a_folded_constant_has_a_lineage() -> None:
    found = descent(run(text.parse(FOLDED), "fold-constants"))
    assert [(entry.op, entry.lineage) for entry in found.found] == [
        ("constant", Lineage(("fold-constants",), ("turn",)))
    ]


def test_an_unknown_name_is_an_error(optimized: onnx.ModelProto) -> None:
    with pytest.raises(UsageError, match=r"no node 'acr' in the model; did you mean 'act'\?"):
        descent(optimized).named("acr")
    with pytest.raises(UsageError, match="no node ''"):
        descent(optimized).named("")
    assert [entry.name for entry in descent(optimized).named("y").found] == ["act"]


def test_entries_name_their_scope() -> None:
    model = text.parse("""<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (bool c, float[2] x) => (float[2] y) { [choose] b = If(c) <
            then_branch = t () => (float[2] p) { [in] p = Neg(x) }, else_branch = e () => (float[2] q) { q = Abs(x) }>
            y = local.f(b) }
        <domain: "local", opset_import: ["" : 21]> f (d) => (e) { e = Relu(d) }""")
    assert [(str(entry), entry.scope) for entry in entries(model)] == [
        ("If 'choose'", ""),
        ("Neg 'in'", "choose.then_branch"),
        ("Abs -> q", "choose.else_branch"),
        ("local::f 'f -> y'", ""),
        ("Relu -> e", "local::f"),
    ]


# Correspondence


def test_lineage_joins_old_and_new_nodes(original: onnx.ModelProto, optimized: onnx.ModelProto) -> None:
    found = correspond(original, optimized)
    assert groups(found) == [("Conv 'conv' + BatchNormalization 'norm' -> Conv 'norm/Conv'", "lineage")]
    assert found.groups[0].passes == ("fuse-conv-bn",)
    assert found.groups[0].kind == "Conv + BatchNormalization -> Conv"
    assert found.matched == {"name": 1}
    assert removed(found) == {"copy": "input 'x'"}
    assert found.added == ()


def test_without_lineage_nodes_are_joined_by_their_values(original: onnx.ModelProto) -> None:
    fused = text.parse(
        MODEL.replace("[conv] c = Conv(i, w) [norm] n = BatchNormalization(c, s, h, mu, v)", "n = Elu(i)")
    )
    found = correspond(original, fused)
    assert groups(found) == [("Conv 'conv' + BatchNormalization 'norm' -> Elu -> n", "value")]
    assert found.groups[0].passes == ()


def test_a_node_with_other_readers_is_not_part_of_a_group() -> None:
    before = text.parse("g (float[n] x) => (float[n] y, float[n] a) { [one] a = Neg(x) [two] y = Abs(a) }")
    after = text.parse("g (float[n] x) => (float[n] y, float[n] a) { a = Exp(x) y = Elu(x) }")
    assert groups(correspond(before, after)) == [
        ("Neg 'one' -> Exp -> a", "value"),
        ("Abs 'two' -> Elu -> y", "value"),
    ]


def test_a_node_that_lost_its_neighbour_keeps_its_name(original: onnx.ModelProto) -> None:
    after = unstamped(run(original, "fuse-conv-bn"))
    after.graph.node[1].name = "conv"
    found = correspond(original, after)
    assert removed(found) == {"norm": "Conv 'conv'"}


@pytest.mark.parametrize("names", [True, False])
def test_a_model_corresponds_to_itself(names: bool, original: onnx.ModelProto, optimized: onnx.ModelProto) -> None:
    for model in (original, optimized, unstamped(original, names=names)):
        found = correspond(model, model)
        assert (found.groups, found.removed, found.added) == ((), (), ())
        assert sum(found.matched.values()) == len(model.graph.node)


def test_renamed_nodes_and_values_are_found_by_structure() -> None:
    before = text.parse(MODEL)
    after = text.parse(
        MODEL.replace("i =", "v1 =")
        .replace("Conv(i", "Conv(v1")
        .replace("c =", "v2 =")
        .replace("(c,", "(v2,")
        .replace("[copy]", "")
        .replace("[conv]", "")
        .replace("[norm]", "[other]")
        .replace("w", "weight")
    )
    found = correspond(before, after)
    assert found.matched == {"name": 2, "structure": 2}
    assert {pair.before.name: pair.after.name for pair in found.pairs}["conv"] == "Conv -> v2"


def test_identical_nodes_are_matched_by_their_readers() -> None:
    before = text.parse("g (float[n] x) => (float[n] y) { [a] p = Neg(x) [b] q = Neg(x) y = Add(p, q) }")
    after = text.parse("g (float[n] x) => (float[n] y) { [c] r = Neg(x) [d] s = Neg(x) y = Add(r, s) }")
    found = correspond(before, after)
    # What they do for their reader, as its first and its second operand, tells them apart.
    assert {pair.before.name: pair.after.name for pair in found.pairs if pair.how == "structure"} == {
        "a": "c",
        "b": "d",
    }
    del after.graph.node[1]
    after.graph.node[1].input[1] = "r"
    # One of two that compute the same is left: which of them is all the same.
    found = correspond(before, after)
    assert [(lone.entry.name, lone.cause) for lone in found.removed] == [("b", "duplicate")]


def test_a_second_optimization_is_compared_with_the_first(original: onnx.ModelProto) -> None:
    once = run(original, "drop-identity", "fuse-conv-bn")
    twice = run(once, "upgrade-opset: {to: 22}", "fuse-relu")
    found = correspond(once, twice)
    assert found.matched == {"name": 2} and not found.groups


def test_a_folded_weight_becomes_a_constant() -> None:
    before = text.parse(FOLDED)
    found = correspond(before, run(before, "fold-constants"))
    assert groups(found)[0][0].startswith("Transpose 'turn' -> constant '")


def test_lineage_of_another_model_is_not_used(optimized: onnx.ModelProto) -> None:
    other = text.parse("g (float[1,1,4,4] x) => (float[1,1,4,4] y) { [else] y = Abs(x) }")
    found = correspond(other, optimized)
    assert not found.groups or all(group.how == "value" for group in found.groups)
    assert [entry.op for group in found.groups for entry in group.after] == ["Conv", "Relu"]


def test_many_nodes_are_matched_by_each_criterion() -> None:
    chain = " ".join(f"v{i + 1} = Neg(v{i})" for i in range(3000))
    model = text.parse(f"g (float[n] v0) => (float[n] y) {{ {chain} y = Abs(v3000) }}")
    other = text.parse(
        f"g (float[n] v0) => (float[n] y) {{ {chain.replace('v', 'w').replace('w0', 'v0')} y = Abs(w3000) }}"
    )
    assert correspond(model, other).matched == {"name": 1, "structure": 3000}


# The command line


@pytest.mark.usefixtures("files")
def test_inspect_lineage(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = command(capsys, "inspect", "opt.onnx", "--lineage")
    assert (code, err) == (0, "")
    assert "fuse-conv-bn" in out and "norm/Conv" in out and "conv, norm" in out
    assert "1 of 2 nodes were made or edited by passes" in out
    code, out, _ = command(capsys, "inspect", "model.onnx", "--lineage")
    assert code == 0 and "no node of this model has a lineage" in out


@pytest.mark.usefixtures("files")
def test_inspect_from(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command(capsys, "inspect", "opt.onnx", "--from", "norm")
    assert code == 0 and "norm/Conv" in out and "act" not in out
    code, out, _ = command(capsys, "inspect", "opt.onnx", "--lineage", "--from", "act")
    assert code == 0 and "from the original" in out
    code, out, _ = command(capsys, "inspect", "opt.onnx", "--from", "copy")
    assert code == 1 and "no node is known to come from 'copy'" in out


@pytest.mark.usefixtures("files")
def test_inspect_lineage_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command(capsys, "inspect", "opt.onnx", "--node", "norm/Conv", "--format", "json")
    (entry,) = json.loads(out)["lineage"]
    assert code == 0
    assert (entry["op"], entry["passes"], entry["from"], entry["more"]) == (
        "Conv",
        ["fuse-conv-bn"],
        ["conv", "norm"],
        0,
    )
    code, out, _ = command(capsys, "inspect", "opt.onnx", "--from", "nix", "--format", "json")
    assert code == 1 and json.loads(out)["lineage"] == []


@pytest.mark.usefixtures("files")
def test_inspect_lineage_with_wrong_input(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = command(capsys, "inspect", "opt.onnx", "--node", "nrom/Conv")
    assert code == 2 and "did you mean 'norm/Conv'?" in err
    assert command(capsys, "inspect", "nix.onnx", "--lineage")[0] == 2
    with pytest.raises(SystemExit) as ended:
        command(capsys, "inspect", "opt.onnx", "--node", "a", "--from", "b")
    assert ended.value.code == 2


@pytest.mark.usefixtures("files")
def test_diff_shows_which_nodes_replaced_which(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command(capsys, "diff", "model.onnx", "opt.onnx")
    assert code == 0
    assert "1 are in both (1 by name), 2 became 1 new, 1 removed, 0 added" in out
    assert "Conv + BatchNormalization -> Conv" in out and "fuse-conv-bn" in out
    assert "Identity 'copy'; instead of it: input 'x'" in out
    code, out, _ = command(capsys, "diff", "model.onnx", "opt.onnx", "--format", "json")
    found = json.loads(out)["nodes"]
    assert found["groups"][0]["passes"] == ["fuse-conv-bn"]
    (removed,) = found["removed"]
    assert (removed["name"], removed["cause"], removed["now"]) == ("copy", "bypassed", "input 'x'")


@pytest.mark.usefixtures("files")
def test_names_of_nodes_are_ignored(capsys: pytest.CaptureFixture[str], original: onnx.ModelProto) -> None:
    original.graph.node[0].name = "ypoc"
    onnx.save(original, "other.onnx")
    code, out, _ = command(capsys, "diff", "model.onnx", "other.onnx", "--exit-code", "-v")
    assert (code, "0 removed, 0 added" in out) == (0, True)
