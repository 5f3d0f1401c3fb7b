"""Signatures of statements: DSSE envelopes (https://github.com/secure-systems-lab/dsse), with the user's own keys.

Keys are PEM files (Ed25519, ECDSA, RSA), as written by `openssl genpkey`, or files in OpenSSH format. Nothing is looked
up or uploaded. The cryptography is done by the package securesystemslib, from the extra `sign`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from surgery.base.errors import UsageError

if TYPE_CHECKING:
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner, SSlibKey

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
PASSWORD: Final = "SURGERY_KEY_PASSWORD"
"""The environment variable with the password of an encrypted private key."""


def sign(text: str, key: Path) -> str:
    """Return the signed envelope of a statement as the text of a file."""
    envelope = _library().Envelope(text.encode(), PAYLOAD_TYPE, {})
    envelope.sign(read_private(key))
    return json.dumps(envelope.to_dict(), indent=2) + "\n"


def is_envelope(value: Any) -> bool:
    """Return whether a JSON value is an envelope."""
    return isinstance(value, dict) and "payload" in value and "signatures" in value


def opened(value: dict[str, Any], where: Path) -> Envelope:
    """Return the envelope in a JSON value. Raises UsageError if it is damaged."""
    library = _library()
    try:
        envelope: Envelope = library.Envelope.from_dict(json.loads(json.dumps(value)))
    except Exception as error:
        raise UsageError(f"the envelope is damaged: {error}", where=str(where)) from error
    if envelope.payload_type != PAYLOAD_TYPE:
        raise UsageError(f"the envelope holds '{envelope.payload_type}', not a statement", where=str(where))
    return envelope


def fault(envelope: Envelope, key: Path) -> str:
    """Return why an envelope is not signed by a key; empty if it is. Raises UsageError for an unreadable key."""
    from securesystemslib.exceptions import VerificationError

    public = read_public(key)
    if public.keyid not in envelope.signatures:
        others = ", ".join(name[:12] for name in envelope.signatures) or "nobody"
        return f"it is not signed with the key {key} ({public.keyid[:12]}), but by {others}"
    try:
        envelope.verify([public], 1)
    except VerificationError:
        return f"the signature with the key {key} ({public.keyid[:12]}) does not fit"
    return ""


def read_private(path: Path) -> CryptoSigner:
    """Read a private key. Raises UsageError."""
    _library()
    from cryptography.hazmat.primitives import serialization
    from securesystemslib.signer import CryptoSigner

    data, password = _read(path), os.environ.get(PASSWORD)
    load = serialization.load_ssh_private_key if b"OPENSSH" in data[:64] else serialization.load_pem_private_key
    try:
        return CryptoSigner(load(data, password.encode() if password else None))
    except TypeError as error:
        todo = f"set {PASSWORD}" if "not given" in str(error) or "protected" in str(error) else f"unset {PASSWORD}"
        raise UsageError(f"the private key cannot be read: {error}", where=str(path), todo=todo) from error
    except Exception as error:
        # One wrong password in 256 decrypts to something that only its content shows to be no key.
        is_encrypted = b"ENCRYPTED" in data or b"OPENSSH" in data[:64]
        if password and (is_encrypted or "password" in str(error).lower()):
            raise UsageError(f"{PASSWORD} is not the password of this key", where=str(path)) from error
        raise UsageError(
            "this is not a readable private key",
            where=str(path),
            todo="make one: openssl genpkey -algorithm ed25519",
        ) from error


def read_public(path: Path) -> SSlibKey:
    """Read a public key. Raises UsageError."""
    _library()
    from cryptography.hazmat.primitives import serialization
    from securesystemslib.signer import SSlibKey

    data = _read(path)
    load = serialization.load_pem_public_key if b"-----BEGIN" in data else serialization.load_ssh_public_key
    try:
        return SSlibKey.from_crypto(load(data))
    except Exception as error:
        # openssl empties its output file before it reads the key: the two must not have the same name.
        is_private = b"PRIVATE KEY-----" in data
        key, public = (path.name, f"{path.stem}.pub") if is_private else ("PRIVATE", path.name)
        raise UsageError(
            f"this is {'a private key' if is_private else 'not a public key'}",
            where=str(path),
            todo=f"name the public key; to make it: openssl pkey -in {key} -pubout -out {public}",
        ) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"the key cannot be read: {error.strerror}", where=str(path)) from error


def _library() -> Any:
    try:
        from securesystemslib import dsse
    except ImportError as error:
        raise UsageError(
            "signatures need the package securesystemslib", todo="pip install 'onnx-surgery[sign]'"
        ) from error
    return dsse
