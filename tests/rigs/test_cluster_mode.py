"""Programs whose driver is in a container of YARN: submitted with docs/storage.md's line and pip's ``spark-submit``.

The history finds what they leave on HDFS.
"""

import getpass
import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

import tfos_lab
from tests.rigs.yarn import ONE_CONTAINER, place_on
from tests.support.eventually import eventually
from tests.support.kube_documents import section
from tests.support.spark_home import QUICK_JVM
from tfos_lab.errors import ConfigError

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(660)]

SUBMIT_S = 600
PROGRAM = """
import time

from pyspark.sql import SparkSession

import tfos_lab


def train(args, ctx):
    import keras

    with ctx.strategy().scope():
        model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    rows = ctx.dataset(5).map(lambda batch: (batch["x"], 2.0 * batch["x"], batch["sample_weight"]))
    model.fit(rows, verbose=0, callbacks=ctx.callbacks())
    if ctx.is_chief:
        ctx.save_model(model)
        print("weight:", model.get_weights()[0].item())


def wait(args, ctx):
    print("waiting", flush=True)
    time.sleep(600)


spark = SparkSession.builder.getOrCreate()
with tfos_lab.run(train, cluster_size=2, name="trained") as cluster:
    cluster.train(spark.range(20).selectExpr("array(cast(id / 20 as float)) as x"))
    cluster.wait()
tfos_lab.run(wait, cluster_size=1, name="killed").wait()
"""


def command_for(yarn, folder):
    """Return the page's command with the memory that the rig's small hosts have."""
    page = re.search(r"^spark-submit .*?^```$", section("### Cluster mode"), re.DOTALL | re.MULTILINE)[0]
    assert page.startswith("spark-submit --master yarn --deploy-mode cluster")
    conf = dict(re.findall(r"--conf (\S+?)=(\S+)", page))
    conf |= {name: value for name, value in place_on(yarn).conf.items() if not name.startswith("spark.driver.")}
    conf |= ONE_CONTAINER | {
        "spark.yarn.dist.archives": f"{environment(folder)}#environment",
        "spark.driver.memory": "512m",
        "spark.driver.memoryOverhead": "1g",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.driver.extraClassPath": conf["spark.executor.extraClassPath"],
        "spark.yarn.appMasterEnv.TFOS_LAB_TEST_RUN": os.environ["TFOS_LAB_TEST_RUN"],
    }
    (folder / "train.py").write_text(PROGRAM)
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    # As pip has installed it, in the environment of somebody who has nothing but that.
    return ["spark-submit", "--master", "yarn", "--deploy-mode", "cluster", *options, "train.py"]


def environment(folder):
    """Return an archive of an environment whose Python is this one."""
    script = f'#!/bin/sh\nexec {sys.executable} "$@"\n'.encode()
    file = tarfile.TarInfo("bin/python")
    file.size, file.mode = len(script), 0o755
    with tarfile.open(folder / "environment.tar.gz", "w:gz") as archive:
        archive.addfile(file, io.BytesIO(script))
    return folder / "environment.tar.gz"


def driver_log(yarn, application):
    """Return what the driver's Python has written: both streams are its container's ``stdout``."""
    logs = yarn.conf_dir.parent.rglob(f"{application}/container_*_000001/stdout")
    return "".join(log.read_text(errors="replace") for log in logs)


def test_a_submitted_program_leaves_its_runs_on_hdfs_where_the_history_finds_them(
    spark_sessions, yarn, tmp_path, monkeypatch
):
    spark_sessions.close()  # the cluster has room for one application
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.conf_dir))
    monkeypatch.setenv("TFOS_LAB_DEFAULT_FS", "")  # that of an earlier session
    before = {*yarn.applications()}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environ = {**plain, "PATH": path, "YARN_CONF_DIR": str(yarn.conf_dir)}
    store = f"hdfs:///user/{getpass.getuser()}/tfos_lab/runs"
    with subprocess.Popen(command_for(yarn, tmp_path), env=environ, cwd=tmp_path) as submit:
        try:
            application = eventually(lambda: {*yarn.applications()} - before).pop()
            # The program waits in its second run.
            eventually(lambda: submit.poll() is not None or "waiting" in log_of("killed", store), SUBMIT_S)
            assert submit.poll() is None, driver_log(yarn, application)[-5000:]
            yarn.kill(application)
            submit.wait(SUBMIT_S)
        finally:
            submit.kill()
    kept = rf"the run's folder is kept in {yarn.hdfs}/user/.*/tfos_lab/runs$"
    assert re.search(kept, driver_log(yarn, application), re.MULTILINE)
    outcomes = tfos_lab.runs(store).set_index("name")["outcome"]
    assert (outcomes["trained"], outcomes["killed"]) == ("done", "lost")
    trained = tfos_lab.runs(store)["trained"]
    weight = float(re.search(r"^weight: (.*)$", trained.logs("chief:0"), re.MULTILINE)[1])
    import keras

    model = keras.models.load_model(trained.output_dir / "model.keras")
    np.testing.assert_allclose(model.get_weights()[0].item(), weight)
    listed = subprocess.run(
        [Path(sys.executable).with_name("tfos-lab"), "history", store], capture_output=True, text=True, check=True
    )
    assert re.search(r"^trained \w{4} .* ✓ done ", listed.stdout, re.MULTILINE), listed.stdout


def log_of(name, store):
    try:
        return tfos_lab.runs(store)[name].logs()
    except ConfigError:  # there is no such run yet, or no store
        return ""
