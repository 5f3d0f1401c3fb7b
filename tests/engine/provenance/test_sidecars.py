"""Where a separate statement is written, and which files it must not overwrite."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from surgery.base.errors import OutputError, UsageError
from surgery.engine.provenance import signing
from surgery.engine.provenance.statement_writing import SUFFIX, Sidecar, save
from surgery.model import storage
from surgery.model.graph import text


@pytest.fixture
def stored(tmp_path: Path) -> storage.StoredModel:
    model = text.parse("g (float[300] x) => (float[300] y) { y = Add(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.ones(300, np.float32), "w"))
    onnx.save(model, tmp_path / "in.onnx", save_as_external_data=True, location="in.bin", size_threshold=0)
    return storage.opened(tmp_path / "in.onnx")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("out.onnx", "'out.onnx' is the model itself; name another file for the statement"),
        ("./sub/../out.onnx", "'out.onnx' is the model itself; name another file for the statement"),
        ("out.onnx.data", "'out.onnx.data' is the name of external data of the model; name another file"),
        ("in.bin", "in.bin"),
    ],
)
def test_a_statement_is_written_over_no_model(
    stored: storage.StoredModel, tmp_path: Path, path: str, message: str
) -> None:
    (tmp_path / "sub").mkdir()
    with pytest.raises((UsageError, OutputError)) as error:
        Sidecar(tmp_path / path).check(tmp_path / "out.onnx", stored.weights, force=True)
    assert message in str(error.value)


def test_a_statement_needs_an_output_unless_it_is_not_written(stored: storage.StoredModel, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no output for a statement; name one with -o FILE"):
        Sidecar(tmp_path / "s.json").check(None, stored.weights, force=False)
    Sidecar(written=False).check(None, stored.weights, force=False)
    Sidecar().check(tmp_path / "out.onnx", stored.weights, force=False)
    (tmp_path / "s.json").write_text("")
    with pytest.raises(OutputError, match="exists"):
        Sidecar(tmp_path / "s.json").check(tmp_path / "out.onnx", stored.weights, force=False)
    Sidecar(tmp_path / "s.json").check(tmp_path / "out.onnx", stored.weights, force=True)
    with pytest.raises(UsageError, match="the key cannot be read: No such file"):
        Sidecar(key=tmp_path / "no.pem", written=False).check(None, stored.weights, force=False)


def test_the_statement_is_next_to_the_model_unless_it_is_named(tmp_path: Path) -> None:
    assert Sidecar().target(tmp_path / "out.onnx") == tmp_path / f"out.onnx{SUFFIX}"
    assert Sidecar(tmp_path / "s.json").target(tmp_path / "out.onnx") == tmp_path / "s.json"


def test_a_model_without_a_statement_has_none_of_its_input(stored: storage.StoredModel, tmp_path: Path) -> None:
    proto = onnx.ModelProto()
    proto.CopyFrom(stored.proto)
    proto.metadata_props.add(key="surgery.provenance", value="{}")
    proto.metadata_props.add(key="author", value="me")
    files = save(proto, tmp_path / "out.onnx", stored, None, force=False)
    assert files[0] == tmp_path / "out.onnx" and not (tmp_path / f"out.onnx{SUFFIX}").exists()
    assert [entry.key for entry in onnx.load(files[0], load_external_data=False).metadata_props] == ["author"]


def test_keys_of_openssh_sign(tmp_path: Path) -> None:
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    from cryptography.hazmat.primitives import serialization as form

    private = ed25519.Ed25519PrivateKey.generate()
    (tmp_path / "id").write_bytes(
        private.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
    )
    (tmp_path / "id.pub").write_bytes(
        private.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    )
    signed = tmp_path / "s.json"
    signed.write_text(signing.sign("{}", tmp_path / "id"))
    envelope = signing.opened(json.loads(signed.read_text()), signed)
    assert signing.fault(envelope, tmp_path / "id.pub") == ""
    other = ed25519.Ed25519PrivateKey.generate().public_key()
    (tmp_path / "other.pub").write_bytes(other.public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH))
    assert "it is not signed with the key" in signing.fault(envelope, tmp_path / "other.pub")
