"""The fork server of a command: a fork of its process that keeps its modules, and nothing else of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.breadth import sampled

SCRIPT = """
import json, os, signal, sys, threading
from pathlib import Path
from surgery.base import workers
from surgery.base.workers.client import forkserver

signal.signal(signal.SIGTERM, lambda *_: None)
held = open(__file__)
{before}
workers.allow_fork()
workers.start()
worker = workers.Worker(timeout=60)
facts = worker.call("surgery.base.workers.drill:facts")
server = Path(f"/proc/{{forkserver().pid}}")
status = dict(line.split(":", 1) for line in (server / "status").read_text().splitlines())
names = ["ORT_DISABLE_TELEMETRY", "OPENBLAS_NUM_THREADS"]
environment = worker.call("surgery.base.workers.drill:environment", names=names)
print(json.dumps({{
    "pids": [forkserver().pid, facts["pid"]],
    "forked": (server / "cmdline").read_bytes() == Path("/proc/self/cmdline").read_bytes(),
    "threads": int(status["Threads"]),
    "caught": int(status["SigCgt"], 16),
    "session": os.getsid(forkserver().pid) == forkserver().pid,
    "files": sorted(os.readlink(file) for file in (server / "fd").iterdir()),
    "facts": {{name: facts[name] for name in ("cwd", "files")}},
    "environment": environment,
    "blas": worker.call("surgery.base.workers.drill:threads_of_a_product"),
}}), flush=True)
{after}
"""


def script(folder: Path, before: str = "", after: str = "") -> subprocess.Popen[str]:
    path = folder / "script.py"
    path.write_text(SCRIPT.format(before=before, after=after))
    return subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True, cwd=folder)


def ran(folder: Path, before: str = "", after: str = "") -> dict[str, object]:
    process = script(folder, before, after)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return dict(json.loads(output))


def is_gone(pid: int) -> bool:
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not Path(f"/proc/{pid}").exists()


def test_it_keeps_the_modules_of_its_parent_and_none_of_its_state(tmp_path):
    found = ran(tmp_path)
    assert found["forked"] is True
    assert found["threads"] == 1
    assert found["session"] is True
    assert not found["caught"] & (1 << (signal.SIGTERM - 1)), "the handler of the parent"
    # The three standard streams and the control socket.
    assert [file.partition(":")[0] for file in found["files"]] == [*["/dev/null"] * 3, "socket"]
    assert found["facts"] == {"cwd": "/", "files": 5}
    assert found["environment"] == {"ORT_DISABLE_TELEMETRY": "1", "OPENBLAS_NUM_THREADS": "1"}
    assert found["blas"] == 1
    assert all(is_gone(pid) for pid in found["pids"])


def test_a_process_with_other_threads_starts_a_new_interpreter(tmp_path):
    thread = "threading.Thread(target=threading.Event().wait, daemon=True).start()"
    assert ran(tmp_path, before=thread)["forked"] is False


def test_a_server_that_ended_is_replaced_by_a_new_interpreter(tmp_path):
    after = """
first = forkserver().pid
os.kill(first, signal.SIGKILL)
os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
assert workers.Worker(timeout=60).call("surgery.base.workers.drill:echo", value=1) == 1
server = Path(f"/proc/{forkserver().pid}")
assert forkserver().pid != first
assert (server / "cmdline").read_bytes() != Path("/proc/self/cmdline").read_bytes()
"""
    ran(tmp_path, after=after)


def test_a_worker_does_not_fork_a_server_from_itself(tmp_path):
    after = """
assert workers.Worker(timeout=60).call("surgery.base.workers.drill:nested", memory=1 << 30) == ["called", "forked"]
"""
    ran(tmp_path, after=after)


@pytest.mark.parametrize("number", sampled([signal.SIGKILL, signal.SIGINT], 2))
def test_it_ends_with_its_parent(tmp_path, number):
    handled = "signal.signal(signal.SIGINT, signal.default_int_handler)"
    process = script(tmp_path, handled, 'worker.call("surgery.base.workers.drill:spin")')
    assert process.stdout is not None
    pids = json.loads(process.stdout.readline())["pids"]
    time.sleep(0.1)
    process.send_signal(number)
    process.wait(60)
    process.stdout.close()
    assert all(is_gone(pid) for pid in pids)


def test_the_command_line_forks_its_server(tmp_path):
    """The server of a command has the command line of the command, a new interpreter has one of its own."""
    watched = tmp_path / "sitecustomize.py"
    watched.write_text(
        "import os\n"
        "fork = os.fork\n"
        "def noted():\n"
        f"    open({str(tmp_path / 'forks')!r}, 'a').write('fork ')\n"
        "    return fork()\n"
        "os.fork = noted\n"
    )
    model = Path(__file__).parents[3] / "models" / "resnet-tiny.onnx"
    command = [sys.executable, "-m", "surgery", "apply", "tidy", str(model)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run(command, check=True, env=environment, capture_output=True, timeout=120)
    assert (tmp_path / "forks").read_text().startswith("fork ")
