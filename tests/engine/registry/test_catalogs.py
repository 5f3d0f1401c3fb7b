"""Catalogs: when all passes are imported, clashes of names, and plugin files that changed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from surgery.base.errors import UsageError, WorkerError
from surgery.base.promises import Parity
from surgery.base.workers import WorkerRaised
from surgery.engine.registry import discovery
from surgery.engine.registry.catalog import Catalog
from surgery.engine.registry.passes import Pass
from surgery.engine.registry.predicates import Predicate
from surgery.model.graph.graph import Graph


def one(graph: Graph) -> None: ...


def other(graph: Graph) -> None: ...


@pytest.mark.parametrize(
    ("installed", "others", "standard"),
    [(False, False, True), (True, False, False), (False, True, False), (True, True, False)],
)
def test_there_are_only_standard_passes_if_none_is_installed_or_declared(
    monkeypatch: pytest.MonkeyPatch, installed: bool, others: bool, standard: bool
) -> None:
    monkeypatch.setattr(discovery, "has_installed", lambda: installed)
    catalog = Catalog()
    if others:
        catalog.register(Pass("own", Parity.EXACT, "graph", one))
    assert catalog._has_only_standard() is standard


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A catalog in which nothing is discovered."""
    for name in ("import_standard", "import_standard_pass"):
        monkeypatch.setattr(discovery, name, lambda *_: None)
    monkeypatch.setattr(discovery, "import_installed", list)
    return Catalog()


def test_a_name_is_taken_once(catalog: Catalog) -> None:
    catalog.register(Pass("own", Parity.EXACT, "graph", one))
    catalog.register(Pass("own", Parity.CLOSE, "graph", one))  # the same place: it was declared again
    found = catalog.get("own")
    assert found is not None and found.promise({}) is Parity.CLOSE
    with pytest.raises(UsageError, match=r"two passes are called 'own': .*; rename one"):
        catalog.register(Pass("own", Parity.EXACT, "graph", other))
    assert catalog.clash("own") is None and catalog.warnings() == []


def test_a_clash_of_installed_passes_is_an_error_only_of_that_pass(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def installed() -> list[Any]:
        for function in (one, other):
            catalog.register(Pass("own", Parity.EXACT, "graph", function))
        catalog.register(Pass("fine", Parity.EXACT, "graph", one))
        return [discovery.Broken("acme", "acme 1.0", "no module 'acme'")]

    monkeypatch.setattr(discovery, "import_installed", installed)
    assert catalog.find("fine").name == "fine"
    with pytest.raises(UsageError, match=r"two passes are called 'own': .*; uninstall or rename one"):
        catalog.find("own")
    broken = "the passes 'acme' of acme 1.0 cannot be loaded: no module 'acme'"
    assert catalog.missing() == f"; {broken}"
    assert catalog.warnings() == [broken, catalog.clash("own")]
    with pytest.raises(UsageError, match=r"no pass 'fin'; did you mean 'fine'.; the passes 'acme' of acme 1.0"):
        catalog.find("fin")
    with pytest.raises(UsageError, match=r"no pass 'zzzzz'; the passes .*; see 'surgery passes'"):
        catalog.find("zzzzz")


def test_an_unknown_change_is_refused(catalog: Catalog) -> None:
    with pytest.raises(UsageError, match="pass 'own' declares an unknown change 'nmes'; did you mean 'names'"):
        catalog.register(Pass("own", Parity.EXACT, "graph", one, changes=frozenset({"nmes"})))  # type: ignore[arg-type]
    assert "own" not in catalog.passes()


def test_predicates_have_names_of_their_own(catalog: Catalog) -> None:
    catalog.register_predicate(Predicate("b", one))  # type: ignore[arg-type]
    catalog.register_predicate(Predicate("a", other))  # type: ignore[arg-type]
    again = Predicate("b", one)  # type: ignore[arg-type]
    catalog.register_predicate(again)
    assert list(catalog.predicates()) == ["a", "b"] and catalog.predicates()["b"] is again
    with pytest.raises(UsageError, match=r"two predicates are called 'b': .*; rename one"):
        catalog.register_predicate(Predicate("b", other))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "exists", "forgotten"),
    [("p.py", True, ["old"]), ("p.py", False, []), ("p", True, []), ("q.py", True, [])],
)
def test_earlier_contents_of_a_plugin_file_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, exists: bool, forgotten: list[str]
) -> None:
    path = tmp_path / name
    path.write_text("now = 1\n")
    modules = {
        "old": "surgery_plugin_p_0123",
        "now": discovery._module_name(path),
        "elsewhere": "surgery_plugin_p_4567",
    }
    for which, module in modules.items():
        made = ModuleType(module)
        made.__file__ = str(tmp_path / "sub" / "p.py" if which == "elsewhere" else tmp_path / "p.py")
        monkeypatch.setitem(sys.modules, module, made)
    if not exists:
        path.unlink()
    assert discovery.forget_others(str(path)) == [modules[which] for which in forgotten]
    assert {which for which, module in modules.items() if module not in sys.modules} == set(forgotten)


def test_an_import_that_fails_is_no_module_and_one_that_works_runs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery._TrialImport, "fate", lambda self, name: "")
    path = tmp_path / "p.py"
    with pytest.raises(UsageError, match="no plugin file"):
        discovery.import_plugin(str(path))
    path.write_text("1 / 0\n")
    with pytest.raises(UsageError, match="cannot be imported: ZeroDivisionError"):
        discovery.import_plugin(str(path))
    assert discovery._module_name(path) not in sys.modules
    path.write_text("import sys\nsys.runs = getattr(sys, 'runs', 0) + 1\n")
    monkeypatch.setattr(sys, "runs", 0, raising=False)
    monkeypatch.setitem(sys.modules, discovery._module_name(path), ModuleType("placeholder"))
    monkeypatch.delitem(sys.modules, discovery._module_name(path))
    for _ in "ab":
        discovery.import_plugin(str(path))
    assert vars(sys)["runs"] == 1
    monkeypatch.delitem(sys.modules, discovery._module_name(path))
    with pytest.raises(UsageError, match=r"no plugin module .no_such\.module.; install it, or name a .py file"):
        discovery.import_plugin("no_such.module")


def test_a_worker_says_that_the_import_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path.cwd())
    monkeypatch.setattr(sys, "path", [*sys.path])
    done: list[object] = []
    monkeypatch.setattr(discovery, "stage", done.append)
    monkeypatch.setattr(discovery, "_try", lambda name: done.append((name, sys.path[0], Path.cwd())))
    discovery.try_import("own", [str(tmp_path), *sys.path], str(tmp_path))
    assert done == ["its import", ("own", str(tmp_path), tmp_path)]


@pytest.mark.parametrize(
    ("error", "fate"),
    [
        (WorkerError("crashed", stage="its import"), "crashed"),
        (WorkerError("crashed", stage="start"), ""),
        (WorkerRaised("KeyError", "x", stage="its import"), ""),
        (None, ""),
    ],
)
def test_how_an_import_ended_its_process(monkeypatch: pytest.MonkeyPatch, error: Exception | None, fate: str) -> None:
    def call(*_: Any, **__: Any) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(discovery, "call_in_fork", call)
    with discovery._TrialImport() as trial:
        monkeypatch.setattr(trial._worker, "call", call)
        for threads in (1, 2):
            monkeypatch.setattr(discovery.threading, "active_count", lambda threads=threads: threads)
            assert trial.fate("own") == fate
        token = discovery.contained.set(False)
        assert trial.fate("own") == ""
        discovery.contained.reset(token)


@pytest.mark.parametrize(
    ("module", "origin"),
    [
        ("surgery.passes.idioms.x", "surgery"),
        ("acme.passes", "acme 2.0"),
        ("acme.passes.more", "acme 2.0"),
        ("acme.passes_of_others", "/x.py"),
        ("numpy.linalg", "numpy "),
    ],
)
def test_the_origin_of_a_module(monkeypatch: pytest.MonkeyPatch, module: str, origin: str) -> None:
    entry: Any = type("Entry", (), {"module": "acme.passes", "dist": type("D", (), {"name": "acme", "version": "2.0"})})
    monkeypatch.setattr(discovery, "_entries", lambda: [entry])
    assert discovery.origin(module, "/x.py").startswith(origin)
    assert discovery.has_installed()


def test_versions_of_distributions() -> None:
    assert discovery.version("no-such-thing") == "no-such-thing (not installed)"
    assert discovery.version("numpy").startswith("numpy ")
    assert (discovery.is_installed("numpy"), discovery.is_installed("no-such-thing")) == (True, False)
    assert discovery._title(None) == "an unknown distribution"
