"""Passes are imported on first use, also when several threads use them first at the same time."""

import threading
from dataclasses import replace

import pytest

from surgery import Graph
from surgery.base.errors import UsageError
from surgery.engine.registry import discovery
from surgery.engine.registry.catalog import Catalog, catalog


def test_a_thread_waits_for_the_passes_that_another_one_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    known = dict(catalog.passes())
    fresh, is_importing, may_go_on = Catalog(), threading.Event(), threading.Event()

    def slowly() -> None:
        is_importing.set()
        assert may_go_on.wait(10)
        fresh._passes.update(known)

    monkeypatch.setattr(discovery, "import_standard", slowly)
    monkeypatch.setattr(discovery, "import_installed", list)
    monkeypatch.setattr(discovery, "import_standard_pass", lambda name: None)
    found: list[str] = []
    first = threading.Thread(target=fresh.passes)
    second = threading.Thread(target=lambda: found.append(fresh.find("drop-identity").name))
    first.start()
    assert is_importing.wait(10)
    second.start()
    second.join(0.2)
    assert second.is_alive() and found == []
    may_go_on.set()
    first.join(10)
    second.join(10)
    assert found == ["drop-identity"]


def test_a_pass_that_looks_for_passes_while_it_is_imported_does_not_wait_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fresh = Catalog()
    seen: list[object] = []
    monkeypatch.setattr(discovery, "import_standard", lambda: seen.extend((fresh.get("none"), fresh.passes())))
    monkeypatch.setattr(discovery, "import_installed", list)
    monkeypatch.setattr(discovery, "import_standard_pass", lambda name: None)
    fresh.passes()
    assert seen == [None, {}]


def test_a_pass_of_the_user_has_no_name_of_one_that_was_not_imported_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    known, fresh = dict(catalog.passes()), Catalog()
    monkeypatch.setattr(fresh, "_is_standard", True)
    monkeypatch.setattr(fresh, "_discover", lambda: fresh._passes.update(known))

    def drop_identity(graph: Graph) -> None:
        """Do nothing."""

    with pytest.raises(UsageError, match="two passes are called 'drop-identity'"):
        fresh.register(replace(known["drop-identity"], function=drop_identity))
