"""Models as files: which Keras package wrote a file, and that loading it is silent."""

from __future__ import annotations

import json
import os
import zipfile

import pytest

from tfos_lab.data import model_files
from tfos_lab.data.model_files import find_model, package_that_wrote


def keras_file(path, version):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": version}))
    return path


def test_the_keras_that_wrote_a_file_is_read_from_it(tmp_path):
    assert package_that_wrote(keras_file(tmp_path / "a.keras", "3.15.1")) == "keras"
    assert package_that_wrote(keras_file(tmp_path / "b.keras", "2.21.0")) == "tf_keras"


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_what_is_no_such_file_is_left_to_keras(tmp_path, content):
    if content is not None:
        (tmp_path / "m.keras").write_bytes(content)
    assert package_that_wrote(tmp_path / "m.keras") == "keras"
    with zipfile.ZipFile(tmp_path / "empty.keras", "w"):
        pass
    assert package_that_wrote(tmp_path / "empty.keras") == "keras"


def test_of_two_models_the_newer_is_found(tmp_path):
    assert find_model(tmp_path / "nowhere") is None
    (tmp_path / "model").mkdir()
    (tmp_path / "model.keras").touch()
    for older, newer in (("model", "model.keras"), ("model.keras", "model")):
        os.utime(tmp_path / older, (1.0, 1.0))
        os.utime(tmp_path / newer, (2.0, 2.0))
        assert find_model(tmp_path) == tmp_path / newer


def test_tensorflow_s_own_lines_are_suppressed_and_others_are_not(capfd):
    with model_files._without_logs():
        os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n")
        os.write(2, b"E0000 00:00:1 1 cuda_platform.cc:52] failed call to cuInit: INTERNAL\n")
        os.write(2, b"2026-01-01 00:00:00.0: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on.\n")
        os.write(2, b"F0000 00:00:1 1 check.cc:1] Check failed\n")
        os.write(2, b"a warning of the user's own\n")
    os.write(2, b"later\n")
    said = capfd.readouterr().err
    assert "Check failed" in said
    assert "a warning of the user's own" in said
    assert "cuInit" not in said
    assert "oneDNN" not in said
    assert "absl" not in said
    assert said.endswith("later\n")


def test_the_environment_is_as_it_was(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    before = dict(os.environ)
    with model_files._sparing_gpu_memory():
        assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0"
        assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    assert dict(os.environ) == before
