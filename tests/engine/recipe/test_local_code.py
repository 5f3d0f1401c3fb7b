"""Code that a recipe names: which of it is local, and how it is described; nothing is imported."""

from __future__ import annotations

import hashlib
import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from surgery.base.errors import UsageError
from surgery.engine.recipe import plugins, trust
from surgery.engine.recipe.draft import Draft, PluginUse, TakesError
from surgery.engine.recipe.plugins import import_plugins, local_code, read_local, read_plugin, refusals, wants, wishes
from surgery.engine.recipe.trust import Trusted, changed, trusted
from surgery.engine.yaml.yaml_nodes import Scalar, Table

NODE = Scalar(3, 5, "", "")


def use(target: str, verb: str = "run") -> PluginUse:
    return PluginUse("r.yaml", target, target, NODE, verb)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    return tmp_path


@pytest.mark.parametrize(
    ("target", "verb", "place"),
    [
        ("folder/a.py", "run", "folder/a.py"),
        ("folder/lib.so", "load", "folder/lib.so"),
        ("folder/lib.so", "run", None),
        ("missing", "run", None),
        ("failing", "run", None),
        ("wrong", "run", None),
        ("inside", "run", "inside.py"),
        ("inside.deeper", "run", "inside.py"),
        ("outside", "run", None),
        ("deeper", "run", None),
        ("package", "run", "package"),
        ("spaces", "run", "spaces"),
        ("builtin", "run", None),
    ],
)
def test_code_that_is_not_installed(
    here: Path, monkeypatch: pytest.MonkeyPatch, target: str, verb: str, place: str | None
) -> None:
    def spec(origin: str | None, *folders: str, located: bool = True) -> ModuleSpec:
        made = ModuleSpec("m", None, origin=origin and str(here / origin), is_package=bool(folders))
        made.submodule_search_locations = [str(here / one) for one in folders] or None
        made.has_location = located
        return made

    found = {
        "inside": spec("inside.py"),
        "outside": spec("../outside.py"),
        "deeper": spec("folder/deeper.py"),
        "package": spec("package/__init__.py", "package"),
        "spaces": spec(None, "elsewhere/spaces", "spaces"),
        "builtin": spec("builtin", located=False),
    }

    def find(name: str) -> Any:
        if name in ("failing", "wrong"):
            raise {"failing": ImportError, "wrong": ValueError}[name]
        return found.get(name)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    code = local_code(use(target, verb))
    assert code == (None if place is None else Path(place) if "/" in place else here / place)
    assert [one.target for one in refusals([use(target, verb)])] == ([] if place is None else [target])


def test_only_local_code_that_is_not_trusted_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.py", "b.py"):
        (here / name).write_text(name)
    monkeypatch.setattr(trust, "entries", lambda: (Trusted(here / "a.py", None, "c:1:1"),))
    uses = [use(str(here / name)) for name in ("a.py", "b.py")]
    assert refusals(uses) == uses[1:]
    # Without local code, the configuration is not read.
    monkeypatch.setattr(trust, "entries", lambda: pytest.fail("read"))
    assert refusals([use("json"), use("no_such_module_at_all")]) == []


def test_code_in_words(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "a.py").write_text("1")
    digest = hashlib.sha256(b"1").hexdigest()
    path = str(here / "a.py")
    assert wants(use(path)) == f"wants to run {path} (sha256 {digest}, file {path})"
    assert wants(use("json")) == "wants to run json"
    (here / "p.py").mkdir()
    folder = str(here / "p.py")
    assert wants(use(folder, "load")) == f"wants to load {folder} (folder {folder})"
    monkeypatch.setattr(trust, "entries", lambda: (Trusted(here / "a.py", "0" * 64, "c.yaml:2:3"),))
    assert wants(use(path)).endswith(f"file {path}), which is not the file trusted at c.yaml:2:3")
    assert wishes([use("json"), use("json.x")]) == "r.yaml wants to run json, r.yaml wants to run json.x"
    refused = plugins.refusal(use("json"))
    assert (refused.path, refused.line, refused.column) == ("r.yaml", 3, 5)
    assert refused.message == f"the recipe wants to run json; {plugins.how_to_trust()}"
    assert len(plugins.problem(use("json"), "x" * 2000).message) == plugins.LONGEST + 1


def test_contents_that_are_trusted(here: Path) -> None:
    (here / "a.py").write_text("1")
    digest, other = hashlib.sha256(b"1").hexdigest(), "0" * 64
    file, folder = here / "a.py", here
    for entries, trusts, changes in (
        ((), False, False),
        ((Trusted(file, None, ""),), True, False),
        ((Trusted(folder, None, ""),), True, False),
        ((Trusted(here / "b.py", None, ""),), False, False),
        ((Trusted(file, digest, ""),), True, False),
        ((Trusted(file, other, ""),), False, True),
        ((Trusted(file, other, ""), Trusted(folder, None, "")), True, False),
        ((Trusted(file, other, ""), Trusted(file, digest, "")), True, False),
    ):
        assert trusted(file, entries) is trusts and (changed(file, entries) is not None) is changes
    assert trust.digest(here) is None is trust.digest(here / "none") and trust.digest(file) == digest


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("a.py", "{here}/a.py"),
        ("sub/b.py", "{here}/sub/b.py"),
        ("json", "json"),
        ("json.tool", "json.tool"),
        ("_x1.y_2", "_x1.y_2"),
    ],
)
def test_plugins_are_files_or_modules(here: Path, text: str, target: str) -> None:
    (here / "sub").mkdir()
    for name in ("a.py", "sub/b.py"):
        (here / name).write_text("")
    draft = Draft("r.yaml", here)
    assert read_plugin(Scalar(1, 1, text, text), draft) == target.format(here=here)
    assert [(one.text, one.target, one.verb) for one in draft.plugins] == [(text, target.format(here=here), "run")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("none.py", "no plugin file 'none.py'"),
        ("folder.py", "no plugin file 'folder.py'"),
        ("a-b", "a plugin is an installed module or a .py file, not 'a-b'"),
        ("1a", "a plugin is an installed module or a .py file, not '1a'"),
        ("a.", "a plugin is an installed module or a .py file, not 'a.'"),
        ("sub/a", "a plugin is an installed module or a .py file, not 'sub/a'"),
    ],
)
def test_what_is_no_plugin(here: Path, text: str, message: str) -> None:
    (here / "folder.py").mkdir()
    draft = Draft("r.yaml", here)
    with pytest.raises(ValueError, match=message):
        read_plugin(Scalar(1, 1, text, text), draft)
    assert draft.plugins == []


def test_a_plugin_is_a_text(here: Path) -> None:
    for node in (Table(1, 1), Scalar(1, 1, 5, "5"), Scalar(1, 1, " ", " ")):
        with pytest.raises(TakesError):
            read_plugin(node, Draft("r.yaml", here))


def test_other_local_code_is_a_file(here: Path) -> None:
    (here / "lib.so").write_text("")
    draft = Draft("r.yaml", here)
    assert read_local(NODE, draft, "lib.so", "load") == here / "lib.so"
    assert [(one.text, one.target, one.verb, one.at) for one in draft.local] == [
        ("lib.so", str(here / "lib.so"), "load", NODE)
    ]
    with pytest.raises(ValueError, match=r"no file 'none\.so' in the recipe's folder"):
        read_local(NODE, draft, "none.so", "load")
    assert len(draft.local) == 1 and draft.runs_code


def test_plugins_that_cannot_be_imported_are_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def load(target: str) -> None:
        asked.append(target)
        if target == "bad":
            raise UsageError("it raised\nsomething")

    monkeypatch.setattr(plugins.catalog, "load_plugin", load)
    found = import_plugins([use("good"), use("bad"), use("last")])
    assert asked == ["good", "bad", "last"] and [str(one) for one in found] == ["r.yaml:3:5: it raised something"]
