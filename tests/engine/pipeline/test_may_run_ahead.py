"""Steps after which the next pass may begin before they are judged."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from surgery.base.promises import Change, Parity
from surgery.engine.pipeline.speculation import allows
from surgery.engine.pipeline.transaction import Transaction


@pytest.mark.parametrize(
    ("promise", "changes", "expect", "allowed"),
    [
        (Parity.EXACT, (), None, True),
        (Parity.CLOSE, (), None, True),
        (Parity.LOSSY, (), None, False),  # a new baseline
        (Parity.INTENDED, (), None, False),
        (Parity.EXACT, ("outputs",), None, False),  # another signature
        (Parity.EXACT, (), object(), False),
    ],
)
def test_a_pass_may_begin_before_the_step_is_judged(
    promise: Parity, changes: tuple[Change, ...], expect: object, allowed: bool
) -> None:
    declared = SimpleNamespace(changes=frozenset(changes), promise=lambda options: promise)
    transaction = SimpleNamespace(step=SimpleNamespace(expect=expect, options={}), declared=declared)
    assert allows(cast(Transaction, cast(Any, transaction))) == allowed
