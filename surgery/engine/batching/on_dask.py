"""The executor of a dask cluster: one task per model, each in a separate child process of the dask worker.

Workers are started with dask: by hand, with LocalCluster, or with the packages for SSH, Kubernetes, Slurm and others.
They need the same version of surgery as here, and the same file system or URLs for models and results.
"""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from surgery.base.errors import UsageError, WorkerError
from surgery.engine.batching.events import Event
from surgery.engine.batching.input_digests import environment
from surgery.engine.batching.model_entry import BatchLimits
from surgery.engine.batching.slot import LostError, Slot

if TYPE_CHECKING:
    from distributed import Client

_TOPIC: Final = "surgery-batch"
_CONNECT: Final = "15 s"
_AHEAD: Final = 2
"""Number of tasks submitted at a time for each thread of the cluster."""
_STAGE_EVERY: Final = 1.0
_FIRST_WORKER: Final = 60.0
"""Time to wait for the first worker, in seconds."""
_LOOK_EVERY: Final = 5.0
"""Interval in which an idle batch asks for the number of workers, in seconds."""


class DaskExecutor:
    """Runs jobs as tasks of a cluster. `jobs` is ignored: the cluster runs one task per worker thread."""

    def __init__(self, address: str, jobs: int, limits: BatchLimits) -> None:
        if limits.total_memory is not None:
            raise UsageError("--total-memory is for the executor local", todo="use --memory, for each model")
        self._client = _connected(address)
        self._address = address
        self._begun = self._looked = time.monotonic()
        self._is_checked = self._is_waiting = False
        self._limits = asdict(limits)
        # Several batches may use one cluster, where a key identifies a task of any client.
        self._batch = secrets.token_hex(8)
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._started: set[str] = set()
        self._futures: dict[str, Any] = {}
        try:
            self._client.subscribe_topic(_TOPIC, self._heard)
        except BaseException:
            self._client.close()
            raise

    @property
    def capacity(self) -> int:
        """The number of jobs that it accepts at a time: a few more than the cluster has threads; 0 before the check."""
        if not self._is_checked:
            return 0
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        return max(1, _AHEAD * sum(int(worker["nthreads"]) for worker in workers))

    def submit(self, name: str, job: Mapping[str, Any], *, alone: bool = False) -> None:
        """Submit a task. WorkerError if the connection to the scheduler is lost."""
        self._started.discard(name)
        try:
            future = self._client.submit(
                run,
                self._batch,
                name,
                dict(job),
                self._limits,
                pure=False,
                key=f"surgery {self._batch} {name}",
                retries=0,
            )
        except Exception as error:
            raise _gone(error) from error
        self._futures[name] = future
        future.add_done_callback(lambda done: self._ended(name, done))

    def next(self, timeout: float) -> Event | None:
        """Return the next event; None after `timeout` seconds. WorkerError if the scheduler connection is lost.

        UsageError if no worker connects within a minute, or if one has other versions than this process.
        """
        if not self._is_checked and not self._has_first_worker(timeout):
            return self._without_workers()
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            if self._client.status not in ("running", "connecting"):
                raise _gone(None) from None
            return self._without_workers() if self._has_lost_all_workers() else None
        if event.kind in ("ended", "lost"):
            self._futures.pop(event.name).release()
        return event

    def _has_first_worker(self, timeout: float) -> bool:
        """Wait for a worker, and check all of them as soon as there is one."""
        try:
            self._client.wait_for_workers(1, timeout=timeout)
        except TimeoutError as error:
            if time.monotonic() - self._begun < _FIRST_WORKER:
                return False
            raise UsageError(
                f"the scheduler at '{self._address}' has no workers", todo=f"start some: dask worker {self._address}"
            ) from error
        except OSError as error:
            raise _gone(error) from error
        _check(self._client)
        self._is_checked, self._is_waiting = True, False
        return True

    def _has_lost_all_workers(self) -> bool:
        """Return whether the scheduler has lost all of its workers, asking it now and then."""
        if time.monotonic() - self._looked < _LOOK_EVERY:
            return False
        self._looked = time.monotonic()
        try:
            found = self._client.scheduler_info(n_workers=-1)["workers"]
        except Exception as error:
            raise _gone(error) from error
        self._is_waiting = self._is_waiting and not found
        return not found

    def _without_workers(self) -> Event | None:
        """Return the event for a scheduler without workers, unless it was returned since there was one."""
        if self._is_waiting:
            return None
        self._is_waiting = True
        return Event("waiting", "", f"no worker is connected to the scheduler; start one: dask worker {self._address}")

    def close(self) -> None:
        """Cancel the running tasks, and disconnect from the cluster."""
        futures = list(self._futures.values())
        # The cluster itself may have ended.
        with suppress(Exception):
            self._client.cancel(futures, force=True)
        self._client.close(timeout=5)

    def _ended(self, name: str, future: Any) -> None:
        """Record the end of a task. This runs in a thread of dask."""
        current = self._futures.get(name) is future
        if not current:
            return
        try:
            found = future.result(timeout=30) if future.status == "finished" else None
            why = "" if found is not None else _why(future)
        except Exception as error:  # the result was lost with its worker
            found, why = None, f"{type(error).__name__}: {error}"
        lost = found.get("lost") if found is not None else why
        self._events.put(Event("lost", name, str(lost)) if lost else Event("ended", name, outcome=found))

    def _heard(self, event: tuple[float, Mapping[str, Any]]) -> None:
        """Record a message of a task of this batch. This runs in the event loop of dask."""
        name, stage = event[1]["name"], event[1]["stage"]
        if event[1]["batch"] != self._batch or name not in self._futures:
            return
        if not stage and name in self._started:
            self._events.put(Event("restarted", name))
        self._started.add(name)
        self._events.put(Event("stage", name, stage))


def _connected(address: str) -> Client:
    try:
        from distributed import Client
    except ImportError as error:
        raise UsageError("dask.distributed is not installed", todo="pip install 'onnx-surgery[batch]'") from error
    try:
        return Client(address, timeout=_CONNECT, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise UsageError(
            f"no dask scheduler answers at '{address}': {type(error).__name__}", todo="start one: dask scheduler"
        ) from error


def _check(client: Client) -> None:
    """Raise UsageError unless all workers have the same versions of everything that results depend on."""
    own = dict(environment())
    for worker, found in client.run(_environment, on_error="return").items():
        if isinstance(found, Exception):
            raise UsageError(
                f"surgery cannot be used on the worker {worker}: {found}", todo="install onnx-surgery[batch] there"
            )
        for name, version in own.items():
            if found.get(name) != version:
                what = "another source of surgery" if name == "source" else f"{name} {found.get(name)}, not {version}"
                raise UsageError(f"the worker {worker} has {what}", todo="install the same versions everywhere")


def _environment() -> dict[str, str]:
    return dict(environment())


def _why(future: Any) -> str:
    if future.status == "error":
        error = future.exception(timeout=30)
        return f"{type(error).__name__}: {error}"
    return f"its task was {future.status}"


def _gone(error: Exception | None) -> WorkerError:
    detail = f": {error}" if error is not None else ""
    return WorkerError(
        f"the connection to the dask scheduler is lost{detail}",
        stage="dask",
        todo="restart it and run the same command again to continue",
    )


_free: list[Slot] = []
_slots = threading.Lock()


def run(batch: str, name: str, job: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Run a job of a batch in a child process of this dask worker. If the process is lost, return `{"lost": why}`."""
    from distributed import get_worker

    worker = get_worker()
    last = 0.0

    def say(stage: str) -> None:
        nonlocal last
        if not stage or time.monotonic() - last >= _STAGE_EVERY:
            last = time.monotonic()
            worker.log_event(_TOPIC, {"batch": batch, "name": name, "stage": stage})

    say("")
    with _slots:
        slot = next((slot for slot in _free if slot.limits == BatchLimits(**limits)), None)
        if slot is not None:
            _free.remove(slot)
    slot = slot or Slot(BatchLimits(**limits))
    slot.on_stage = say
    try:
        return slot.run(job)
    except LostError as error:
        return {"lost": str(error)}
    finally:
        slot.on_stage = None
        with _slots:
            _free.append(slot)
