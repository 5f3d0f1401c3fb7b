"""The transaction that a step goes through, for a model that is already there: signature, checker, parity."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import onnx

from surgery.base.promises import Parity
from surgery.model import storage
from surgery.model.proto.signature import signature
from surgery.verification.verdict.checks import check, new_findings
from surgery.verification.verdict.verifier import Verifier


@dataclass(frozen=True)
class Judgement:
    """How a rewrite was judged: `stage` is "signature", "checker" or the status of the verdict."""

    accepted: bool
    stage: str
    message: str


class Judge:
    """Judges rewrites of one original, as the engine does. What is learned of the original is learned once."""

    def __init__(self, original: onnx.ModelProto) -> None:
        self._stored = storage.from_proto(original)
        self._data = self._stored.proto.SerializeToString(deterministic=True)
        self._signature = signature(self._stored.proto)
        self._findings: list[str] | None = None
        self.verifier = Verifier(self._data)

    def judge(self, changed: onnx.ModelProto, promise: str) -> Judgement:
        stored = storage.from_proto(changed)
        data = stored.proto.SerializeToString(deterministic=True)
        with closing(stored.weights):
            for item in self._signature.differences(signature(stored.proto)):
                return Judgement(False, "signature", item)
            found = check(data)
            if found and self._findings is None:
                self._findings = check(self._data)
            for item in new_findings(self._findings or [], found):
                return Judgement(False, "checker", item)
            verdict = self.verifier.verify(data, Parity(promise), self._data)
            if verdict.leaves_open:
                # The end of a run.
                whole = self.verifier.verify(data)
                verdict = whole if whole.is_different else verdict
        what = verdict.status if verdict.reason is None else f"{verdict.status}: {verdict.reason}"
        return Judgement(verdict.status.accepted, what, verdict.message)

    def close(self) -> None:
        self.verifier.close()
        self._stored.weights.close()
