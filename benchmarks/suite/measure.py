"""Run one tool on one model and measure the result, each part in a separate process."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from suite import facts, process
from suite.records import ORIGINAL, Folder, Record
from suite.tools import Tool
from suite.zoo import Model

_JUDGE_TIMEOUT = 1200.0
"""The time limit in seconds for running one model on all its inputs."""


class Bench:
    """One model under test: its facts, and the results of the tools on it."""

    def __init__(self, model: Model, kept: Folder, scratch: Path, timeout: float) -> None:
        self.model = model
        self.kept = kept
        self.scratch = scratch
        self.timeout = timeout

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The facts of the original."""
        return facts.of(self.model.path)

    @cached_property
    def digest(self) -> str:
        """The original's hash."""
        return self.model.digest()

    @cached_property
    def reference(self) -> tuple[Path, str]:
        """The folder with inputs and outputs of the original, and the failure if the original did not run."""
        folder = self.scratch / "reference"
        folder.mkdir(parents=True)
        return folder, self._python("suite.parity", "reference", str(self.model.path), str(folder)).failure

    def original(self) -> Record:
        """Return the row of the original."""
        known = self.facts
        return Record(
            self.model.name,
            ORIGINAL,
            {},
            nodes=known["nodes"],
            outside=known["outside"],
            bytes=known["bytes"],
            signature="kept",
            error=0.0,
        )

    def key(self, tool: Tool) -> Mapping[str, str]:
        """Return the versions and the model hash that a result depends on."""
        return {"tool": tool.version, "onnxruntime": version("onnxruntime"), "model": self.digest}

    def run(self, tool: Tool) -> Record:
        """Run a tool and return its row; its model stays in the folder until `forget`."""
        record = Record(self.model.name, tool.name, self.key(tool))
        target = self.kept.model(self.model.name, tool.name)
        shutil.rmtree(target.parent, ignore_errors=True)
        target.parent.mkdir(parents=True)
        ran = process.run(tool.command(self.model.path, target), timeout=self.timeout, folder=self._log(tool.name))
        record.seconds, record.cpu, record.private, record.failure = ran.seconds, ran.cpu, ran.private, ran.failure
        if not record.failure and not target.is_file():
            record.failure = "wrote no model"
        if record.failure:
            return record
        try:
            found = facts.of(target)
        except Exception as problem:
            record.failure = f"wrote a file that does not load: {problem}"
            return record
        record.nodes, record.outside, record.bytes = found["nodes"], found["outside"], found["bytes"]
        record.signature, record.signature_note = facts.compare_signatures(self.facts["signature"], found["signature"])
        self._judge(record, target)
        return record

    def time(self, record: Record, threads: int, seconds: float) -> None:
        """Time the model of a record against the original, if it computes the same."""
        target = self.kept.model(record.model, record.tool)
        if not record.failure and not record.wrong:
            options = ("--threads", str(threads), "--seconds", str(seconds))
            ran = self._python("suite.latency", str(self.model.path), str(target), *options)
            record.latency = {"failure": f"latency: {ran.failure}"} if ran.failure else json.loads(ran.output)

    def forget(self, record: Record) -> None:
        """Delete the model of a record."""
        shutil.rmtree(self.kept.model(record.model, record.tool).parent, ignore_errors=True)

    def _judge(self, record: Record, target: Path) -> None:
        folder, failure = self.reference
        if failure:
            record.wrong = f"the original does not run: {failure}"
            return
        ran = self._python("suite.parity", "compare", str(target), str(folder))
        answer: dict[str, Any] = {"wrong": f"does not run: {ran.failure}"} if ran.failure else json.loads(ran.output)
        record.wrong, record.error = answer.get("wrong", ""), answer.get("error")

    def _python(self, module: str, *arguments: str) -> process.Ran:
        command = [sys.executable, "-m", module, *arguments]
        return process.run(command, timeout=_JUDGE_TIMEOUT, folder=self._log(module))

    def _log(self, name: str) -> Path:
        folder = self.scratch / "logs" / name.replace(" ", "-").replace("/", "-")
        folder.mkdir(parents=True, exist_ok=True)
        return folder
