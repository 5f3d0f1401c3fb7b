"""Every change of an operator, up to the last opset that was read, is either none for a node or has an adapter."""

import onnx
import pytest
from support.breadth import sampled
from surgery.passes.opset import _schemas, _shared
from surgery.passes.opset.upgrade_opset import ADAPTERS, NEWEST

TRANSITIONS = [item for item in _schemas.transitions() if item[2] <= NEWEST]


@pytest.mark.parametrize(("op", "old", "new"), sampled(TRANSITIONS, 4), ids=lambda part: str(part))
def test_a_transition_is_handled(op: str, old: int, new: int) -> None:
    assert ADAPTERS
    assert _schemas.change(op, old, new).broken is None or _shared.is_handled(op, new)


def test_every_adapter_leads_to_a_version_that_exists() -> None:
    known = {(op, new) for op, _, new in _schemas.transitions()}
    assert set(_shared._ADAPTERS) <= known


def test_the_schemas_of_each_operator_are_those_that_onnx_lists() -> None:
    listed: dict[str, dict[int, onnx.defs.OpSchema]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            listed.setdefault(schema.name, {})[schema.since_version] = schema
    assert len(listed) > 150
    for op, versions in listed.items():
        assert list(_schemas.schemas_of(op)) == sorted(versions)
        assert all(_schemas.schemas_of(op)[version].doc == schema.doc for version, schema in versions.items())
