"""Models of a batch that are objects at URLs, as they are listed."""

from __future__ import annotations

import pytest

from surgery.base.errors import UsageError
from surgery.engine.batching.model_entry import Entry
from surgery.engine.batching.model_selection import ModelSelection, _base, _objects
from surgery.model.remote import listing
from surgery.model.remote.listing import RemoteObject


def found(source: str, *urls: str, monkeypatch: pytest.MonkeyPatch, **choice: tuple[str, ...]) -> list[Entry]:
    listed = [RemoteObject(url, 1, f"version of {url}") for url in urls]
    monkeypatch.setattr(listing, "list_files", lambda url: listed)
    return _objects(source, ModelSelection("default", None, **choice))


@pytest.mark.parametrize(
    ("source", "urls", "names"),
    [
        ("s3://bucket/zoo", ["s3://bucket/zoo/a.onnx", "s3://bucket/zoo/deep/b.onnx"], ["a.onnx", "deep/b.onnx"]),
        ("s3://bucket/zoo/", ["s3://bucket/zoo/a.onnx"], ["a.onnx"]),
        ("s3://bucket/*/m.onnx", ["s3://bucket/a/m.onnx", "s3://bucket/b/m.onnx"], ["a/m.onnx", "b/m.onnx"]),
        ("s3://bucket/a.onnx", ["s3://bucket/a.onnx"], ["a.onnx"]),
        ("https://host/model?id=3", ["https://host/model?id=3"], ["model.onnx"]),
        ("https://host/m.onnx?key=secret", ["https://host/m.onnx?key=secret"], ["m.onnx"]),
        ("s3://bucket/zoo", ["s3://bucket/zoo/a.onnx", "s3://bucket/zoo/a.txt"], ["a.onnx"]),
        ("s3://bucket/zoo", ["s3://other/elsewhere/a.onnx"], ["a.onnx"]),
    ],
)
def test_names_are_relative_to_what_is_named(
    source: str, urls: list[str], names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = found(source, *urls, monkeypatch=monkeypatch)
    assert [entry.name for entry in entries] == names
    assert [entry.model for entry in entries] == urls[: len(names)]
    assert [entry.version for entry in entries] == [f"version of {url}" for url in urls[: len(names)]]
    assert {entry.recipe for entry in entries} == {"default"}


def test_objects_are_included_and_excluded_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    urls = ["s3://b/zoo/a.onnx", "s3://b/zoo/old/b.onnx"]
    entries = found("s3://b/zoo", *urls, monkeypatch=monkeypatch, exclude=("old/*",))
    assert [entry.name for entry in entries] == ["a.onnx"]
    entries = found("s3://b/zoo", *urls, monkeypatch=monkeypatch, include=("old/*",))
    assert [entry.name for entry in entries] == ["old/b.onnx"]
    with pytest.raises(UsageError, match=r"s3://b/zoo: there is no \.onnx file; name another folder"):
        found("s3://b/zoo", *urls, monkeypatch=monkeypatch, exclude=("*",))


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("s3://bucket/zoo/*/m.onnx", "s3://bucket/zoo"),
        ("s3://bucket/zoo/", "s3://bucket/zoo"),
        ("s3://bucket/**", "s3://bucket"),
        ("zip://models/[ab].onnx::s3://bucket/a.zip", "zip://models"),
    ],
)
def test_the_base_is_what_comes_before_wildcards(url: str, base: str) -> None:
    assert _base(url) == base
