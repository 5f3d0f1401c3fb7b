"""Every change of an operator, up to the last opset that was read, is either none for a node or has an adapter."""

import pytest
from surgery.passes.opset import _schemas, _shared
from surgery.passes.opset.upgrade_opset import ADAPTERS, NEWEST

TRANSITIONS = [item for item in _schemas.transitions() if item[2] <= NEWEST]


@pytest.mark.parametrize(("op", "old", "new"), TRANSITIONS, ids=lambda part: str(part))
def test_a_transition_is_handled(op: str, old: int, new: int) -> None:
    assert ADAPTERS
    assert _schemas.change(op, old, new).broken is None or _shared.is_handled(op, new)


def test_every_adapter_leads_to_a_version_that_exists() -> None:
    known = {(op, new) for op, _, new in _schemas.transitions()}
    assert set(_shared._ADAPTERS) <= known
