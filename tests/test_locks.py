"""What is installed from the locks is what the project declares, and nothing else can be installed from them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = ("requirements.lock", "requirements-test.lock")


def entries(name: str) -> list[tuple[Requirement, list[str]]]:
    """Read a lock: each requirement with its hashes."""
    text = "\n".join(line for line in (ROOT / name).read_text(encoding="utf-8").splitlines() if line[:1] != "#")
    found = []
    for entry in re.sub(r" \\\n\s*", " ", text).splitlines():
        requirement, *hashes = entry.split(" --hash=")
        found.append((Requirement(requirement), hashes))
    return found


def pinned(name: str, python: str) -> dict[str, str]:
    """Return the versions that a lock gives a release of Python, by the name of the distribution."""
    environment = {**default_environment(), "python_full_version": f"{python}.0", "python_version": python}
    return {
        requirement.name: str(requirement.specifier).removeprefix("==")
        for requirement, _ in entries(name)
        if requirement.marker is None or requirement.marker.evaluate({**environment, "extra": ""})
    }


def declared(*extras: str) -> list[str]:
    project = DECLARED["project"]
    return [*project["dependencies"], *(one for extra in extras for one in project["optional-dependencies"][extra])]


@pytest.mark.parametrize("name", LOCKS)
def test_each_requirement_has_one_version_with_hashes_and_no_url(name: str) -> None:
    for requirement, hashes in entries(name):
        assert re.fullmatch(r"==[^,*]+", str(requirement.specifier)) and requirement.url is None, requirement
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes), requirement
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "://" not in text and "--index" not in text and "--find-links" not in text


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
def test_the_locks_satisfy_the_declared_ranges(python: str) -> None:
    build = DECLARED["build-system"]["requires"]
    assert DECLARED["dependency-groups"]["build"] == build
    for name, wanted in zip(LOCKS, ([*declared("cpu"), *build], [*declared("test"), *build])):
        versions = pinned(name, python)
        for requirement in map(Requirement, wanted):
            assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), (
                f"{requirement}: make lock"
            )


@pytest.mark.parametrize("python", ["3.11", "3.14"])
def test_the_test_lock_includes_the_first_lock(python: str) -> None:
    versions = pinned(LOCKS[1], python)
    assert {name: versions[name] for name in pinned(LOCKS[0], python)} == pinned(LOCKS[0], python)


def test_every_range_has_a_lower_bound() -> None:
    for requirement in map(
        Requirement,
        [*declared("cpu", "gpu", "openvino", "test", "bench", "zoo"), *DECLARED["build-system"]["requires"]],
    ):
        assert any(item.operator in (">=", "==") for item in requirement.specifier), requirement
