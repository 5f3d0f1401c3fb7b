"""Installed packages with passes: found by themselves, and never in anybody's way."""

import json
import os
import shlex
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
from support import ROOT

from surgery.base.errors import UsageError
from surgery.engine.registry.catalog import catalog

pytestmark = pytest.mark.slow

PASS = """
from typing import Literal

from surgery import Graph, Parity, graph_pass


@graph_pass("{name}", parity=Parity.EXACT)
def change(graph: Graph, *, mode: Literal["fast", "slow"] = "fast") -> None:
    \"\"\"Do what {name} does.

    Options:
        mode: how it is done.

    Example:
        g (float[n] x) => (float[n] y) {{
            y = Neg(x)
        }}
    \"\"\"
"""


def write_wheel(folder: Path, project: str, version: str, source: str) -> Path:
    """Write a wheel with one module and an entry point to it."""
    module = project.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    files = {
        f"{module}/__init__.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[surgery.passes]\n{project} = {module}\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def unpack(site: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)


def python(site: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=site, check=False)


class Answer(NamedTuple):
    """What one command came to."""

    code: int
    out: str
    err: str


# Several commands in one process: most of the time of each goes into its imports.
DRIVER = """
import contextlib, io, json, sys
from surgery.interface import commands as cli
answers = []
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = cli.main(command)
    answers.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(answers))
"""


def surgery(site: Path, *commands: str) -> list[Answer]:
    done = python(site, "-c", DRIVER, json.dumps([shlex.split(command) for command in commands]))
    assert done.returncode == 0, done.stderr
    return [Answer(*answer) for answer in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder on the path of Python, into which pip has installed a wheel with a pass."""
    folder = tmp_path_factory.mktemp("installed")
    wheel = write_wheel(folder, "acme-passes", "1.2", PASS.format(name="acme-change"))
    site = folder / "site"
    pip = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run([sys.executable, *pip], check=True, capture_output=True)
    return site


def test_passes_of_an_installed_wheel_work_in_all_commands(site: Path) -> None:
    (site / "r.yaml").write_text("steps: [acme-change: {mode: slow}]\n")
    (site / "wrong.yaml").write_text("steps: [acme-change: {mode: sloow}]\n")
    listed, text, schema, shown, checked, applied = surgery(
        site,
        "passes --format json",
        "passes acme",
        "schema",
        "recipe show r.yaml",
        "recipe check wrong.yaml",
        f"apply r.yaml {ROOT}/models/mobilenet-tiny.onnx",
    )
    (found,) = [one for one in json.loads(listed.out)["passes"] if one["name"] == "acme-change"]
    assert found["origin"] == found["theme"] == "acme-passes 1.2"
    assert "acme-passes 1.2" in text.out and "Do what acme-change does." in text.out
    definitions = json.loads(schema.out)["$defs"]
    assert definitions["pass:acme-change"]["properties"]["mode"] == {
        "description": "how it is done.",
        "enum": ["fast", "slow"],
        "type": "string",
        "default": "fast",
    }
    assert "acme-change" in definitions["pass-alone"]["enum"]
    assert "  - acme-change: {mode: slow}  # acme-passes 1.2\n" in shown.out
    assert checked.code == 2 and "wrong.yaml:1:23: option 'mode' of 'acme-change' takes fast | slow" in checked.err
    # Somebody has installed it, so that nobody is asked for trust.
    assert applied.code == 0 and "unchanged" in applied.out


def test_a_wheel_shows_up_in_the_reference(site: Path) -> None:
    code = """
        from surgery.interface.docsgen import reference
        from surgery.engine.registry.catalog import catalog
        written = reference.pages(one for one in catalog.passes().values() if not one.is_standard)
        print(written["reference/passes/plugins.md"], written["reference/passes/README.md"])
    """
    found = python(site, "-c", textwrap.dedent(code))
    assert "## acme-change\n\nParity: exact; from acme-passes 1.2.\n" in found.stdout, found.stderr
    assert "| `mode` | fast \\| slow | `fast` | how it is done. |" in found.stdout
    assert "[`acme-change`](plugins.md#acme-change)" in found.stdout


@pytest.mark.parametrize("source", ["import no_such_module_anywhere", "raise SystemExit(3)", "def"])
def test_a_broken_package_is_a_warning(source: str, tmp_path: Path) -> None:
    unpack(tmp_path, write_wheel(tmp_path, "broken-passes", "0.3", source))
    unpack(tmp_path, write_wheel(tmp_path, "good-passes", "4", PASS.format(name="good-change")))
    (tmp_path / "r.yaml").write_text("steps: [broken-change]\n")
    good, *asked = surgery(tmp_path, "passes good-change --format json", "passes broken-change", "recipe check r.yaml")
    assert good.code == 0 and json.loads(good.out)["origin"] == "good-passes 4"
    problem = "the passes 'broken-passes' of broken-passes 0.3 cannot be loaded: "
    (line,) = good.err.splitlines()
    assert line.startswith(f"surgery: warning: {problem}")
    for answer in asked:
        assert answer.code == 2 and problem in answer.err.splitlines()[0]


def test_two_packages_with_a_pass_of_the_same_name(tmp_path: Path) -> None:
    for project in ("one-passes", "two-passes"):
        unpack(tmp_path, write_wheel(tmp_path, project, "1.0", PASS.format(name="same-change")))
    clash = (
        f"two passes are called 'same-change': {tmp_path}/one_passes/__init__.py:7 of one-passes 1.0 and "
        f"{tmp_path}/two_passes/__init__.py:7 of two-passes 1.0"
    )
    (tmp_path / "r.yaml").write_text("steps: [drop-identity, same-change]\n")
    fine, asked, checked = surgery(tmp_path, "passes drop-identity", "passes same-change", "recipe check r.yaml")
    assert fine.code == 0 and fine.err == f"surgery: warning: {clash}\n"
    assert asked.code == 2 and f"surgery: {clash}; uninstall or rename one\n" in asked.err
    assert checked.code == 2 and f"r.yaml:1:24: {clash}\n" in checked.err


def test_a_package_with_the_name_of_a_standard_pass(tmp_path: Path) -> None:
    unpack(tmp_path, write_wheel(tmp_path, "rude-passes", "1.0", PASS.format(name="drop-identity")))
    asked, other = surgery(tmp_path, "passes drop-identity", "passes drop-dropout")
    assert asked.code == 2 and other.code == 0
    assert "two passes are called 'drop-identity': " in asked.err
    assert "drop_identity.py:" in asked.err and " of surgery and " in asked.err and "of rude-passes 1.0" in asked.err


def test_plugins_that_are_named(tmp_path: Path) -> None:
    (tmp_path / "rude.py").write_text(PASS.format(name="drop-identity"))
    (tmp_path / "lacking.py").write_text("import no_such_module_anywhere\n")
    (tmp_path / "mine.py").write_text(PASS.format(name="my-change"))
    rude, lacking, nowhere, mine = surgery(
        tmp_path,
        "passes --plugin rude.py",
        "passes --plugin lacking",
        "passes --plugin nowhere_at_all",
        "passes my-change --plugin mine.py --format json",
    )
    assert rude.code == lacking.code == nowhere.code == 2
    assert rude.err.count("\n") == 1 and f" and {tmp_path}/rude.py:7; rename one" in rude.err
    assert lacking.err.startswith("surgery: plugin 'lacking' cannot be imported: ModuleNotFoundError: ")
    assert nowhere.err.startswith("surgery: no plugin module 'nowhere_at_all'; ")
    assert json.loads(mine.out)["origin"] == str(tmp_path / "mine.py")


def test_an_edited_plugin_is_loaded_again(tmp_path: Path) -> None:
    plugin = tmp_path / "edited.py"
    one = """from surgery import Graph, graph_pass

@graph_pass("edited-pass")
def edited(graph: Graph) -> None:
    "First."
"""
    other = f"{one.replace('First', 'Second').replace('def', '# A line more.' + chr(10) + 'def')}"
    more = f"{other}\n\n@graph_pass('further-pass')\ndef further(graph: Graph) -> None:\n    'More.'\n"
    for source, doc in ((one, "First."), (other, "Second."), (more, "Second."), (one, "First.")):
        plugin.write_text(source)
        catalog.load_plugin(str(plugin))
        assert catalog.find("edited-pass").function.__doc__ == doc
        assert (catalog.get("further-pass") is not None) == (source == more)
    plugin.write_text(f"{one}\n\n@graph_pass('edited-pass')\ndef again(graph: Graph) -> None:\n    'Twice.'\n")
    with pytest.raises(UsageError, match="two passes are called 'edited-pass'"):
        catalog.load_plugin(str(plugin))


def test_only_the_standard_passes_that_are_named_are_imported(tmp_path: Path) -> None:
    ran = python(
        tmp_path,
        "-c",
        """
import sys
from surgery import Graph, graph_pass
from surgery.engine.registry.catalog import catalog
from surgery.base.errors import UsageError

assert catalog.find("fuse-relu").module in sys.modules
assert "surgery.passes.opset.decompose" not in sys.modules
try:
    @graph_pass("drop-dead")
    def mine(graph: Graph) -> None:
        pass
except UsageError as error:
    print(error)
assert "surgery.passes.opset.decompose" in sys.modules
assert catalog.find("drop-dead").is_standard
""",
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    assert ran.stdout.startswith("two passes are called 'drop-dead'")


def test_a_standard_pass_in_a_file_of_another_name_is_found(tmp_path: Path) -> None:
    code = "from surgery.engine.registry.catalog import catalog; "
    code += "print(catalog.find('bypass').module, catalog.get('bypas'))"
    ran = python(tmp_path, "-c", code)
    assert ran.stdout == "surgery.passes.edit.remove_nodes None\n"


def test_a_pass_declared_beforehand_with_the_name_of_a_standard_one(tmp_path: Path) -> None:
    ran = python(
        tmp_path,
        "-c",
        """
from surgery import Graph, graph_pass
from surgery.engine.registry.catalog import catalog

@graph_pass("drop-dead")
def mine(graph: Graph) -> None:
    pass

catalog.find("fuse-relu")
catalog.find("drop-dead")
""",
    )
    assert "two passes are called 'drop-dead'" in ran.stderr
