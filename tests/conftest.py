"""Options of the test run."""

from pathlib import Path

import pytest
import short_models as short


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="rewrite the expected half of the case files")


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nobody's own configuration has a say in the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "no-configuration"))


@pytest.fixture(scope="session")
def short_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the bundled models, the transformers among them with two layers."""
    return short.write(tmp_path_factory.mktemp("short-models"))
