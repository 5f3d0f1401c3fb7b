"""Arrays that workers receive."""

from __future__ import annotations

import socket

import numpy as np

from surgery.base.workers import messages


def test_arrays_are_aligned_wherever_they_stand_in_a_message() -> None:
    """ONNX Runtime's kernels round otherwise where an input is not aligned; what precedes it must not decide that."""
    sent = [np.array([True]), np.arange(8, dtype=np.float32), np.zeros([2, 0], np.float16), np.arange(9_000)]
    sent += [np.array(3, np.int8), np.linspace(0, 1, 7), np.full([3, 5], 2, np.float16)]
    here, there = socket.socketpair()
    with here, there:
        messages.send(here, messages.pack({"feed": sent}))
        received = messages.receive(there)["feed"]
    for one, other in zip(sent, received, strict=True):
        assert one.dtype == other.dtype and np.array_equal(one, other)
        assert other.ctypes.data % 16 == 0 and other.flags.writeable
