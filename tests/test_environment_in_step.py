"""pyproject.toml names what is needed; requirements.lock and environment.yml, what is installed. They must agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tfos_lab.core.package_versions import FITTING

ROOT = Path(__file__).parent.parent
# Of environment.yml: whichever Python these tests run in.
PYTHON = {"python_version": "3.11", "python_full_version": "3.11.0"}


def direct_requirements() -> list[Requirement]:
    """Everything that pyproject.toml asks for by name, for users and developers."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    texts = [
        *document["project"]["dependencies"],
        *(text for extra in document["project"]["optional-dependencies"].values() for text in extra),
        *(text for group in document["dependency-groups"].values() for text in group),
    ]
    # The extra `all` names the others.
    found = [Requirement(text) for text in texts if not text.startswith("tfos_lab[")]
    return [each for each in found if each.marker is None or each.marker.evaluate(PYTHON)]


def pins(texts: list[str]) -> dict[str, str]:
    """Return name → version of exact requirements that hold on the environment's Python."""
    found = {}
    for requirement in map(Requirement, texts):
        if requirement.marker is None or requirement.marker.evaluate(PYTHON):
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


def test_the_lock_has_a_version_that_fits_each_requirement():
    found = locked()
    wrong = [
        f"{each} is wanted, and {found.get(canonicalize_name(each.name), 'nothing')} locked"
        for each in direct_requirements()
        if not each.specifier.contains(found.get(canonicalize_name(each.name), "0"), prereleases=True)
    ]
    assert wrong == []
    assert {canonicalize_name(each.name) for each in direct_requirements()} <= set(found)


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
    python = PYTHON["python_version"]
    assert {f"python={python}", f"openjdk={java}"} <= {entry for entry in conda() if isinstance(entry, str)}


def test_the_ranges_of_the_packages_are_those_that_are_asked_for_where_nothing_is_installed_by_pip():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [text for extra in ("tensorflow", "spark") for text in project["optional-dependencies"][extra]]
    assert {FITTING[name].wanted for name in ("pyspark", "tensorflow", "keras")} <= set(asked)
    assert FITTING["python"].wanted == f"python{project['requires-python']}"


def test_no_file_names_a_package_index():
    named = re.compile(r"://|\bindex[-_]url\b|--find-links|--trusted-host|\b[\w-]+\.(?:org|com|net|io|dev)\b")
    assert [name for name in ("requirements.lock", "environment.yml") if named.search((ROOT / name).read_text())] == []
