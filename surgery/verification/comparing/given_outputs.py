"""The original, compared with the outputs that came with sets of inputs."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from surgery.verification.comparing.compare import ComparisonRules, OutputDistances, compare
from surgery.verification.comparing.details import REPRODUCED
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.given import GivenBinding


def held(runs: Sequence[Run], rules: ComparisonRules, drawn: Set[str]) -> list[Run]:
    """Compare the outputs that came with sets of inputs with the original's; return the runs with the outcomes.

    Those of `drawn` outputs came from other draws.
    """
    return [_held(run, run.binding, rules, drawn) if isinstance(run.binding, GivenBinding) else run for run in runs]


def _held(run: Run, binding: GivenBinding, rules: ComparisonRules, drawn: Set[str]) -> Run:
    expected = {name: value for name, value in binding.expected.items() if name in run.outputs and name not in drawn}
    if not expected:
        return run
    total = OutputDistances()
    compare(expected, {name: run.outputs[name] for name in expected}, rules, total)
    outcome = total.message if total.beyond else REPRODUCED
    return replace(run, binding=replace(binding, outcome=outcome, expected={}))
