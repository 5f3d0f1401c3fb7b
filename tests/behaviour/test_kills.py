"""Processes that are ended at any moment: nothing half-written, and nothing left after the next run.

    PYTHONPATH=tests python tests/behaviour/test_kills.py 200

ends 200 runs of the command line at random moments, by SIGKILL mostly, and says what came of it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.breadth import sampled

from surgery.model import storage
from surgery.model.graph import text
from surgery.model.storage.files import NewFile
from surgery.model.wire import leftovers

FEW = 6
ENDINGS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
MARK = "SURGERY_TEST_OF_KILLS"


def model(value: float = 1.0, count: int = 3, size: int = 4096) -> onnx.ModelProto:
    """Return a model with a few weights of which all elements are one number."""
    sums = " ".join(f"x{i + 1} = Add(x{i}, w{i})" for i in range(count))
    made = text.parse(f"g (float[{size}] x0) => (float[{size}] x{count}) {{ {sums} }}")
    for index in range(count):
        weight = np.full(size, value + index, np.float32)
        made.graph.initializer.append(numpy_helper.from_array(weight, f"w{index}"))
    return made


def value_of(path: Path) -> float | None:
    """Read a whole model, weights and all, and return its number; None where there is none."""
    if not path.exists():
        return None
    found = onnx.load(path)
    onnx.checker.check_model(found)
    arrays = [numpy_helper.to_array(tensor) for tensor in found.graph.initializer]
    (values,) = {tuple(np.unique(array - index).tolist()) for index, array in enumerate(arrays)}
    (value,) = values
    return float(value)


def in_child(work: Callable[[], object]) -> int:
    """Do something in a fork of this process; return how that ended."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def save(path: Path, value: float, layout: storage.Layout) -> None:
    stored = storage.from_proto(model(value))
    with stored.weights:
        storage.save(stored.proto, path, stored.weights, layout=layout, force=True)


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def is_probe(path: Path) -> bool:
    """Return whether this is how Python's `tempfile` tries a folder, and what a SIGKILL at that moment leaves of it."""
    return len(path.name) == 8 and path.is_file() and path.read_bytes() in (b"", b"blat")


@pytest.fixture
def own_temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture(autouse=True)
def hearing() -> Iterator[None]:
    """Let processes end by signals that whoever started the tests has turned off, as nohup does."""
    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    deaf = [number for number, handler in found.items() if handler is signal.SIG_IGN]
    for number in deaf:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in deaf:
        signal.signal(number, signal.SIG_IGN)


@pytest.mark.parametrize(
    ("layout", "before"),
    [
        pytest.param("single", False, id="single-new", marks=pytest.mark.slow),
        pytest.param("single", True, id="single-existing"),
        pytest.param("external", False, id="external-new"),
        pytest.param("external", True, id="external-existing", marks=pytest.mark.slow),
    ],
)
def test_a_save_killed_at_any_step_leaves_a_complete_model(
    layout: storage.Layout, before: bool, tmp_path: Path, own_temporary: Path
) -> None:
    calls = ("replace", "fsync", "write", "unlink", "copy_file_range")
    for step in range(100):
        folder = tmp_path / str(step)
        folder.mkdir()
        path = folder / "m.onnx"
        if before:
            save(path, 1.0, layout)

        def killed(path: Path = path, left: list[int] = [step]) -> None:  # noqa: B006 - one for each child
            def counted(call: Callable[..., object]) -> Callable[..., object]:
                def run(*arguments: object, **more: object) -> object:
                    if left[0] == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    left[0] -= 1
                    return call(*arguments, **more)

                return run

            for name in calls:
                setattr(os, name, counted(getattr(os, name)))
            save(path, 2.0, layout)

        ended = in_child(killed)
        assert value_of(path) in ({1.0, 2.0} if before else {None, 2.0}), step
        save(path, 3.0, layout)
        assert value_of(path) == 3.0
        assert names(folder) == ({"m.onnx"} if layout == "single" else {"m.onnx", "m.onnx.data"}), step
        assert names(own_temporary) == set()
        if ended == 0:
            assert step > (5 if layout == "single" else 15)
            return
        assert ended == -signal.SIGKILL
    raise AssertionError("a save takes more steps than are tried")


def test_leftovers_of_a_killed_save_do_not_require_force(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"

    def killed() -> None:
        replace = os.replace

        def once(source: object, target: object) -> None:
            if target == path:
                os.kill(os.getpid(), signal.SIGKILL)
            replace(source, target)  # type: ignore[arg-type]

        os.replace = once  # type: ignore[assignment]
        save(path, 1.0, "external")

    assert in_child(killed) == -signal.SIGKILL
    assert "m.onnx.data" in names(tmp_path) and "m.onnx" not in names(tmp_path)
    stored = storage.from_proto(model(2.0))
    with stored.weights:
        storage.save(stored.proto, path, stored.weights, layout="external")
    assert value_of(path) == 2.0 and names(tmp_path) == {"m.onnx", "m.onnx.data"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_data_of_a_save_that_ended_in_between_is_removed_by_the_next(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    save(path, 1.0, "external")
    unlink = Path.unlink

    def unable(self: Path, missing_ok: bool = False) -> None:
        if self.name == "m.onnx.data":
            raise error
        unlink(self, missing_ok=missing_ok)

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Path, "unlink", unable)
        save(path, 2.0, "external")
    assert value_of(path) == 2.0
    (journal,) = names(tmp_path) - {"m.onnx", "m.onnx.data", "m.onnx.1.data"}
    leftovers.sweep(tmp_path)
    assert names(tmp_path) == {"m.onnx", "m.onnx.data", "m.onnx.1.data", journal}
    save(path, 3.0, "external")
    assert value_of(path) == 3.0 and names(tmp_path) == {"m.onnx", "m.onnx.data"}


def test_live_files_of_other_processes_and_user_files_are_not_removed(tmp_path: Path) -> None:
    mine = {".m.onnx.0123abcd.tmp", ".m.onnx.surgery-0123abcd.tmpx", "m.onnx.surgery-0123abcd.tmp", "m.onnx.1.data"}
    for name in mine:
        (tmp_path / name).write_text("mine")
    left = tmp_path / leftovers.passing_name("m.onnx")
    left.write_text("half of a model")
    with NewFile(tmp_path / "other.onnx") as live, leftovers.passing_folder(tmp_path, "parts") as parts:
        (parts / "piece").write_text("in work")
        at_work = names(tmp_path) - mine - {left.name}
        assert len(at_work) == 2
        # To another process they are no less at work.
        assert in_child(lambda: save(tmp_path / "m.onnx", 1.0, "single")) == 0
        assert names(tmp_path) == mine | at_work | {"m.onnx"}
        live.write([b"abc"], storage.Weights())
        live.commit(tmp_path / "other.onnx")
        assert (parts / "piece").read_text() == "in work"
    assert names(tmp_path) == mine | {"m.onnx", "other.onnx"}
    assert (tmp_path / "other.onnx").read_bytes() == b"abc"


def test_data_changed_after_a_kill_is_not_removed(tmp_path: Path) -> None:
    target = tmp_path / "m.onnx"

    def killed() -> None:
        with leftovers.LeftoverJournal(target) as journal:
            for name in ("m.onnx.data", "m.onnx.data_1"):
                with (tmp_path / name).open("wb") as file:
                    file.write(b"data")
                    file.flush()
                    journal.note(name, file.fileno(), is_final=True)
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(killed) == -signal.SIGKILL
    (tmp_path / "m.onnx.data").write_bytes(b"something else")
    leftovers.sweep(tmp_path)
    assert names(tmp_path) == {"m.onnx.data"}


def test_only_scratch_folders_of_killed_processes_are_removed(own_temporary: Path) -> None:
    (own_temporary / "surgery-scratch-of-a-user").mkdir()
    (own_temporary / "surgery-scratch-of-a-user" / "notes").write_text("mine")

    def killed() -> None:
        scratch = leftovers.ScratchFolder()
        (scratch.path / "weights.bin").write_bytes(b"x")
        os.kill(os.getpid(), signal.SIGKILL)

    with leftovers.ScratchFolder() as held:
        assert in_child(killed) == -signal.SIGKILL
        assert len(names(own_temporary)) == 3
        with leftovers.ScratchFolder() as other:
            assert names(own_temporary) == {"surgery-scratch-of-a-user", held.name, other.name}
    assert names(own_temporary) == {"surgery-scratch-of-a-user"}


class Runs:
    """Runs of the command line in a folder of their own, each ended at a random moment."""

    def __init__(self, home: Path, seed: int = 0) -> None:
        self.home = home
        self.random = random.Random(seed)
        self.out, self.temporary = home / "out", home / "temporary"
        for folder in (self.out, self.temporary):
            folder.mkdir()
        onnx.save(model(1.0, count=4, size=1 << 20), home / "m.onnx")
        onnx.save(text.parse(SMALL), home / "small.onnx")
        self.ends: Counter[str] = Counter()
        self.seconds = {name: self._whole(command) for name, command in self._commands().items()}

    def _commands(self) -> dict[str, list[str]]:
        weights, small = str(self.home / "m.onnx"), str(self.home / "small.onnx")
        return {
            "w.onnx": ["externalize", weights, "-o", str(self.out / "w.onnx"), "--force"],
            "s.onnx": ["apply", "tidy", small, "-o", str(self.out / "s.onnx"), "--force"],
            "r.onnx": ["run", "drop-identity", weights, "-o", str(self.out / "r.onnx"), "--force"],
        }

    def _start(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "TMPDIR": str(self.temporary), MARK: str(self.home)}
        code = "from surgery.interface.commands import command; command()"
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def _whole(self, arguments: list[str]) -> float:
        begun = time.monotonic()
        process = self._start(arguments)
        _, said = process.communicate()
        assert process.returncode == 0, said
        return time.monotonic() - begun

    def end_one(self) -> None:
        """Start a command, end it at a random moment, and look at what there is."""
        name, arguments = self.random.choice(list(self._commands().items()))
        if self.random.random() < 0.5:
            for path in self.out.glob(f"{name}*"):
                path.unlink()
        number = self.random.choice(ENDINGS)
        earlier = self._passing()  # of runs that were killed
        process = self._start(arguments)
        time.sleep(self.random.uniform(0.1, 1.1) * self.seconds[name])
        process.send_signal(number)
        _, said = process.communicate()
        self.ends[f"{number.name} {process.returncode}"] += 1
        # A signal before there is a handler ends it too, and one after all is done comes too late. That Python itself
        # was interrupted as it began is its own error.
        began = not said.startswith(b"Fatal Python error: init_")
        assert process.returncode in (0, -number, 128 + number) or not began, (process.returncode, number, said)
        if process.returncode == 128 + number:
            # One that comes between the last message and the end finds the file written, and says so too.
            *before, last = said.splitlines()
            assert last.startswith(b"surgery: ") and all(line.startswith(b"wrote ") for line in before), said
            assert not before or last.endswith(b" had been written"), said
        for path in self.out.glob("[a-z].onnx"):
            storage.load(path).weights.close()
            onnx.checker.check_model(onnx.load(path))
        self._require_no_process()
        if number is not signal.SIGKILL:
            left = self._passing() - earlier
            # Ended in between, the model refers to data that the next save of it removes.
            assert not left or (self._is_between() and all(path.suffix == ".files" for path in left)), (left, said)

    def _passing(self) -> set[Path]:
        """Find what nobody may see in the end."""
        return {*self.out.glob(".*"), *(path for path in self.temporary.iterdir() if not is_probe(path))}

    def _is_between(self) -> bool:
        path = self.out / "w.onnx"
        return path.exists() and b"w.onnx.1.data" in path.read_bytes()

    def require_clean(self) -> None:
        """Let all commands run to their end, after which nothing may be left but what they write."""
        for command in self._commands().values():
            self._whole(command)
        written = {"w.onnx", "w.onnx.data", "s.onnx", "r.onnx"}
        left = names(self.out) - written, {path.name for path in self.temporary.iterdir() if not is_probe(path)}
        assert left == (set(), set()), left
        assert value_of(self.out / "w.onnx") == value_of(self.out / "r.onnx") == 1.0

    def _require_no_process(self) -> None:
        deadline = time.monotonic() + 20
        while left := list(self._processes()):
            assert time.monotonic() < deadline, f"processes are left: {left}"
            time.sleep(0.05)

    def _processes(self) -> Iterator[int]:
        wanted = f"{MARK}={self.home}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    found = wanted in (entry / "environ").read_bytes()
                except OSError:
                    continue
                if found and int(entry.name) != os.getpid():
                    yield int(entry.name)


SMALL = """g (float[n, 8] x) => (float[n, 8] y)
<float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}> { i = Identity(x) d = Dropout(i) a = Add(d, w) t = Identity(a) y = Relu(t) }"""


def test_unfinished_files_and_folders_are_removed_at_exit(tmp_path: Path) -> None:
    target = tmp_path / "m.onnx"
    target.write_bytes(b"names m.data")
    (tmp_path / "m.data").write_bytes(b"1")
    (tmp_path / "other.data").write_bytes(b"2")
    journal = leftovers.LeftoverJournal(target)
    for name in ("m.data", "other.data"):
        fd = os.open(tmp_path / name, os.O_RDONLY)
        journal.note(name, fd, is_final=True)
        os.close(fd)
    _, fd = leftovers.create(target)
    os.close(fd)
    leftovers.begin(tmp_path / leftovers.passing_name("parts")).mkdir()
    leftovers._remove_begun()
    assert names(tmp_path) == {"m.onnx", "m.data"}


@pytest.mark.parametrize("count", sampled((1, FEW), 2))
def test_runs_ended_at_random_moments_leave_no_partial_files(count: int, tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    for _ in range(count):
        runs.end_one()
    runs.require_clean()


@pytest.mark.parametrize("number", sampled([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], 3))
def test_each_signal_gives_its_exit_code_and_one_message(number: signal.Signals, tmp_path: Path) -> None:
    onnx.save(text.parse(SMALL), tmp_path / "m.onnx")
    # What it says at the end of the first step is written, and nobody reads it before the signal is there.
    (tmp_path / "slow.py").write_text(
        "import time\nfrom surgery import Graph, Parity, graph_pass\n\n\n"
        '@graph_pass("sleep", parity=Parity.EXACT)\n'
        "def sleep(graph: Graph) -> None:\n"
        '    """Take a minute."""\n'
        f"    open({str(tmp_path / 'asleep')!r}, 'w').close()\n"
        "    time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "surgery", "run", "sleep", "m.onnx", "--plugin", "slow.py", "-o", "out.onnx"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path), MARK: str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "asleep").exists():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.02)
    process.send_signal(number)
    _, said = process.communicate(timeout=90)
    assert process.returncode == 128 + number
    what = "interrupted" if number is signal.SIGINT else f"ended by {number.name}"
    assert said.splitlines()[-1] == f"surgery: {what}; nothing was written"
    assert "Traceback" not in said
    assert names(tmp_path) - {"__pycache__"} == {"m.onnx", "slow.py", "asleep"}


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as home:
        campaign = Runs(Path(home), seed=int(time.time()))
        for turn in range(1, int(sys.argv[1]) + 1):
            campaign.end_one()
            if turn % 5 == 0:
                campaign.require_clean()
        campaign.require_clean()
        print(dict(campaign.ends))  # noqa: T201
