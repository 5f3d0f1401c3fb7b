"""URLs as text."""

from pathlib import Path
from typing import Any

import pytest

from surgery.model.remote import listing, transfer, urls
from surgery.model.remote.urls import scrubbed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://b/m.onnx", True),
        ("zip://m.onnx::s3://b/a.zip", True),
        ("simplecache::s3://b/m.onnx", True),
        ("m.onnx", False),
        ("./s3://b/m.onnx", False),
        ("C://m.onnx", False),
        ("/a/b::c", False),
        ("default", False),
    ],
)
def test_urls_are_recognized(text: str, expected: bool) -> None:
    assert urls.is_url(text) is expected
    assert not urls.is_url(Path(text))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://user:secret@host:80/a/m.onnx?X-Amz-Signature=secret#secret", "https://host:80/a/m.onnx"),
        ("https://host?token=secret", "https://host"),
        ("ftp://user:sec@ret@host/m.onnx", "ftp://host/m.onnx"),
        ("s3://b/m#1.onnx", "s3://b/m#1.onnx"),
        ("zip://m.onnx::https://u:secret@h/a.zip?t=secret", "zip://m.onnx::https://h/a.zip"),
    ],
)
def test_credentials_are_not_shown(url: str, expected: str) -> None:
    assert urls.shown(url) == expected
    said = scrubbed(f"403, message='Forbidden',\n url='{url}'")
    assert "secret" not in said and "\n" not in said


@pytest.mark.parametrize(
    ("url", "location", "expected"),
    [
        ("s3://b/zoo/m.onnx", "w.bin", "s3://b/zoo/w.bin"),
        ("s3://b/m.onnx", "data/w.bin", "s3://b/data/w.bin"),
        ("https://h/zoo/m.onnx?token=1", "w 1.bin", "https://h/zoo/w%201.bin?token=1"),
        ("zip://zoo/m.onnx::s3://b/a.zip", "w.bin", "zip://zoo/w.bin::s3://b/a.zip"),
        ("zip://m.onnx::s3://b/a.zip", "w.bin", "zip://w.bin::s3://b/a.zip"),
    ],
)
def test_weights_are_next_to_the_model(url: str, location: str, expected: str) -> None:
    assert urls.sibling(url, location) == expected


def test_names_and_paths() -> None:
    assert urls.name_of("https://h/a%20b.onnx?download=true") == "a b.onnx"
    assert urls.name_of("zip://zoo/m.onnx::s3://b/a.zip") == "m.onnx"
    assert urls.joined("s3://b/zoo/", "x/m.onnx") == "s3://b/zoo/x/m.onnx"
    assert urls.local_path("file:///tmp/a%20b.onnx") == Path("/tmp/a b.onnx")
    assert urls.local_path("s3://b/m.onnx") is None


def test_a_url_names_an_object_a_folder_or_a_glob(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"model")
    names = ["zoo/a.onnx", "zoo/deep/b.onnx", "zoo/readme.txt"]
    transfer.put([(tmp_path / "m.onnx", f"memory://listed/{name}") for name in names])

    def found(url: str) -> list[str]:
        return [entry.url for entry in listing.list_files(url)]

    assert found("memory://listed/zoo/a.onnx") == ["memory://listed/zoo/a.onnx"]
    assert found("memory://listed/zoo") == ["memory://listed/zoo/a.onnx", "memory://listed/zoo/deep/b.onnx"]
    assert found("memory://listed/zoo/*.onnx") == ["memory://listed/zoo/a.onnx"]
    assert found("memory://listed/**/b.onnx") == ["memory://listed/zoo/deep/b.onnx"]
    assert found("memory://listed/*.nothing") == []
    entry = listing.list_files("memory://listed/zoo/a.onnx")[0]
    assert entry.bytes == 5 and entry.version == listing.version(entry.url)


class _Listed:
    """A file system with one file, under the name that fsspec's implementations give it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def invalidate_cache(self) -> None: ...

    def info(self, _: str) -> dict[str, Any]:
        return {"type": "directory"}

    def find(self, _: str, **__: Any) -> dict[str, Any]:
        return {self.name: {"size": 5, "type": "file"}}

    def _strip_protocol(self, name: str) -> str:
        return name


@pytest.mark.parametrize(
    ("url", "name", "expected"),
    [
        ("abfs://zoo@a.dfs.core.windows.net", "zoo/x/a.onnx", "abfs://zoo@a.dfs.core.windows.net/x/a.onnx"),
        ("abfs://zoo@a.dfs.core.windows.net/x", "zoo/x/a.onnx", "abfs://zoo@a.dfs.core.windows.net/x/a.onnx"),
        ("abfs://zoo/x", "zoo/x/a.onnx", "abfs://zoo/x/a.onnx"),
        ("sftp://me@host/models/zoo", "/models/zoo/a.onnx", "sftp://me@host/models/zoo/a.onnx"),
    ],
)
def test_listed_urls_keep_the_user_or_container(
    monkeypatch: pytest.MonkeyPatch, url: str, name: str, expected: str
) -> None:
    """adlfs lists the container, which stands before `@` in a URL with an account, as the first part of names."""
    monkeypatch.setattr(listing, "opened", lambda _: (_Listed(name), "any"))
    assert [entry.url for entry in listing.list_files(url)] == [expected]
