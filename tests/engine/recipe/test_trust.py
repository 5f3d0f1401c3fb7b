"""Local code that a recipe names: refused, trusted for one call, trusted permanently by the user's configuration."""

import hashlib
from pathlib import Path

import pytest

from surgery.base.errors import RecipeError, UsageError
from surgery.engine.recipe import load, trust
from surgery.interface import commands as cli

PLUGIN = """
from surgery import Graph, graph_pass


@graph_pass("{}")
def change(graph: Graph) -> None:
    "Change nothing."
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a recipe and its plugin, and a home without a configuration."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    name = f"trusted-{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:8]}"
    (folder / "mine.py").write_text(PLUGIN.format(name))
    (folder / "r.yaml").write_text(f"plugins: [./mine.py]\nsteps: [{name}]\n")
    return folder


def configure(text: str) -> Path:
    file = trust.config_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_refusal_names_the_file_and_the_remedy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["recipe", "check", "r.yaml"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"wants to run ./mine.py (sha256 {sha256(folder / 'mine.py')}, file {folder}/mine.py)" in line
    assert f"pass --trust, or add it to the list 'trust' in {folder.parent}/config/surgery/config.yaml" in line
    assert cli.main(["recipe", "check", "r.yaml", "--trust"]) == 0


@pytest.mark.parametrize("entry", ["{folder}/mine.py", "{folder}", "{folder}/..", "{{path: '{folder}/mine.py'}}"])
def test_a_file_or_a_folder_is_trusted(entry: str, folder: Path) -> None:
    configure(f"trust: [{entry.format(folder=folder)}]\n")
    assert load("r.yaml").steps


def test_a_tilde_stands_for_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    configure("trust: ~/work\n")
    assert load("r.yaml").steps


def test_a_trusted_hash_covers_only_that_content(folder: Path) -> None:
    file = configure(f"trust:\n  - path: {folder}/mine.py\n    sha256: {sha256(folder / 'mine.py').upper()}\n")
    assert load("r.yaml").steps
    (folder / "mine.py").write_text((folder / "mine.py").read_text() + "# more\n")
    with pytest.raises(UsageError, match=rf"which is not the file trusted at {file}:2:5; if you trust it, ") as caught:
        load("r.yaml")
    assert sha256(folder / "mine.py") in str(caught.value)


@pytest.mark.parametrize("entry", ["{folder}/r.yaml", "{folder}/mine.pyc", "{folder}/other", "/"])
def test_other_entries_do_not_grant_trust(entry: str, folder: Path) -> None:
    (folder / "mine.pyc").touch()
    (folder / "other").mkdir()
    configure(f"trust: [{entry.format(folder=folder)}]\n")
    if entry == "/":
        assert load("r.yaml").steps
        return
    with pytest.raises(UsageError, match="wants to run"):
        load("r.yaml")


def test_a_symlink_is_trusted_by_its_target(folder: Path) -> None:
    (folder / "safe").mkdir()
    (folder / "safe" / "link.py").symlink_to(folder / "mine.py")
    (folder / "r.yaml").write_text((folder / "r.yaml").read_text().replace("mine.py", "safe/link.py"))
    configure(f"trust: [{folder}/safe]\n")
    with pytest.raises(UsageError, match=rf"wants to run ./safe/link.py \(sha256 .*, file {folder}/mine.py\)"):
        load("r.yaml")


def test_generators_and_libraries_are_code_too(folder: Path) -> None:
    (folder / "inputs.py").touch()
    (folder / "ops.so").touch()
    text = "inputs: {generator: 'inputs.py:make'}\nverify: {custom_op_library: ops.so}\nsteps: [drop-identity]\n"
    (folder / "r.yaml").write_text(text)
    configure(f"trust: [{folder}/inputs.py]\n")
    with pytest.raises(UsageError, match=r"^r.yaml wants to load ops.so \(sha256 \w{64}, file .*/ops.so\); "):
        load("r.yaml")
    configure(f"trust: [{folder}/inputs.py, {folder}/ops.so]\n")
    assert load("r.yaml").verify.custom_op_library == (Path("ops.so"),)


def test_a_package_is_trusted_as_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "local_pack").mkdir()
    init = folder / "local_pack" / "__init__.py"
    init.write_text(PLUGIN.format(f"{(folder / 'r.yaml').read_text().split('[')[2].split(']')[0]}-pack"))
    monkeypatch.syspath_prepend(str(folder))
    (folder / "r.yaml").write_text("plugins: [local_pack]\nsteps: [drop-identity]\n")
    configure(f"trust: [{init}]\n")
    with pytest.raises(UsageError, match=rf"wants to run local_pack \(folder {folder}/local_pack\)"):
        load("r.yaml")
    configure(f"trust: [{folder}/local_pack]\n")
    assert load("r.yaml").plugins == ("local_pack",)


def test_an_empty_configuration_trusts_nothing(folder: Path) -> None:
    for text in ("", "# nothing\n", "trust:\n", "trust: []\n"):
        configure(text)
        with pytest.raises(UsageError, match="wants to run"):
            load("r.yaml")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("trust: [mine.py]", "1:9: 'trust' takes an absolute path or one that begins with ~/, not 'mine.py'"),
        ("trust: [~nobody-here/x]", "1:9: 'trust' takes an absolute path or one that begins with ~/, not '~nobody"),
        ("trust: [/no/such/file.py]", "1:9: no file or folder '/no/such/file.py'"),
        ("trust: [5]", "1:9: 'trust' takes the path of a file or folder, or {path: ..., sha256: ...}, not 5"),
        ("trust:\n  - {sha256: abc, path: /}", "2:14: 'sha256' takes the 64 hexadecimal digits that sha256sum prints"),
        (f"trust:\n  - {{path: /, sha256: {'0' * 64}}}", "2:5: '/' is a folder, but a sha256 needs a file"),
        (f"trust:\n  - sha256: {'0' * 64}", "2:5: an entry of 'trust' needs a 'path'"),
        ("trsut: [/]", "1:1: no key 'trsut'; did you mean 'trust'?"),
        ("- /", "1:1: 'the configuration' takes a mapping such as {trust: [~/passes]}, not a list"),
        ("trust: [/", "1:8: this '[' is never closed"),
    ],
)
def test_mistakes_in_the_configuration(text: str, mistake: str, folder: Path) -> None:
    file = configure(text)
    with pytest.raises(RecipeError) as caught:
        load("r.yaml")
    assert str(caught.value).splitlines()[0].startswith(f"{file}:{mistake}")
    assert caught.value.exit_code == 2 and caught.value.code == "config"


def test_a_recipe_without_local_code_needs_no_configuration(folder: Path) -> None:
    configure("trust: [")
    assert load("tidy").steps
    assert load("r.yaml", trust=True).steps
