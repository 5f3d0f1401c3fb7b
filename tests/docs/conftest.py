"""The documentation is about the passes that surgery has, and those that a page declares."""

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from surgery.engine.registry.catalog import catalog


@pytest.fixture
def standard_passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the passes and plugins of other tests, and afterwards those of this one."""
    standard = {name: known for name, known in catalog.passes().items() if known.is_standard}
    monkeypatch.setattr(catalog, "_passes", standard)
    others = _forget_plugins()
    yield
    _forget_plugins()
    sys.modules.update(others)


def _forget_plugins() -> dict[str, ModuleType]:
    """Let plugins be imported again, which declares their passes; return their modules."""
    return {name: sys.modules.pop(name) for name in [*sys.modules] if name.startswith("surgery_plugin_")}
