"""How a result was verified, in words: one sentence for every reader, and the details for those who ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from surgery.base.errors import counted
from surgery.verification.comparing.details import Status

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import Result, StepRecord
    from surgery.verification.comparing.details import Verdict


def sentence(committed: Sequence[StepRecord], account: Result) -> str:
    """Say how the results compare with those of the original, and on how many inputs; without a full stop."""
    verdicts = [step.verdict for step in committed if step.verdict is not None]
    statuses = [verdict.status for verdict in verdicts]
    weak = sum(1 for status in statuses if not status.accepted)
    if not statuses:
        return "Not verified, as the recipe requests"
    if weak:
        return f"{weak} of {len(statuses)} steps {'is' if weak == 1 else 'are'} not verified"
    moves, compared = _moves(statuses), [status for status in statuses if status.passed]
    if not compared:
        return moves
    if all(verdict.message.startswith("the same bytes") for verdict in verdicts):
        return "Same model except for the declared changes; nothing was run"
    start = f"{moves}; otherwise same" if moves else "Otherwise same" if Status.LOSSY in statuses else "Same"
    return f"{start} {_compared(verdicts, compared, account)}"


def _compared(verdicts: Sequence[Verdict], compared: Sequence[Status], account: Result) -> str:
    end, uncompared = account.end, _uncompared(account)
    if uncompared and any(verdict.region is not None for verdict in verdicts):
        return f"results around each change; the whole model could not be compared: {uncompared}"
    found = "results"
    if set(compared) == {Status.EQUAL} or (end is not None and end.status is Status.EQUAL):
        found += ", bit for bit,"
    else:
        ties = any(one.is_tied for one in (*verdicts, *([end] if end is not None else [])))
        found += f" up to rounding{' and choices between near ties' if ties else ''}"
    runs = _runs(account)
    found = f"{found} on {counted(runs, 'input')}" if runs else found.rstrip(",")
    if account.validity is not None and account.validity.is_evaluated:
        found += ", run by the reference evaluator of onnx"
    return f"{found}, run with {', '.join(account.providers)}" if account.providers else found


def _uncompared(account: Result) -> str:
    """Return why the whole model could not be compared; empty if it was."""
    end, found = account.end, account.validity
    if end is not None and (end.is_unverified or end.status is not Status.LOSSY):
        return end.message.rstrip(".") if end.is_unverified else ""
    # The loss of a model that does not run is measured in a part of it.
    return "" if found is None or found.is_evaluated else found.refusal.rstrip(".")


def _runs(account: Result) -> int:
    """Return the number of sets of inputs that the models ran on."""
    return sum(1 for binding in account.bindings if not binding.get("refused"))


def details(committed: Sequence[StepRecord], account: Result) -> str:
    """Say what was compared with what, and where, with the terms of the guide to verification."""
    verdicts = [step.verdict.status for step in committed if step.verdict is not None]
    runs = _runs(account)
    if not verdicts:
        return "not verified, as the recipe requests"
    weak = sum(1 for status in verdicts if not status.accepted)
    if weak:
        return f"{weak} of {len(verdicts)} committed steps are not verified"
    compared = [status for status in verdicts if status.passed]
    moves = _moves(verdicts)
    if not compared:
        return moves
    is_equal = set(compared) == {Status.EQUAL} or (account.end is not None and account.end.status is Status.EQUAL)
    worst = "every output bit-identical to" if is_equal else "every output within tolerance of"
    beyond = _beyond([step.verdict for step in committed if step.verdict is not None], account.end)
    if all(step.verdict.message.startswith("the same bytes") for step in committed if step.verdict is not None):
        return "the same model except for the declared changes; nothing was run"
    lossy = Status.LOSSY in verdicts
    after = "the model after the last lossy step" if lossy else ""
    after = "the model after the last of these" if moves else after
    reference = f"the original, or {after}" if after else "the original"
    claim = f"{'after the other steps, ' if lossy else ''}{worst} {reference}{beyond}"
    # The inputs of the reference are listed, and a model that nothing was compared with has none.
    claim += f"{',' if after or beyond else ''} on {counted(runs, 'input set')}" if runs else ""
    steps = counted(len(compared), "step")
    proof = f"{claim} after {'the step' if len(compared) == 1 else f'each of {steps}'}"
    regional = sum(1 for step in committed if step.verdict is not None and step.verdict.region is not None)
    together = sum(1 for step in committed if step.verdict is not None and step.verdict.together)
    if regional or together:
        how = ((regional, "verified in the region of their change"), (together, "compared as one with later steps"))
        first, *rest = (f"{count}{{}} {what}" for count, what in how if count)
        parts = [first.format(f" of {steps}"), *(part.format("") for part in rest)]
        proof = f"{claim}; {', '.join(parts)}"
    if regional and (uncompared := _uncompared(account)):
        proof = f"{regional} of {steps} verified in the region of their change; "
        proof += f"the whole model could not be compared: {uncompared}"
    if account.validity is not None and account.validity.is_evaluated:
        proof += ", run by the reference evaluator of onnx"
    if account.providers:
        proof += f", run with {', '.join(account.providers)}"
    return f"{moves}; {proof}" if moves else proof


def _beyond(verdicts: Sequence[Verdict], end: Verdict | None) -> str:
    """Return what else than the tolerance explains the differences of outputs; empty for nothing."""
    compared = () if end is not None and end.status is Status.EQUAL else (*verdicts, *([end] if end else []))
    parts = [
        (
            any(one.details is not None and one.details.beyond for one in verdicts),
            "as close to float64 as the original is",
        ),
        (any(one.is_tied for one in compared), "chosen otherwise between near ties"),
    ]
    return "".join(f", or {what}" for holds, what in parts if holds)


def _moves(verdicts: Sequence[Status]) -> str:
    """Return the number of changes that compute something else on purpose."""
    count = sum(one is Status.INTENDED for one in verdicts)
    return f"{counted(count, 'change')} on purpose, run but not compared" if count else ""
