"""Modules that are executed when they are used."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.breadth import sampled

_MODULE = """
import time
time.sleep(0.2)
import late_import_of_a_test
first = 1
assert late_import_of_a_test.first == 1
time.sleep(0.2)
second = 2
"""


def run(folder: Path, code: str) -> str:
    """Run Python in a fresh process, in which a slow module is late."""
    (folder / "late_import_of_a_test.py").write_text(_MODULE)
    head = """
        import sys
        sys.path.insert(0, ".")
        from surgery.model.shapes import late_imports
        late_imports.LATE |= {"late_import_of_a_test"}
    """
    command = [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(code)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def test_sympy_is_not_executed_for_a_model_that_needs_none(tmp_path: Path) -> None:
    source = (
        "<ir_version: 10, opset_import: ['' : 21]> g (float[n,4] x) => (float[n,4] y) { a = Add(x, x) y = Relu(a) }"
    )
    (tmp_path / "m.onnxtxt").write_text(source.replace("'", '"'))
    code = """
        import surgery
        surgery.apply("m.onnxtxt", "default", output="out.onnx")
        print("sympy" in sys.modules, "sympy.core" in sys.modules)
    """
    assert run(tmp_path, code) == "True False"


def test_arithmetic_of_dims_executes_sympy(tmp_path: Path) -> None:
    code = """
        from surgery.model.shapes.symbols import combine
        assert "sympy.core" not in sys.modules
        print(combine("Add", "n", "m"), "sympy.core" in sys.modules)
    """
    assert run(tmp_path, code) == "m + n True"


@pytest.mark.parametrize(
    "use",
    sampled(
        [
            "import sympy.abc",
            "from sympy import Symbol",
            "import sympy; sympy.Symbol",
            "import importlib, sympy; importlib.reload(sympy)",
        ],
        2,
    ),
)
def test_a_module_behaves_as_if_imported_at_once(tmp_path: Path, use: str) -> None:
    code = f"""
        import sympy
        assert "sympy.core" not in sys.modules
        {use}
        print(sympy.Symbol("a") + sympy.Symbol("a"), type(sympy).__name__, sympy.__spec__.loader is sympy.__loader__)
    """
    assert run(tmp_path, code) == "2*a module True"


def test_no_thread_sees_a_part_of_a_module(tmp_path: Path) -> None:
    code = """
        from concurrent.futures import ThreadPoolExecutor
        import late_import_of_a_test
        with ThreadPoolExecutor(8) as pool:
            print(set(pool.map(lambda _: late_import_of_a_test.second, range(8))))
    """
    assert run(tmp_path, code) == "{2}"


def test_a_child_that_was_forked_meanwhile_sees_the_whole_module(tmp_path: Path) -> None:
    code = """
        import os, threading, time
        import late_import_of_a_test
        thread = threading.Thread(target=lambda: late_import_of_a_test.first)
        thread.start()
        time.sleep(0.1)
        child = os.fork()
        if child == 0:
            os._exit(late_import_of_a_test.second)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert run(tmp_path, code) == "2"


def test_a_failed_import_is_reported_at_each_use(tmp_path: Path) -> None:
    code = """
        import pathlib
        pathlib.Path("late_import_of_a_test.py").write_text("raise ImportError('a part is missing')")
        import late_import_of_a_test
        for _ in range(2):
            try:
                late_import_of_a_test.first
            except ImportError as error:
                print(error)
    """
    assert run(tmp_path, code) == "a part is missing\na part is missing"


def test_what_was_imported_before_stays_as_it_is(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sympy, surgery; print(type(sympy).__name__)"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout == "module\n"
