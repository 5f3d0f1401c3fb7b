"""Failures that differ in names and numbers only have one cause."""

from __future__ import annotations

import pytest
from support.batches import row

from surgery.engine.batching.failure_groups import cause, groups


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("ONNX Runtime has no kernel for ImageDecoder(20)", "ONNX Runtime has no kernel for ImageDecoder(N)"),
        ("/zoo/a b/x.onnx: cut short at byte 1,024", "… b/x.onnx: cut short at byte N"),
        ("output 'y' differs at [0, 3]: 1.5 and 2.5e-3", "output … differs at […]: N and N"),
        ("Conv_12 and Relu_3: float32 in (1, 3, 224)", "…: float32 in […]"),
        ("fold-constants crashed with SIGSEGV", "fold-constants crashed with SIGSEGV"),
        ("took 5,120 MiB, more than the 512 MiB of --memory", "took N MiB, more than the N MiB of --memory"),
        ("node: Mul_8 input: x at 0x7fa2", "node: … input: … at …"),
    ],
)
def test_numbers_and_paths_are_masked(reason: str, expected: str) -> None:
    assert cause(reason) == expected


def test_the_largest_group_comes_first() -> None:
    rows = [
        row("a", state="failed", kind="crash", reason="check crashed with SIGSEGV"),
        row("b", state="failed", kind="model-file", reason="/x/b.onnx: cut short at byte 3"),
        row("c", state="failed", kind="model-file", reason="/y/c.onnx: cut short at byte 17"),
        row("d"),
    ]
    found = groups(rows)
    assert [(group.kind, group.cause, group.models) for group in found] == [
        ("model-file", "…: cut short at byte N", ("b", "c")),
        ("crash", "check crashed with SIGSEGV", ("a",)),
    ]
    assert found[0].example == "/x/b.onnx: cut short at byte 3"
