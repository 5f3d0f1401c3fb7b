"""Statements of provenance: what was changed after it was written is found and named."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support.breadth import sampled

from surgery.base.errors import UsageError
from surgery.engine.pipeline import runner
from surgery.engine.provenance import checking, statement
from surgery.engine.provenance.model_digests import ALGORITHM, STATEMENT_KEY, identity_of
from surgery.engine.provenance.statement_writing import Made, save
from surgery.engine.recipe import parse, single_step
from surgery.interface import commands as cli
from surgery.model import storage

MODELS = Path(__file__).parents[3] / "models"
INPUT = MODELS / "bert-dropout-tiny.onnx"
RECIPE = "verify: {mode: 'off'}\nsteps: [drop-dropout, drop-identity, {use: inner.yaml}]\n"
INNER = "steps: [common-subexpressions]\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Path:
    """A folder with a recipe and two outputs of it: one with a statement inside, one with a signed one next to it."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "r.yaml").write_text(RECIPE)
    (folder / "inner.yaml").write_text(INNER)
    apply = ["apply", str(folder / "r.yaml"), str(INPUT), "--quiet", "-o"]
    assert cli.main([*apply, str(folder / "out.onnx")]) == 0
    assert cli.main([*apply, str(folder / "signed.onnx"), "--sign", str(keys / "mine.pem")]) == 0
    assert cli.main([*apply, str(folder / "long.onnx"), "--provenance", str(folder / "long.onnx.intoto.json")]) == 0
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    for path in made.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def provenance(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, list[str], dict[str, Any]]:
    capsys.readouterr()
    code = cli.main(["provenance", "--format", "json", *map(str, arguments)])
    out, err = capsys.readouterr()
    found = json.loads(out or "{}")
    return code, [f"{one['what']}: {one['problem']}" for one in found.get("findings", ())], found | {"err": err}


@pytest.mark.parametrize("name", sampled(["out", "long", "signed"], 3))
def test_a_written_statement_verifies(folder: Path, keys: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    more = [
        "--input",
        INPUT,
        "--recipe",
        folder / "r.yaml",
        *(["--key", keys / "mine.pub"] if name == "signed" else []),
    ]
    code, findings, found = provenance(capsys, folder / f"{name}.onnx", *more)
    assert (code, findings, found["remarks"]) == (0, [], [])
    assert {"statement", "the input", "2 files of the recipe"} <= set(found["checked"])


def test_a_result_without_a_recipe_is_saved_without_a_statement(tmp_path: Path) -> None:
    result = runner.apply(onnx.load(INPUT), parse("verify: {mode: 'off'}\nsteps: [drop-dropout]"))
    for made_by in (result.made_by, None):
        saved = replace(result, made_by=made_by).save(tmp_path / "out.onnx", provenance=True, force=True)
        keys = [item.key for item in onnx.load(str(saved.output.path)).metadata_props]
        assert (STATEMENT_KEY in keys) == (made_by is not None)


def test_external_data_is_not_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apply = ["apply", str(folder / "r.yaml"), str(INPUT), "-o", str(folder / "new.onnx"), "--layout", "external"]
    assert cli.main([*apply, "--provenance", str(folder / "new.onnx.data")]) == 2
    assert "new.onnx.data' " in capsys.readouterr().err and not list(folder.glob("new.onnx*"))


def test_a_statement_about_another_model_is_named(folder: Path, keys: Path) -> None:
    result = checking.check(
        storage.load(folder / "out.onnx"), checking.read(folder / "signed.onnx.intoto.json"), keys=[keys / "mine.pub"]
    )
    assert result.findings == []  # the same model
    other = onnx.load(folder / "out.onnx", load_external_data=False)
    other.graph.doc_string = "another"
    save(other, folder / "other.onnx", storage.from_proto(other), Made(single_step("drop-identity"), ()))
    result = checking.check(storage.load(folder / "other.onnx"), checking.read(folder / "signed.onnx.intoto.json"))
    (only,) = result.findings
    assert only.what == "separate statement" and "it describes another model" in only.problem


def test_a_second_statement_in_the_model_is_named(folder: Path) -> None:
    model = onnx.load(folder / "out.onnx")
    model.metadata_props.add(key=STATEMENT_KEY, value='{"evil": 1}')
    onnx.save(model, folder / "out.onnx")
    (only,) = checking.check(storage.load(folder / "out.onnx")).findings
    assert str(only).startswith("metadata 'surgery.provenance': it occurs 2 times")


def test_an_empty_statement_is_refused(folder: Path) -> None:
    model = onnx.load(folder / "out.onnx")
    for entry in model.metadata_props:
        if entry.key == STATEMENT_KEY:
            entry.value = ""
    onnx.save(model, folder / "out.onnx")
    with pytest.raises(UsageError, match="the provenance statement is not JSON"):
        checking.check(storage.load(folder / "out.onnx"))


def test_a_statement_without_digests_is_none(folder: Path) -> None:
    statement = json.loads((folder / "long.onnx.intoto.json").read_text())
    del statement["subject"][0]["digest"]
    (folder / "long.onnx.intoto.json").write_text(json.dumps(statement))
    with pytest.raises(UsageError, match="this is not a provenance statement by surgery"):
        checking.read(folder / "long.onnx.intoto.json")


def test_a_statement_follows_in_toto_and_slsa(folder: Path) -> None:
    """https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md and https://slsa.dev/spec/v1.0/provenance."""
    short = json.loads(str(statement.carried(onnx.load(folder / "out.onnx"))))
    long = json.loads((folder / "long.onnx.intoto.json").read_text())
    for one in (short, long):
        assert one["_type"] == "https://in-toto.io/Statement/v1"
        assert one["predicateType"] == "https://slsa.dev/provenance/v1"
        assert all(subject["name"] and subject["digest"] for subject in one["subject"])
        predicate = one["predicate"]
        assert set(predicate["buildDefinition"]) == {
            "buildType",
            "externalParameters",
            "internalParameters",
            "resolvedDependencies",
        }
        assert predicate["runDetails"]["builder"]["id"] == "urn:onnx-surgery"
        assert "metadata" not in predicate["runDetails"]
        extensions = set(predicate) - {"buildDefinition", "runDetails"}
        assert all(name.startswith("surgery_") for name in extensions)
    subjects = {one["name"]: one["digest"] for one in long["subject"]}
    output = subprocess.run(["sha256sum", folder / "long.onnx"], check=True, capture_output=True, text=True).stdout
    assert subjects["long.onnx"] == {"sha256": output.split()[0]}
    weights = {tensor.name: tensor for tensor in onnx.load(folder / "long.onnx").graph.initializer}
    name, tensor = next((name, one) for name, one in weights.items() if len(one.raw_data) > 10_000)
    import hashlib

    assert subjects[f"model#initializer '{name}'"] == {"sha256": hashlib.sha256(tensor.raw_data).hexdigest()}
    dependencies = long["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert dependencies[0] == {"name": "input", "digest": {ALGORITHM: identity_of(storage.load(INPUT)).whole}}


def _weight(model: onnx.ModelProto) -> str:
    tensor = next(one for one in model.graph.initializer if len(one.raw_data) > 10_000)
    array = numpy_helper.to_array(tensor).copy()
    array.flat[7] += np.float32(1e-3)
    tensor.raw_data = array.tobytes()
    return f"initializer '{tensor.name}': it was changed"


def _attribute(model: onnx.ModelProto) -> str:
    node = next(node for node in model.graph.node if node.op_type == "Softmax")
    node.attribute[0].i = 0
    return f"Softmax '{node.name}', attribute 'axis': it was changed"


def _wire(model: onnx.ModelProto) -> str:
    node = next(node for node in model.graph.node if node.op_type == "Add")
    node.input[:] = [node.input[1], node.input[0]]
    return f"Add '{node.name}': it was changed"


def _node(model: onnx.ModelProto) -> str:
    model.graph.node.insert(3, helper.make_node("Identity", [model.graph.node[0].output[0]], ["extra"], name="extra"))
    return "Identity 'extra': it was added"


def _gone(model: onnx.ModelProto) -> str:
    at = next(number for number, node in enumerate(model.graph.node) if node.op_type == "Softmax")
    before = model.graph.node[at - 1]
    assert not before.attribute
    del model.graph.node[at]
    return f"after {before.op_type} '{before.name}': 2 parts are gone"


def _shape(model: onnx.ModelProto) -> str:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    return f"input '{model.graph.input[0].name}': it was changed"


def _producer(model: onnx.ModelProto) -> str:
    model.producer_name = "somebody"
    return "producer_name: it was changed"


def _metadata(model: onnx.ModelProto) -> str:
    model.metadata_props.add(key="license", value="none")
    return "metadata_props: it was added"


TAMPERED = [_weight, _attribute, _wire, _node, _gone, _shape, _producer, _metadata]


@pytest.mark.parametrize("name", sampled(["out", "long", "signed"], 2))
@pytest.mark.parametrize("tamper", sampled(TAMPERED, 4), ids=lambda one: one.__name__)
def test_a_changed_model(
    folder: Path, name: str, tamper: Callable[[onnx.ModelProto], str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / f"{name}.onnx"
    model = onnx.load(path)
    expected = tamper(model)
    onnx.save(model, path)
    code, findings, _ = provenance(capsys, path)
    assert (code, findings) == (1, [expected])


def test_what_lies_between_two_changes_is_not_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "out.onnx"
    model = onnx.load(path)
    expected = {_attribute(model), _wire(model), _producer(model)}
    onnx.save(model, path)
    code, findings, _ = provenance(capsys, path)
    assert code == 1 and set(findings) == expected


def _at(value: Any, place: Sequence[Any]) -> Any:
    for part in place:
        value = value[part]
    return value


FIELDS: list[tuple[tuple[Any, ...], Any]] = [
    (("predicate", "surgery_steps", 0, "sites"), 1),
    (("predicate", "buildDefinition", "externalParameters", "recipe"), "another"),
    (("predicate", "buildDefinition", "resolvedDependencies", 0, "digest", ALGORITHM), "00" * 32),
    (("predicate", "runDetails", "builder", "version", "onnx-surgery"), "9.9"),
    (("subject", 0, "name"), "another"),
]


def _named(place: Sequence[Any]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


@pytest.mark.parametrize("name", ["out", "long"])
@pytest.mark.parametrize(("place", "value"), FIELDS, ids=[_named(place) for place, _ in FIELDS])
def test_a_changed_field_of_the_statement(
    folder: Path, name: str, place: tuple[Any, ...], value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path, side = folder / f"{name}.onnx", folder / "long.onnx.intoto.json"
    if name == "long":
        found = json.loads(side.read_text())
        _at(found, place[:-1])[place[-1]] = value
        side.write_text(json.dumps(found))
    else:
        model = onnx.load(path)
        found = json.loads(model.metadata_props[0].value)
        _at(found, place[:-1])[place[-1]] = value
        model.metadata_props[0].value = json.dumps(found)
        onnx.save(model, path)
    code, findings, _ = provenance(capsys, path)
    assert code == 1
    assert findings[0] == f"statement, field '{_named(place)}': it was changed"


def test_a_resealed_statement_differs_from_the_statement_in_the_model(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    side = folder / "long.onnx.intoto.json"
    found = json.loads(side.read_text())
    found["predicate"]["surgery_steps"][0]["pass"] = "nothing"
    side.write_text(json.dumps(statement.sealed(found)))
    code, findings, _ = provenance(capsys, folder / "long.onnx")
    assert (code, findings) == (
        1,
        ["statement, field 'predicate.surgery_steps[0].pass': it differs in the model"],
    )


def test_a_signed_statement_cannot_be_resealed(folder: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import base64

    side = folder / "signed.onnx.intoto.json"
    envelope = json.loads(side.read_text())
    found = json.loads(base64.b64decode(envelope["payload"]))
    found["predicate"]["surgery_steps"][0]["pass"] = "nothing"
    envelope["payload"] = base64.b64encode(json.dumps(statement.sealed(found)).encode()).decode()
    side.write_text(json.dumps(envelope))
    code, findings, _ = provenance(capsys, folder / "signed.onnx", "--key", keys / "mine.pub")
    assert code == 1
    assert findings[0].startswith("signature: the signature with the key ") and findings[0].endswith(" does not fit")
    assert findings[1:] == ["statement, field 'predicate.surgery_steps[0].pass': it differs in the model"]


def test_a_changed_signature(folder: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import base64

    side = folder / "signed.onnx.intoto.json"
    envelope = json.loads(side.read_text())
    signature = bytearray(base64.b64decode(envelope["signatures"][0]["sig"]))
    signature[5] ^= 1
    envelope["signatures"][0]["sig"] = base64.b64encode(signature).decode()
    side.write_text(json.dumps(envelope))
    code, findings, _ = provenance(capsys, folder / "signed.onnx", "--key", keys / "mine.pub")
    assert code == 1
    assert len(findings) == 1 and findings[0].endswith(" does not fit")


def test_a_signature_with_another_key_is_reported(folder: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, findings, _ = provenance(capsys, folder / "signed.onnx", "--key", keys / "theirs.pub")
    assert code == 1
    assert len(findings) == 1 and findings[0].startswith(f"signature: it is not signed with the key {keys}/theirs.pub")
    code, findings, _ = provenance(capsys, folder / "long.onnx", "--key", keys / "mine.pub")
    assert (code, findings) == (1, ["signature: the statement is not signed"])
    code, _, found = provenance(capsys, folder / "out.onnx", "--key", keys / "mine.pub")
    assert code == 2 and "the statement in a model is not signed" in found["err"]


def test_openssl_agrees_with_the_signature(folder: Path, keys: Path, tmp_path: Path) -> None:
    """The text that is signed, by the specification of DSSE: `DSSEv1 LEN(type) type LEN(body) body`."""
    import base64

    envelope = json.loads((folder / "signed.onnx.intoto.json").read_text())
    body, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"].encode()
    (tmp_path / "text").write_bytes(b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(body), body))
    (tmp_path / "sig").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
    files = ["-in", tmp_path / "text", "-sigfile", tmp_path / "sig"]
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", keys / "mine.pub", "-rawin", *files]
    assert subprocess.run(command, capture_output=True).returncode == 0


def test_another_recipe_and_another_input(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "inner.yaml").write_text(INNER + "# more\n")
    code, findings, _ = provenance(capsys, folder / "out.onnx", "--recipe", folder / "r.yaml")
    assert (code, findings) == (1, ["recipe, file 'inner.yaml': it was changed"])
    model = onnx.load(INPUT)
    place, _, problem = _weight(model).partition(": ")
    onnx.save(model, folder / "in.onnx")
    code, findings, _ = provenance(capsys, folder / "long.onnx", "--input", folder / "in.onnx")
    assert (code, findings) == (1, [f"input, {place}: {problem}"])
    code, findings, _ = provenance(capsys, folder / "out.onnx", "--input", folder / "in.onnx")
    assert (code, findings) == (1, [f"input: {folder}/in.onnx is not the input of this model"])


def test_a_statement_verifies_with_another_layout(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["externalize", str(folder / "long.onnx"), "-o", str(folder / "ext.onnx"), "--quiet"]) == 0
    side = folder / "long.onnx.intoto.json"
    code, findings, found = provenance(capsys, folder / "ext.onnx", "--statement", side)
    assert (code, findings) == (0, [])
    assert "the model is the same, but its bytes differ from the written ones" in found["remarks"]


def test_a_second_run_names_the_statement_of_the_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = folder / "out.onnx", folder / "second.onnx"
    (folder / "s.yaml").write_text("verify: {mode: 'off'}\nsteps: [set-metadata: {metadata: {a: b}}]\n")
    assert cli.main(["apply", str(folder / "s.yaml"), str(first), "-o", str(second), "--quiet"]) == 0
    text = str(statement.carried(onnx.load(first)))
    found = json.loads(str(statement.carried(onnx.load(second))))
    given = found["predicate"]["buildDefinition"]["resolvedDependencies"][0]
    assert given["annotations"] == {"surgery_statement": statement.digest_of_text(text)}
    assert [entry.key for entry in onnx.load(second).metadata_props] == ["a", STATEMENT_KEY]
    assert provenance(capsys, second, "--input", first)[:2] == (0, [])


def test_a_recipe_on_its_own_result_writes_the_same_bytes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = folder / "out.onnx", folder / "second.onnx"
    apply = ["apply", "--quiet", str(folder / "r.yaml")]
    assert cli.main([*apply, str(first), "-o", str(second)]) == 0
    assert second.read_bytes() == first.read_bytes()
    assert provenance(capsys, second, "--input", INPUT, "--recipe", folder / "r.yaml")[:2] == (0, [])
    # A statement that was changed is no statement of this run.
    model = onnx.load(first)
    entry = next(one for one in model.metadata_props if one.key == STATEMENT_KEY)
    entry.value = entry.value.replace("drop-dropout", "drop-nothing")
    onnx.save(model, changed := folder / "changed.onnx")
    assert cli.main([*apply, str(changed), "-o", str(third := folder / "third.onnx")]) == 0
    assert "drop-nothing" not in str(statement.carried(onnx.load(third)))
    assert cli.main([*apply, str(first), "-o", str(stamped := folder / "stamped.onnx"), "--timestamp"]) == 0
    assert "finishedOn" in str(statement.carried(onnx.load(stamped)))


def test_provenance_can_be_switched_off(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "off.yaml").write_text("provenance: false\nverify: {mode: 'off'}\nsteps: [drop-dropout]\n")
    for recipe, flags in (("r.yaml", ["--no-provenance"]), ("off.yaml", [])):
        # The input carries a statement, which is not about the output.
        arguments = [str(folder / recipe), str(folder / "out.onnx"), "-o", str(folder / "bare.onnx"), "--force"]
        assert cli.main(["apply", *arguments, *flags, "--quiet"]) == 0
        assert not onnx.load(folder / "bare.onnx").metadata_props
    code, _, found = provenance(capsys, folder / "bare.onnx")
    assert code == 2 and "the model carries no provenance statement" in found["err"]
    assert cli.main(["apply", "tidy", str(INPUT), "-o", "x.onnx", "--no-provenance", "--sign", "k"]) == 2


def test_a_time_stamp_is_stated_when_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = folder / "timed.onnx"
    assert cli.main(["apply", str(folder / "r.yaml"), str(INPUT), "-o", str(output), "--timestamp", "--quiet"]) == 0
    found = json.loads(str(statement.carried(onnx.load(output))))
    assert found["predicate"]["runDetails"]["metadata"]["finishedOn"].endswith("Z")
    assert not (folder / "timed.onnx.intoto.json").exists()
    assert provenance(capsys, output)[:2] == (0, [])


def test_keys_that_cannot_be_used(folder: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apply = ["apply", str(folder / "r.yaml"), str(INPUT), "-o", str(folder / "new.onnx"), "--sign"]
    for key, expected in (
        (keys / "none.pem", "the key cannot be read: No such file or directory"),
        (keys / "mine.pub", "this is not a readable private key"),
    ):
        assert cli.main([*apply, str(key)]) == 2
        assert expected in capsys.readouterr().err
        assert not (folder / "new.onnx").exists()


def test_invalid_places_for_a_statement(folder: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, output = folder / "in.onnx", folder / "new.onnx"
    own.write_bytes(INPUT.read_bytes())
    apply = ["apply", str(folder / "r.yaml"), str(own), "--force"]
    cases = (
        (["--sign", str(keys / "mine.pem")], "there is no output for a statement; name one with -o FILE"),
        (["-o", str(output), "--provenance", str(output)], "new.onnx' cannot be both output and provenance"),
        (["-o", str(output), "--provenance", str(own)], "would overwrite an input of this command"),
        (["-o", str(output), "--provenance", str(folder)], "this is a directory"),
    )
    for flags, expected in cases:
        assert cli.main([*apply, *flags]) == 2
        assert expected in capsys.readouterr().err
    assert not output.exists()
    assert own.read_bytes() == INPUT.read_bytes()


def test_without_the_package_for_signatures(
    folder: Path, keys: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "securesystemslib", None)
    apply = ["apply", str(folder / "r.yaml"), str(INPUT), "-o", str(folder / "new.onnx")]
    assert cli.main([*apply, "--sign", str(keys / "mine.pem")]) == 2
    assert "signatures need the package securesystemslib; pip install 'onnx-surgery[sign]'" in capsys.readouterr().err
    assert provenance(capsys, folder / "long.onnx")[:2] == (0, [])


def test_diff_leaves_statements_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "n.yaml").write_text("verify: {mode: 'off'}\nsteps: [drop-dropout]\n")
    (folder / "other.yaml").write_text("verify: {mode: 'off'}\nsteps: [drop-dropout, drop-dropout]\n")
    once, twice = folder / "once.onnx", folder / "twice.onnx"
    assert cli.main(["apply", str(folder / "n.yaml"), str(INPUT), "-o", str(once), "--quiet"]) == 0
    assert cli.main(["apply", str(folder / "other.yaml"), str(once), "-o", str(twice), "--quiet"]) == 0
    assert once.read_bytes() != twice.read_bytes()
    assert cli.main(["diff", str(once), str(twice), "--exit-code"]) == 0
