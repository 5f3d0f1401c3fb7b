"""Runs that a caller makes on the inputs of the original, in workers like its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.model.runtime.engine import Engine, RunOutcome
from surgery.verification.comparing.vacuity import Run
from surgery.verification.verdict.verifier import Verifier

MODEL = "g (float[N,2] x) => (float[N,2] y) { y = Sin(x) }"


def test_they_are_compared_with_those_of_the_original() -> None:
    fails = MODEL.replace("y = Sin(x)", "at = Constant<value = int64 {7}>() y = Gather(x, at)")
    model, other, broken = (text.parse(one).SerializeToString() for one in (MODEL, MODEL.replace("Sin", "Cos"), fails))

    def made(candidate: bytes) -> Callable[[Sequence[Run], Callable[[], Engine]], RunOutcome]:
        def run(runs: Sequence[Run], start: Callable[[], Engine]) -> RunOutcome:
            assert len(runs) > 1
            with closing(start()) as engine:
                return engine.run(candidate, [one.feed for one in runs])

        return run

    with closing(Verifier(model)) as verifier:
        whole = verifier.changes.whole
        assert whole.judge(made(model), Parity.EXACT).status == "equal"
        assert whole.judge(made(other), Parity.CLOSE).status == "different"
        assert whole.judge(made(broken), Parity.EXACT).status == "different"
    with closing(Verifier(text.parse(MODEL.replace("Sin", "own.Sin")).SerializeToString())) as verifier:
        verdict = verifier.changes.whole.judge(made(model), Parity.EXACT)
        assert (verdict.status, verdict.reason) == ("unverified", "not-run")
