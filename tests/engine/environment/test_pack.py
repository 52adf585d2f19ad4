"""A packed environment works elsewhere, is made once, and has what was installed, editable packages included."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from tests.engine.environment.conftest import LIB, install
from tfos_lab.engine.environment.archive import read_manifest, relocated
from tfos_lab.engine.environment.inventory import Inventory
from tfos_lab.engine.environment.pack import base_python, pack
from tfos_lab.errors import ConfigError

LOOK = "import flat, found, installed; print(flat.PLACE, found.PLACE, installed.__file__, sep='|')"


def names_in(archive):
    with tarfile.open(archive) as opened:
        return opened.getnames()


def test_it_works_where_it_is_unpacked(inventory, python_in, tmp_path):
    packed = pack(inventory=inventory)
    for project in ("flat-project", "other"):
        (tmp_path / project).rename(tmp_path / f"{project}-moved")
    places, folder = python_in(packed.path, "python", "-c", LOOK)
    assert all(Path(place).is_relative_to(folder / LIB) for place in places.split("|"))
    assert (folder / LIB / "found/data.txt").read_text() == "data"


def test_its_scripts_start_its_own_python(inventory, python_in):
    said, folder = python_in(pack(inventory=inventory).path, "say-prefix")
    assert said == str(folder)


def test_it_has_no_traces_of_the_folder_that_it_comes_from(inventory, tmp_path):
    packed = pack(inventory=inventory)
    names = names_in(packed.path)
    assert names[0] == ".tfos_lab_environment.json"
    assert not [name for name in names if "editable" in name or name.endswith("_flat.pth") or "docs" in name]
    with tarfile.open(packed.path) as opened:
        links = {member.name: member.linkname for member in opened if member.issym()}
    assert links.pop("bin/python") == base_python()
    assert set(links.values()) == {"python"}


def test_what_was_packed_is_used_again_until_a_package_changes(inventory, prefix, tmp_path):
    first = pack(inventory=inventory)
    again = pack(inventory=inventory)
    assert (again.path, again.seconds) == (first.path, None)
    os.utime(tmp_path / "other/src/found/__init__.py", ns=(1, 1))
    edited = pack(inventory=inventory)
    assert edited.seconds is not None
    install(prefix / LIB, "another", "3.0", {"another.py": ""})
    assert len({first.path, edited.path, pack(inventory=inventory).path}) == 3


def test_only_the_newest_archives_are_kept(inventory, prefix):
    for number in range(5):
        install(prefix / LIB, f"package{number}", "1.0", {f"package{number}.py": ""})
        newest = pack(inventory=inventory).path
    kept = list(newest.parent.iterdir())
    assert len(kept) == 3
    assert newest in kept


def test_packages_can_be_left_out(inventory):
    smaller = Inventory(inventory.prefix, inventory.site_packages, ["spare-*"])
    packed = pack(inventory=smaller)
    assert list(packed.environment.packages) == ["installed"]
    assert not [name for name in names_in(packed.path) if "spare" in name]
    with pytest.raises(ConfigError, match="exclude: nothing is not installed in"):
        pack(inventory=Inventory(inventory.prefix, inventory.site_packages, ["nothing"]))


def test_an_environment_that_sees_others_is_refused(inventory, prefix):
    settings = prefix / "pyvenv.cfg"
    settings.write_text(settings.read_text().replace("site-packages = false", "site-packages = true"))
    with pytest.raises(ConfigError, match="also sees packages of the Python below it, which an archive would lack"):
        pack(inventory=inventory)


def test_a_file_can_be_named(inventory, tmp_path):
    target = tmp_path / "mine.tar.gz"
    packed = pack(target, inventory=inventory)
    assert packed.path == target
    assert read_manifest(target) == packed.environment
    assert packed.conf == {
        "spark.archives": f"{target}#environment",
        "spark.pyspark.python": "./environment/bin/python",
    }
    with pytest.raises(ConfigError, match="is a folder; name a file"):
        pack(tmp_path, inventory=inventory)
    with pytest.raises(ConfigError, match="there is no folder"):
        pack(tmp_path / "no/mine.tar.gz", inventory=inventory)


def test_executors_may_have_python_elsewhere(inventory):
    packed = pack(inventory=inventory, python="/opt/python/bin/python3")
    with tarfile.open(packed.path) as opened:
        assert opened.getmember("bin/python").linkname == "/opt/python/bin/python3"
        assert b"home = /opt/python/bin\n" in opened.extractfile("pyvenv.cfg").read()


def test_links_within_the_packages_become_files(inventory, tmp_path):
    (tmp_path / "shared.py").write_text("x = 1\n")
    (inventory.site_packages / "linked.py").symlink_to(tmp_path / "shared.py")
    with tarfile.open(pack(inventory=inventory).path) as opened:
        member = opened.getmember(f"{LIB}/linked.py")
        assert member.isreg()
        assert opened.extractfile(member).read() == b"x = 1\n"


def test_a_write_that_fails_leaves_nothing(inventory, cache):
    (inventory.site_packages / "secret.py").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tarfile.TarFile, "addfile", lambda *_: (_ for _ in ()).throw(OSError("No space left on device")))
        with pytest.raises(OSError, match="No space left"):
            pack(inventory=inventory)
    assert [path for path in cache.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("script", "is_python"),
    [
        (b"#!/x/bin/python3.11\ncode\n", True),
        (b"#!/bin/sh\n'''exec' /x/bin/python \"$0\" \"$@\"\n' '''\ncode\n", True),
        (b"#!/bin/bash\ncode\n", False),
        (b"\x7fELF", False),
    ],
)
def test_scripts_of_python_are_told_from_others(script, is_python):
    found = relocated(script)
    assert (found is not None) is is_python
    assert found is None or (found.endswith(b"' '''\ncode\n") and b"/x/bin" not in found)


@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_an_archive_that_is_not_ours_is_known(content, tmp_path):
    path = tmp_path / "other.tar.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"is no archive|was not made by tfos-lab pack"):
        read_manifest(path)
