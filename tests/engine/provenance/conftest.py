"""Keys for signatures."""

import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs of keys as a user makes them."""
    folder = tmp_path_factory.mktemp("keys")
    kinds = {"mine": ["ed25519"], "theirs": ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"]}
    for name, kind in kinds.items():
        private, public = folder / f"{name}.pem", folder / f"{name}.pub"
        subprocess.run(["openssl", "genpkey", "-algorithm", *kind, "-out", private], check=True, capture_output=True)
        subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    return folder
