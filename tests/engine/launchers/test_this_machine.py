"""Whose the fork servers of this machine are: all kernels that could have started the same ones share them."""

from __future__ import annotations

import os

import pytest

from tfos_lab.engine.launchers import this_machine
from tfos_lab.engine.launchers.this_machine import kernel_owner, outlives_kernels, user_digest
from tfos_lab.errors import ConfigError
from tfos_lab.node.forkserver.client import ForkServerSpec


@pytest.fixture
def digest(monkeypatch, tmp_path):
    """A function that returns the digest of a new kernel whose code, packages and home are in ``tmp_path``."""
    (tmp_path / "tfos_lab").mkdir()
    (tmp_path / "tfos_lab/a.py").write_text("x = 1\n")
    (tmp_path / "site-packages").mkdir()
    monkeypatch.setattr(this_machine, "package_root", lambda: tmp_path)
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path / "site-packages")])

    def new_kernel(**environ):
        this_machine._code.cache_clear()
        this_machine._packages.cache_clear()
        return user_digest({"HOME": str(tmp_path), **environ})

    yield new_kernel
    this_machine._code.cache_clear()
    this_machine._packages.cache_clear()


def test_equal_kernels_have_the_same(digest):
    assert digest() == digest()


def test_another_version_of_the_code_means_others(digest, tmp_path):
    before = digest()
    os.utime(tmp_path / "tfos_lab/a.py", (1, 1))
    assert digest() != before


def test_a_kernel_keeps_to_the_code_that_it_has_imported(digest, tmp_path):
    before = digest()
    os.utime(tmp_path / "tfos_lab/a.py", (1, 1))
    assert user_digest({"HOME": str(tmp_path)}) == before


def test_a_package_that_is_installed_means_others(digest, tmp_path):
    before = digest()
    os.utime(tmp_path / "site-packages", (1, 1))
    assert digest() != before


def test_other_settings_of_keras_mean_others(digest, tmp_path):
    before = digest()
    (tmp_path / ".keras").mkdir()
    (tmp_path / ".keras/keras.json").write_text('{"backend": "jax"}')
    there = digest()
    assert there != before
    assert digest(KERAS_HOME=str(tmp_path / ".keras")) == there


def test_variables_that_are_read_at_import_mean_others_and_all_else_does_not():
    def names(**environ):
        spec = [
            ForkServerSpec.plain("user-x", environ, 1),
            ForkServerSpec.tensorflow("user-x", environ, 1, {"ANY": environ.get("ANY", "")}),
        ]
        return [one.socket_path.name for one in spec]

    plain, tensorflow = names()
    assert names(SECRET="1", TF_CONFIG="{}", PATH="/x") == [plain, tensorflow]
    # TensorFlow itself sets this one to 1.
    assert names(TF2_BEHAVIOR="1") == [plain, tensorflow]
    for name in ("TF_X", "CUDA_VISIBLE_DEVICES", "TF2_BEHAVIOR"):
        assert names(**{name: "0"})[0] == plain
        assert names(**{name: "0"})[1] != tensorflow
    for name in ("PYTHONPATH", "HOME", "LC_ALL", "LD_PRELOAD"):
        assert names(**{name: "1"})[0] != plain
        assert names(**{name: "1"})[1] != tensorflow


def test_the_variable_chooses_who_owns_them(monkeypatch):
    monkeypatch.setenv("TFOS_LAB_FORK_SERVER", "kernel")
    assert kernel_owner() == f"kernel-{os.getpid()}"
    monkeypatch.setenv("TFOS_LAB_FORK_SERVER", "user")
    assert kernel_owner().startswith("user-")
    monkeypatch.delenv("TFOS_LAB_FORK_SERVER")
    assert outlives_kernels()


def test_another_value_is_refused(monkeypatch):
    monkeypatch.setenv("TFOS_LAB_FORK_SERVER", "session")
    with pytest.raises(ConfigError, match=r"TFOS_LAB_FORK_SERVER=session: it is user .* or kernel"):
        kernel_owner()
