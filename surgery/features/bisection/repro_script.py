"""The script of a repro, run in a worker process."""

from __future__ import annotations

import runpy

from surgery.base.workers import stage


def run(path: str) -> None:
    """Run a script as the interpreter would; its errors are raised."""
    stage("the script of the repro")
    runpy.run_path(path)
