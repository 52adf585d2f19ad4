"""TensorFlow looks for GPUs in the node only: its import, in the fork server, does not touch the driver."""

from __future__ import annotations

import shutil
import subprocess

import pytest

import tfos_lab
from tests.support.fake_gpus import fake_gpus

# Writes down when it is loaded and initialised, and what it would see then; then says that there is no device.
DRIVER = """
#include <stdio.h>
#include <stdlib.h>
static void note(const char *what) {
  FILE *file = fopen(getenv("FAKE_CUDA_LOG"), "a");
  const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *growth = getenv("TF_FORCE_GPU_ALLOW_GROWTH");
  fprintf(file, "%s: %s, %s\\n", what, visible ? visible : "unset", growth ? growth : "unset");
  fclose(file);
}
__attribute__((constructor)) static void loaded(void) { note("loaded"); }
int cuInit(unsigned flags) { note("initialised"); return 100; }
"""


def look(args, ctx):
    import tensorflow as tf

    return len(tf.config.list_physical_devices("GPU"))


@pytest.mark.tensorflow
@pytest.mark.skipif(shutil.which("cc") is None, reason="a pretended driver has to be compiled")
def test_the_driver_is_asked_for_the_node_s_gpus_only(monkeypatch, tmp_path):
    (tmp_path / "driver.c").write_text(DRIVER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "driver.c"], check=True)
    log = tmp_path / "log"
    env = {"LD_LIBRARY_PATH": str(tmp_path), "FAKE_CUDA_LOG": str(log)}
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in fake_gpus(tmp_path / "host", 2).items():
        monkeypatch.setenv(name, value)
    with tfos_lab.run(look, cluster_size=1, gpus=1, local="processes", env=env) as cluster:
        assert dict(cluster.wait(timeout_s=120)) == {"chief:0": 0}
    assert log.read_text().splitlines() == ["loaded: 0, true", "initialised: 0, true"]
