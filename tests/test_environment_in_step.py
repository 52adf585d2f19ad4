"""pyproject.toml names what is needed; requirements.lock and environment.yml, what is installed. They must agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


def direct_requirements() -> list[Requirement]:
    """Everything that pyproject.toml asks for by name, for users and developers."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    texts = [
        *document["project"]["dependencies"],
        *(text for extra in document["project"]["optional-dependencies"].values() for text in extra),
        *(text for group in document["dependency-groups"].values() for text in group),
    ]
    return [Requirement(text) for text in texts]


def pins(texts: list[str]) -> dict[str, str]:
    """Return name → version of exact requirements that hold on this Python."""
    found = {}
    for requirement in map(Requirement, texts):
        if requirement.marker is None or requirement.marker.evaluate():
            (specifier,) = requirement.specifier
            assert specifier.operator == "==", f"{requirement} is not exact"
            found[canonicalize_name(requirement.name)] = specifier.version
    return found


def locked() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return pins([line for line in lines if line and not line.lstrip().startswith("#")])


def conda() -> list:
    return yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]


def conda_pip() -> list[str]:
    (section,) = [entry["pip"] for entry in conda() if isinstance(entry, dict)]
    return section


@pytest.mark.parametrize("requirement", direct_requirements(), ids=str)
def test_the_lock_has_a_version_that_fits(requirement):
    version = locked()[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(version, prereleases=True)


def test_the_conda_environment_has_the_locked_versions_of_all_direct_dependencies():
    names = {canonicalize_name(requirement.name) for requirement in direct_requirements()}
    assert pins(conda_pip()) == {name: version for name, version in locked().items() if name in names}


def test_the_conda_environment_asks_for_the_same_extras():
    wanted = {canonicalize_name(each.name): each.extras for each in direct_requirements() if each.extras}
    asked = {canonicalize_name(each.name): each.extras for each in map(Requirement, conda_pip()) if each.extras}
    assert asked == wanted


def test_the_conda_environment_has_the_python_and_the_java_that_setup_looks_for():
    setup = (ROOT / ".ci" / "setup").read_text()
    (java,) = re.findall(r"^readonly JAVA_NEEDED=(\d+)$", setup, re.MULTILINE)
    assert {"python=3.11", f"openjdk={java}"} <= {entry for entry in conda() if isinstance(entry, str)}


@pytest.mark.parametrize("name", ["requirements.lock", "environment.yml"])
def test_no_file_names_a_package_index(name):
    text = (ROOT / name).read_text()
    assert not re.search(r"://|\bindex[-_]url\b|--find-links|--trusted-host|\b[\w-]+\.(org|com|net|io|dev)\b", text)
