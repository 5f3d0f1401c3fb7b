"""A model against its statements, which are made for it here: what is checked, remarked, and found to differ."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from surgery.base.errors import UsageError
from surgery.engine import recipe as recipes
from surgery.engine.provenance import checking, code_digests
from surgery.engine.provenance.checking import Checked, SignedStatement, check, read
from surgery.engine.provenance.model_digests import identity_of
from surgery.engine.provenance.statement import MODEL, SEAL, Origin, brief, embed, full, sealed, text_of
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.wire.digests import STATEMENT_KEY

RECIPE = "recipe: r\nsteps: [drop-identity]\n"


def model(op: str = "Relu", *weights: float) -> onnx.ModelProto:
    made = text.parse(f"g (float[2] x) => (float[2] y) {{ a = {op}(x) y = Add(a, w) }}")
    made.graph.initializer.append(numpy_helper.from_array(np.float32(weights or (1.0, 2.0)), "w"))
    return made


class Made:
    """A model that was written by a recipe, with both statements."""

    def __init__(self, folder: Path) -> None:
        (folder / "r.yaml").write_text(RECIPE)
        self.recipe = recipes.load(folder / "r.yaml")
        self.folder = folder
        self.input = storage.from_proto(model("Neg", 5.0, 6.0))
        origin = Origin(self.recipe, identity_of(self.input), ())
        output = model()
        self.brief = brief(origin, identity_of(storage.from_proto(output)))
        self.path = folder / "out.onnx"
        onnx.save(embed(output, self.brief), self.path)
        self.stored = storage.load(self.path)
        self.full = full(origin, identity_of(self.stored), [self.path])

    def carrying(self, changed: onnx.ModelProto, statement: Any = "own") -> storage.StoredModel:
        return storage.from_proto(embed(changed, self.brief if statement == "own" else statement))


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setattr(code_digests, "engine", lambda: "0" * 64)
    return Made(tmp_path)


def words(result: Checked) -> list[str]:
    return [str(one) for one in result.findings]


NO_INPUT, NO_RECIPE = (
    "the input was not checked; name it with --input",
    "the recipe was not checked; name it with --recipe",
)
NO_KEY = "the signature was not checked; name the public key with --key"


def parts(made: Made) -> str:
    found = identity_of(made.stored)
    return f"{len(found.parts)} parts of the model, {len(found.tensors)} tensors"


def test_a_model_with_its_statement(made: Made) -> None:
    found = check(made.stored)
    assert words(found) == [] and found.checked == ["statement", parts(made)]
    assert found.remarks == [NO_INPUT, NO_RECIPE] and found.statement == made.brief
    found = check(made.stored, source=made.input, recipe=made.recipe)
    assert words(found) == [] and found.remarks == []
    assert found.checked == ["statement", parts(made), "the input", "1 file of the recipe"]


def test_a_model_with_a_statement_in_a_file(made: Made) -> None:
    found = check(made.stored, SignedStatement(made.full), source=made.input, recipe=made.recipe)
    assert words(found) == [] and found.remarks == [] and found.statement == made.full
    both = [
        "statement",
        "statement in the model",
        parts(made),
        "the bytes of 1 file",
        "the input",
        "1 file of the recipe",
    ]
    assert found.checked == both
    # The model itself may carry none, and its file may be another one.
    bare = storage.from_proto(embed(made.stored.proto, None))
    found = check(bare, SignedStatement(made.full))
    assert words(found) == [] and found.remarks == ["the model itself carries no statement", NO_INPUT, NO_RECIPE]
    onnx.save(embed(made.stored.proto, None), made.folder / "other.onnx")
    found = check(storage.load(made.folder / "other.onnx"), SignedStatement(made.full))
    assert words(found) == [] and "the model is the same, but its bytes differ from the written ones" in found.remarks


def test_a_model_without_a_statement(made: Made) -> None:
    bare = storage.from_proto(embed(made.stored.proto, None))
    with pytest.raises(UsageError, match="the model carries no provenance statement; name one with --statement"):
        check(bare)
    with pytest.raises(UsageError, match="the statement in a model is not signed; name a signed one with --statement"):
        check(made.stored, keys=[Path("key")])
    broken = copy.deepcopy(made.stored.proto)
    broken.metadata_props[0].value = "{"
    with pytest.raises(UsageError, match=f"metadata '{STATEMENT_KEY}': the provenance statement is not JSON"):
        check(storage.from_proto(broken))


def test_a_changed_model(made: Made) -> None:
    changed = made.carrying(model("Relu", 1.0, 3.0))
    assert words(check(changed)) == ["initializer 'w': it was changed"]
    (found,) = words(check(changed, SignedStatement(made.full)))
    assert found.endswith("it was changed") and "w" in found
    found_ = check(made.carrying(model("Abs")), SignedStatement(made.full))
    assert len(found_.findings) == 1 and "was changed" in str(found_.findings[0])
    more = model()
    more.graph.initializer.append(numpy_helper.from_array(np.float32([1]), "more"))
    assert any("was added" in one for one in words(check(made.carrying(more), SignedStatement(made.full))))
    # Nothing says what differs, if the statement has no index of its parts.
    without = copy.deepcopy(made.brief)
    del without["predicate"][checking.INDEX]
    found_ = check(made.carrying(model("Abs"), sealed(without)))
    assert words(found_) == ["model: it is not the model of the statement"]


def test_a_second_statement_in_a_model(made: Made) -> None:
    proto = copy.deepcopy(made.stored.proto)
    proto.metadata_props.add(key=STATEMENT_KEY, value="other")
    assert words(check(storage.from_proto(proto))) == [
        f"metadata '{STATEMENT_KEY}': it occurs 2 times, so readers may find another statement"
    ]


def changing(place: list[Any], value: Any) -> Callable[[Any], Any]:
    def change(given: Any) -> Any:
        found = copy.deepcopy(given)
        inner = found
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
        return found

    return change


NAME = ["predicate", "buildDefinition", "externalParameters", "recipe"]


def test_a_changed_statement(made: Made) -> None:
    changed = changing(NAME, "other")(made.brief)
    field = "field 'predicate.buildDefinition.externalParameters.recipe'"
    assert words(check(made.carrying(model(), changed))) == [f"statement, {field}: it was changed"]
    found = check(made.carrying(model(), changed), SignedStatement(made.full))
    assert words(found) == [
        f"statement in the model, {field}: it was changed",
        f"statement, {field}: it differs in the model",
    ]
    # Sealed again, it differs from the other one.
    found = check(made.carrying(model(), sealed(changed)), SignedStatement(made.full))
    assert words(found) == [f"statement, {field}: it differs in the model"]
    for damage in ({}, {"sha256": "0", "fields": "?"}, None):
        damaged = changing(["predicate", SEAL], damage)(made.brief)
        assert words(check(made.carrying(model(), damaged))) == ["statement: its checksum is missing or damaged"]
    other = {**made.brief["predicate"][SEAL], "sha256": "0"}
    damaged = changing(["predicate", SEAL], other)(made.brief)
    assert words(check(made.carrying(model(), damaged))) == ["statement: it does not match its checksum"]


def test_a_statement_about_another_model(made: Made) -> None:
    other = changing(["subject", 0, "digest"], {**made.full["subject"][0]["digest"]})(made.full)
    key = next(iter(other["subject"][0]["digest"]))
    other["subject"][0]["digest"][key] = "0" * 64
    found = check(made.stored, SignedStatement(sealed(other)))
    assert words(found) == [
        "separate statement: it describes another model; the statement in the model describes this one"
    ]
    assert found.statement == made.brief and "statement in the model" not in found.checked
    # One that is damaged, or whose model is neither, is not set aside.
    found = check(made.stored, SignedStatement(other))
    assert found.statement == other and any("statement, field 'subject[0]" in one for one in words(found))
    changed = made.carrying(model("Abs"))
    assert check(changed, SignedStatement(sealed(other))).statement == sealed(other)


@pytest.mark.parametrize(
    ("envelope", "keys", "found", "remarks", "checked"),
    [
        (None, [], [], [], []),
        (None, ["k"], ["signature: the statement is not signed"], [], []),
        ("e", [], [], [NO_KEY], []),
        ("e", ["good"], [], [], ["signature with good"]),
        ("e", ["good", "bad"], ["signature: it does not fit"], [], ["signature with good"]),
    ],
)
def test_signatures(
    made: Made, monkeypatch: pytest.MonkeyPatch, envelope: Any, keys: list[str], found: Any, remarks: Any, checked: Any
) -> None:
    fake = SimpleNamespace(fault=lambda envelope, key: "it does not fit" if str(key) == "bad" else "")
    monkeypatch.setattr(checking, "signing", fake)
    result = check(made.stored, SignedStatement(made.full, envelope), keys=[*map(Path, keys)])
    assert words(result) == found and result.remarks == [*remarks, NO_INPUT, NO_RECIPE]
    assert result.checked[: len(checked)] == checked and result.checked[len(checked)] == "statement"


def test_another_input(made: Made, tmp_path: Path) -> None:
    onnx.save(model("Neg", 5.0, 7.0), tmp_path / "in.onnx")
    other = storage.load(tmp_path / "in.onnx")
    assert words(check(made.stored, source=other)) == [f"input: {tmp_path / 'in.onnx'} is not the input of this model"]
    (found,) = words(check(made.stored, SignedStatement(made.full), source=other))
    assert found.startswith("input, ") and found.endswith(": it was changed")


def test_another_recipe(made: Made, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(RECIPE + "# more\n")
    assert words(check(made.stored, recipe=recipes.load(tmp_path / "r.yaml"))) == [
        "recipe, file 'r.yaml': it was changed"
    ]
    (tmp_path / "s.yaml").write_text(RECIPE)
    assert words(check(made.stored, recipe=recipes.load(tmp_path / "s.yaml"))) == [
        "recipe, file 'r.yaml': it is no longer in the recipe",
        "recipe, file 's.yaml': it is not in the statement",
    ]


def test_statements_are_read_from_files(made: Made, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(text_of(made.full))
    assert read(path) == SignedStatement(made.full)
    path.write_text("[1")
    with pytest.raises(UsageError, match="this is not a provenance statement: "):
        read(path)
    with pytest.raises(UsageError, match="there is no statement; write one: surgery apply --provenance"):
        read(tmp_path / "none.json")
    with pytest.raises(UsageError, match="the statement cannot be read: "):
        read(tmp_path)


def test_the_digest_of_the_model_counts_rather_than_that_of_a_file_of_its_name(made: Made) -> None:
    named = copy.deepcopy(made.full)
    named["subject"].insert(0, {"name": MODEL, "digest": {"sha256": "0" * 64}})
    found = check(made.stored, SignedStatement(sealed(named)))
    assert not any("model" in one.what and "not the model" in one.problem for one in found.findings)
