"""Functions that return sets of real inputs, in each form, and a line for each mistake in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.given_sets import model

from surgery.base.errors import UsageError
from surgery.verification.inputs.given import Given
from surgery.verification.inputs.spec import DataSpec, InputsSpec

HEAD = """
import numpy as np


def one(number):
    return {"x": np.full((2, 4), number, np.float32), "i": np.arange(2)}

"""


def _given(folder: Path, body: str) -> Given:
    (folder / "calib.py").write_text(HEAD + body)
    data = (DataSpec.of(f"{folder / 'calib.py'}:data"),)
    return Given(model().SerializeToString(), InputsSpec(data=data))


@pytest.mark.parametrize(
    "body",
    [
        "def data():\n    return [one(1), one(2)]\n",
        "def data():\n    yield one(1)\n    yield one(2)\n",
        # A CalibrationDataReader of ONNX Runtime.
        "class data:\n"
        "    def __init__(self):\n        self.left = [one(2), one(1)]\n"
        "    def get_next(self):\n        return self.left.pop() if self.left else None\n",
    ],
)
def test_lists_generators_and_readers_are_taken(body: str, tmp_path: Path) -> None:
    given = _given(tmp_path, body)
    assert [one.feed["x"][0, 0] for one in given.sets] == [1, 2]
    assert [one.character for one in given.sets] == ["calib.py:data 1", "calib.py:data 2"]
    assert [one.dims for one in given.sets] == [{"batch": 2}] * 2


def test_a_single_set_is_one(tmp_path: Path) -> None:
    (one,) = _given(tmp_path, "def data():\n    return one(3)\n").sets
    assert np.array_equal(one.feed["x"], np.full((2, 4), 3))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def other():\n    return []\n", "no function 'data' in it; it has one, other"),
        ("def data():\n    return []\n", "it returns no sets"),
        ("def data():\n    return [one(1), 5]\n", "set 2: it is a int, not a dict of arrays by input name"),
        ("def data():\n    return 5\n", "TypeError: 'int' object is not iterable"),
        ("def data():\n    yield one(1)\n    raise ValueError('no file')\n", "line 10: ValueError: no file"),
        ("def data():\n    return [{'x': np.zeros((2, 4), np.float32)}]\n", "no value is given for input 'i'"),
        ("import os\ndef data():\n    os._exit(3)\n", "ended the process with exit code 3"),
    ],
)
def test_a_mistake_in_a_function_is_one_line(body: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        _given(tmp_path, body)
    assert "calib.py:data" in str(caught.value) and message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.py:data: no such file"):
        Given(model().SerializeToString(), InputsSpec(data=(DataSpec(tmp_path / "gone.py", function="data"),)))
