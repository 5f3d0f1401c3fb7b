"""Keys for signatures: passwords, and keys of the wrong kind."""

import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from surgery.base.errors import UsageError
from surgery.engine.provenance import signing


def test_an_encrypted_key_needs_its_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "k.pem"
    command = ["openssl", "genpkey", "-algorithm", "ed25519", "-aes256", "-pass", "pass:secret", "-out", key]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(UsageError) as error:
        signing.read_private(key)
    assert error.value.todo == "set SURGERY_KEY_PASSWORD"
    monkeypatch.setenv("SURGERY_KEY_PASSWORD", "secret")
    assert signing.sign("{}", key)
    monkeypatch.setenv("SURGERY_KEY_PASSWORD", "wrong")
    with pytest.raises(UsageError, match="SURGERY_KEY_PASSWORD is not the password of this key"):
        signing.read_private(key)


@pytest.mark.parametrize(
    ("begin", "message"),
    [
        ("-----BEGIN ENCRYPTED PRIVATE KEY-----", "SURGERY_KEY_PASSWORD is not the password of this key"),
        (
            "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED",
            "SURGERY_KEY_PASSWORD is not the password of this key",
        ),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "SURGERY_KEY_PASSWORD is not the password of this key"),
        ("-----BEGIN PRIVATE KEY-----", "this is not a readable private key"),
    ],
)
def test_a_wrong_password_may_decrypt_a_key_to_nonsense(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: str, message: str
) -> None:
    def load(data: bytes, password: bytes | None) -> None:
        raise ValueError("error parsing asn1 value")

    monkeypatch.setattr(serialization, "load_pem_private_key", load)
    monkeypatch.setattr(serialization, "load_ssh_private_key", load)
    monkeypatch.setenv("SURGERY_KEY_PASSWORD", "wrong")
    (tmp_path / "k.pem").write_text(begin)
    with pytest.raises(UsageError, match=message):
        signing.read_private(tmp_path / "k.pem")


def test_a_file_without_a_key_is_no_private_key_with_any_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "k.pem").write_text("nothing")
    monkeypatch.setenv("SURGERY_KEY_PASSWORD", "secret")
    with pytest.raises(UsageError, match="this is not a readable private key"):
        signing.read_private(tmp_path / "k.pem")


def test_advice_for_a_private_key_does_not_overwrite_it(keys: Path) -> None:
    with pytest.raises(UsageError, match="this is a private key") as error:
        signing.read_public(keys / "mine.pem")
    # openssl empties its output file before it reads the key.
    assert error.value.todo == "name the public key; to make it: openssl pkey -in mine.pem -pubout -out mine.pub"


def test_a_file_without_a_key_is_no_public_key(tmp_path: Path) -> None:
    (tmp_path / "k.pub").write_text("nothing")
    with pytest.raises(UsageError, match="this is not a public key") as error:
        signing.read_public(tmp_path / "k.pub")
    assert str(error.value.todo).endswith("openssl pkey -in PRIVATE -pubout -out k.pub")
