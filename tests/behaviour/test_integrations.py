"""What other tools read at the top of the repository: hooks of pre-commit, and the action for GitHub."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from ruamel.yaml import YAML
from support import ROOT

from surgery.model.graph import text

MODEL = "g (float[n] x) => (float[n] y) { i = Identity(x) y = Relu(i) }"
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "CI": "true",
}


def load(path: Path) -> Any:
    return YAML(typ="safe").load(path)


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env={**ENVIRONMENT, **environment}, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    Path("recipes/small.yaml").write_text("recipe: small\nsteps: [drop-identity]\n")
    onnx.save(text.parse(MODEL), "m.onnx")
    return tmp_path


def test_the_hooks_of_pre_commit(folder: Path) -> None:
    pre_commit = shutil.which("pre-commit", path=ENVIRONMENT["PATH"])
    if pre_commit is None:
        pytest.skip("pre-commit is not installed")
    manifest = ROOT / ".pre-commit-hooks.yaml"
    assert run(pre_commit, "validate-manifest", str(manifest)).returncode == 0
    # As a user has them, but with the installation that is there instead of one from the network.
    hooks = [{**hook, "language": "system"} for hook in load(manifest)]
    YAML(typ="safe").dump({"repos": [{"repo": "local", "hooks": hooks}]}, Path(".pre-commit-config.yaml"))
    run("git", "init", "-q")
    run("git", "add", ".")
    home = {"PRE_COMMIT_HOME": str(folder / "home")}
    ran = run(pre_commit, "run", "--all-files", **home)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("Passed") == 2 == len(hooks)
    Path("recipes/small.yaml").write_text("recipe: small\nsteps: [drop-identty]\n")
    Path("m.onnx").write_bytes(b"no model")
    ran = run(pre_commit, "run", "--all-files", **home)
    assert ran.returncode == 1 and ran.stdout.count("Failed") == 2
    assert "recipes/small.yaml:2:9: no pass 'drop-identty'; did you mean 'drop-identity'?" in ran.stdout


def test_the_steps_of_the_action(folder: Path) -> None:
    action = load(ROOT / "action.yml")
    install, apply = (step for step in action["runs"]["steps"] if "run" in step)
    assert install["run"] == 'python -m pip install --quiet "$ACTION_PATH[cpu]"'
    assert all(step["shell"] == "bash" for step in (install, apply))
    # An input in the text of a script would be run; each of them comes by the environment.
    assert "${{" not in install["run"] + apply["run"]
    assert {value.strip("${} ").removeprefix("inputs.") for value in apply["env"].values()} <= set(action["inputs"])

    def act(**inputs: str) -> subprocess.CompletedProcess[str]:
        given = {name: str(one.get("default", "")) for name, one in action["inputs"].items()} | inputs
        values = {name: given[value.strip("${} ").removeprefix("inputs.")] for name, value in apply["env"].items()}
        return run("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", apply["run"], **values)

    ran = act(recipe="recipes/small.yaml", model="m.onnx", output="a b.onnx")
    assert ran.returncode == 0 and "::notice title=surgery apply" in ran.stdout, ran.stderr
    assert [node.op_type for node in onnx.load("a b.onnx").graph.node] == ["Relu"]
    assert act(recipe="recipes/small.yaml", model="m.onnx", output="a b.onnx").returncode == 2
    assert act(recipe="recipes/small.yaml", model="m.onnx", arguments="--target ort-cpu --strict").returncode == 0
    assert act(recipe="recipes/small.yaml", model="$(touch injected); m.onnx").returncode == 2
    assert not Path("injected").exists()
