"""Which versions of packages go together."""

from __future__ import annotations

from tfos_lab.core.package_versions import compared_versions, differing


def test_versions_of_installed_packages_are_read():
    versions = compared_versions()
    assert versions["tensorflow"].startswith("2.")
    assert differing(versions, versions) == []


def test_the_numbers_that_count_have_to_agree():
    mine = {"tensorflow": "2.21.0", "numpy": "2.4.0", "keras": "3.15.1"}
    assert differing({"tensorflow": "2.21.3", "numpy": "2.1.0"}, mine) == []
    assert differing({"tensorflow": "2.20.0", "numpy": "1.26.4"}, mine) == [
        "its tensorflow is 2.20.0, and this is 2.21.0",
        "its numpy is 1.26.4, and this is 2.4.0",
    ]
