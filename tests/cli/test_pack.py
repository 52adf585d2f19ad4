"""``tfos-lab pack``: what it prints, and how it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfos_lab.cli import main, pack
from tfos_lab.core.environments import Environment
from tfos_lab.engine.environment.pack import Packed
from tfos_lab.errors import ConfigError


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What packing is asked for; nothing is packed."""
    calls = []
    archive = tmp_path / "env.tar.gz"
    archive.write_bytes(bytes(2_000_000))
    environment = Environment(digest="d", python="3.11.7", platform="linux-x86_64", packages={"numpy": "2.0"})

    def fake(output, *, exclude, python):
        calls.append((output, exclude, python))
        return Packed(archive, environment, 3.2)

    monkeypatch.setattr(pack, "pack", fake)
    return calls


def test_it_prints_the_archive_and_the_lines_that_use_it(asked, capsys, tmp_path):
    assert (
        main(["pack", "mine.tar.gz", "--exclude", "jupyterlab*", "--exclude", "ruff", "--python", "/opt/python"]) == 0
    )
    assert asked == [("mine.tar.gz", ["jupyterlab*", "ruff"], "/opt/python")]
    printed = capsys.readouterr().out
    assert printed.startswith(f"{tmp_path / 'env.tar.gz'} (2 MB, packages: 1, packed in 3 s)")
    assert f'.config("spark.archives", "{tmp_path / "env.tar.gz"}#environment")' in printed
    assert f'.config("spark.yarn.dist.archives", "{tmp_path / "env.tar.gz"}#environment")' in printed
    assert '.config("spark.pyspark.python", "./environment/bin/python")' in printed
    assert f"spark-submit --archives {tmp_path / 'env.tar.gz'}#environment" in printed


@pytest.mark.parametrize("error", [ConfigError(["exclude: x is not installed"]), OSError("No space left on device")])
def test_what_cannot_be_packed_is_one_sentence(monkeypatch, capsys, error):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(pack, "pack", refuse)
    assert main(["pack"]) == 1
    assert str(error) in capsys.readouterr().err
    assert not Path("None").exists()
