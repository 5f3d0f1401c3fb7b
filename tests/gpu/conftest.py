"""What runs on a GPU is skipped where CUDA does not start."""

from __future__ import annotations

import pytest
from gpu_device import DRY, missing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = "" if DRY else missing()
    for item in items:
        if reason and "tests/gpu/" in str(item.path):
            item.add_marker(pytest.mark.skip(reason=reason))
