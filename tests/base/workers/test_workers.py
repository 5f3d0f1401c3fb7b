"""Workers: data goes through unharmed, every way to die is named, nothing is left behind."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from support.breadth import sampled

from surgery.base import workers
from surgery.base.errors import WorkerError
from surgery.base.workers import Worker, WorkerRaised
from surgery.base.workers.ending import died

DRILL = "surgery.base.workers.drill:"


@pytest.fixture(scope="module")
def worker():
    with Worker(timeout=60) as one:
        yield one


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _gone(pid: int) -> bool:
    deadline = time.monotonic() + 60
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not _alive(pid)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::-1],
        np.array(3.5),
        np.zeros((0, 4), np.int8),
        np.array([True, False]),
        np.array([1 + 2j], np.complex64),
        np.array([[1.5, -2.0]], ml_dtypes.bfloat16),
        np.array([1.0, 448.0], ml_dtypes.float8_e4m3fn),
        np.array([-8, 7], ml_dtypes.int4),
        np.array([["a", "é"], ["", "\0"]], dtype=object),
        np.array([np.nan, -0.0, np.inf]),
    ],
    ids=lambda array: f"{array.dtype.name}{list(array.shape)}",
)
def test_an_array_round_trips(worker, array):
    back = worker.call(DRILL + "echo", value=array)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tolist() == array.tolist() or back.tobytes() == array.tobytes()


def test_plain_data_round_trips(worker):
    data = {"": [1, -(2**80), 1.5, None, True, "ü"], "$": {"$": b"\0\xff", "deep": [[], {}]}, 3: math.inf}
    assert worker.call(DRILL + "echo", value=data) == data


def test_many_buffers_of_all_sizes_round_trip(worker):
    sizes = [0, 1, 70_000, 3, 65_536, 65_535, 1, 0, 200_000, 5, 0]
    arrays = [np.arange(size, dtype=np.uint8) for size in sizes]
    back = worker.call(DRILL + "echo", value=arrays)
    assert [array.tobytes() for array in back] == [array.tobytes() for array in arrays]


def test_unsupported_values_are_refused_on_both_sides(worker):
    with pytest.raises(TypeError):
        worker.call(DRILL + "echo", value=object())
    with pytest.raises(WorkerRaised, match="cannot be sent"):
        worker.call("surgery.base.workers.messages:dtype_of", name="int8")


def test_only_functions_of_this_package_are_run(worker):
    with pytest.raises(WorkerRaised, match="os:abort"):
        worker.call("os:abort")


def test_an_exception_keeps_its_type_and_does_not_end_the_worker(worker):
    pid = worker.call(DRILL + "facts")["pid"]
    with pytest.raises(WorkerRaised) as caught:
        worker.call(DRILL + "complain", text="first line\nsecond line" + "x" * 1000)
    assert caught.value.type_name == "ValueError"
    assert caught.value.message.startswith("first line\nsecond")
    assert str(caught.value) == "complain failed: first line"
    assert worker.call(DRILL + "facts")["pid"] == pid


@pytest.mark.slow
def test_each_stage_has_its_time():
    # Together the steps take longer than one may take.
    with Worker(timeout=4) as one:
        one.call(DRILL + "steps", count=4, seconds=1.2)
        with pytest.raises(WorkerError, match=r"step 0 took more than 4 s"):
            one.call(DRILL + "steps", count=4, seconds=600)


def test_sys_exit_is_an_exception_like_any_other(worker):
    with pytest.raises(WorkerRaised) as caught:
        worker.call(DRILL + "leave", code=0)
    assert caught.value.type_name == "SystemExit"


@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        ("abort", {}, "SIGABRT"),
        ("segfault", {}, "SIGSEGV"),
        ("kill", {}, "out of memory"),
        ("allocate", {"size": 4 << 30}, "out of memory"),
        ("spin", {}, "timeout"),
    ],
)
def test_a_crash_is_reported_with_its_stage_and_signal(function, arguments, name):
    with Worker(timeout=60, memory=1 << 30) as one:
        if function == "spin":
            # Only what never ends is to meet its limit, and that not before it has told its stage: the process runs.
            one.call(DRILL + "echo", value=0)
            one.timeout = 1
        with pytest.raises(WorkerError) as caught:
            one.call(DRILL + function, **arguments)
        one.timeout = 60
        assert caught.value.stage == "drill"
        assert caught.value.signal == name
        assert "\n" not in str(caught.value)
        assert one.call(DRILL + "echo", value=7) == 7, "the next call starts another process"


def test_arguments_beyond_the_memory_limit_are_reported_as_such():
    with Worker(timeout=60, memory=1 << 30) as one:
        with pytest.raises(WorkerError, match="echo ran out of memory") as caught:
            one.call("surgery.base.workers.drill:echo", value=np.zeros(2 << 30, np.uint8))
        assert caught.value.signal == "out of memory"
        assert one.call("surgery.base.workers.drill:echo", value=1) == 1


@pytest.mark.parametrize(
    "last",
    [
        "std::bad_alloc",
        "libx.so: failed to map segment from shared object",
        "libgcc_s.so.1 must be installed for unwinding to work",
    ],
)
def test_an_allocation_failure_is_recognized_by_the_last_message(last):
    assert died("drill", -signal.SIGABRT, last, None).signal == "out of memory"
    assert died("drill", -signal.SIGABRT, "something else", None).signal == "SIGABRT"


def test_the_last_native_message_is_reported():
    with Worker() as one, pytest.raises(WorkerError, match="SIGABRT: something native went wrong"):
        one.call(DRILL + "abort")


def test_a_silent_exit_is_reported_with_its_code():
    with Worker() as one, pytest.raises(WorkerError, match="exit code 3"):
        one.call(DRILL + "vanish", code=3)


def test_a_worker_has_the_root_folder_and_no_inherited_files(worker):
    facts = worker.call(DRILL + "facts")
    assert facts["cwd"] == "/"
    assert facts["stdin"] == b""
    # The three standard ones, its socket, and the folder being listed.
    assert facts["files"] == 5


def test_the_server_has_one_thread_and_no_telemetry():
    from surgery.base.workers.client import forkserver

    with Worker() as one:
        one.call(DRILL + "echo", value=0)
    server = Path(f"/proc/{forkserver().pid}")
    assert len(list((server / "task").iterdir())) == 1, "a fork of a threaded process may hang"
    assert b"ORT_DISABLE_TELEMETRY=1" in (server / "environ").read_bytes()


def test_child_processes_of_a_worker_end_with_it():
    with Worker() as one:
        pid = one.call(DRILL + "spawn")
        assert _alive(pid)
    assert _gone(pid)


def test_a_timeout_ends_child_processes_of_the_worker():
    with Worker(timeout=60) as one:
        pid = one.call(DRILL + "spawn")
        one.timeout = 1
        with pytest.raises(WorkerError, match="took more than 1 s"):
            one.call(DRILL + "spin")
        assert _gone(pid)


def test_workers_serve_threads_side_by_side():
    with Worker() as first:
        first.call(DRILL + "echo", value=0)
    begin = time.monotonic()
    results: list[object] = []

    def work(number: int) -> None:
        with Worker() as one:
            one.call(DRILL + "sleep", seconds=2)
            results.append(one.call(DRILL + "echo", value=number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == list(range(6))
    assert time.monotonic() - begin < 12, "one after the other they take more than twelve seconds"


def test_the_server_is_restarted_after_its_end():
    from surgery.base.workers.client import forkserver

    first = forkserver().pid
    os.kill(first, signal.SIGKILL)
    assert _gone(first)
    with Worker() as one:
        assert one.call(DRILL + "echo", value=1) == 1
    assert forkserver().pid != first


def test_workers_die_with_the_server():
    from surgery.base.workers.client import forkserver

    with Worker() as one:
        one.call(DRILL + "echo", value=0)
        pid = one.pid
        os.kill(forkserver().pid, signal.SIGKILL)
        assert _gone(pid)
        assert one.call(DRILL + "echo", value=1) == 1, "nothing was running, so nothing is to blame"


SCRIPT = """
    import signal
    # A shell starts what runs in the background with SIGINT ignored, tests too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from surgery.base.workers import Worker
    from surgery.base.workers.client import forkserver
    worker = Worker()
    pid = worker.call("surgery.base.workers.drill:facts")["pid"]
    print(pid, forkserver().pid, worker.call("surgery.base.workers.drill:spawn"), flush=True)
    {last}
"""


def _script(folder: Path, last: str) -> subprocess.Popen[str]:
    """Start a script without a `__main__` guard, from a folder with a module that nobody should find."""
    path = folder / "script.py"
    path.write_text(textwrap.dedent(SCRIPT).format(last=last))
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "onnx.py").write_text("raise SystemExit('the wrong onnx')")
    return subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True, cwd=elsewhere)


@pytest.mark.parametrize("number", sampled([signal.SIGKILL, signal.SIGINT], 2))
def test_no_process_is_left_when_the_parent_is_killed_in_a_call(tmp_path, number):
    process = _script(tmp_path, 'worker.call("surgery.base.workers.drill:spin")')
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    assert len(pids) == 3
    time.sleep(0.1)
    process.send_signal(number)
    process.wait(60)
    process.stdout.close()
    assert all(_gone(pid) for pid in pids), [pid for pid in pids if _alive(pid)]


@pytest.mark.parametrize("last", sampled(["raise SystemExit(1)", "import os; os._exit(0)"], 2))
def test_no_process_is_left_when_the_parent_ends(tmp_path, last):
    process = _script(tmp_path, last)
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.read().split()]
    process.wait(60)
    process.stdout.close()
    assert len(pids) == 3
    assert all(_gone(pid) for pid in pids)


def test_a_forked_process_gets_a_server_of_its_own(worker):
    from surgery.base.workers.client import forkserver

    worker.call(DRILL + "echo", value=0)
    ours = forkserver().pid
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with Worker() as one:
                code = 0 if one.call(DRILL + "echo", value=5) == 5 and forkserver().pid != ours else 2
            workers.shutdown()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert worker.call(DRILL + "echo", value=6) == 6


def test_shutdown_ends_all_workers(worker):
    with Worker() as one:
        one.call(DRILL + "echo", value=0)
        pid = one.pid
        workers.shutdown()
        assert _gone(pid)


def test_a_call_ends_when_another_thread_kills_the_worker(worker):
    worker.call(DRILL + "echo", value=0)
    killer = threading.Timer(0.5, worker.kill)
    killer.start()
    with pytest.raises(WorkerError):
        worker.call(DRILL + "spin")
    killer.join()
    assert worker.call(DRILL + "echo", value=1) == 1


def test_a_worker_starts_others_within_its_own_limit() -> None:
    """No process may raise the limit that it was started with."""
    with Worker(timeout=60, memory=1 << 30) as outer:
        assert outer.call(DRILL + "nested", memory=2 << 30) == ["called", "forked"]


def test_a_time_limit_covers_the_whole_call() -> None:
    heard: list[str] = []
    with Worker(timeout=1.0, whole=True, on_stage=heard.append) as one:
        assert one.call(DRILL + "steps", count=2, seconds=0.01) is None
        assert heard == ["step 0", "step 1"]
        with pytest.raises(WorkerError, match=r"step \d+ took more than 1 s"):
            one.call(DRILL + "steps", count=1000, seconds=0.1)


@pytest.mark.parametrize(
    ("status", "killed"), [(None, True), (-signal.SIGKILL, True), (-signal.SIGABRT, False), (3, False)]
)
def test_a_worker_killed_by_another_process(status: int | None, killed: bool) -> None:
    assert died("check", status, "out of memory", 1.0).killed == killed


@pytest.mark.parametrize(("size", "notes"), [(1 << 10, []), (64 << 20, ["released"])])
def test_free_memory_is_released_before_a_large_answer_is_sent(size: int, notes: list[str]) -> None:
    found: list[object] = []
    with Worker(on_note=found.append) as worker:
        answer = worker.call("surgery.base.workers.drill:grow", size=size)
    assert len(answer) == size
    assert found == notes
