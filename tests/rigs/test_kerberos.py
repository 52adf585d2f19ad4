"""A secured, highly available HDFS and a secured YARN: a ticket on the driver, delegation tokens in containers.

One JVM has all servers, the two NameNodes of ``hdfs://cluster`` among them, which share their edits by a folder.
"""

import os
import subprocess
import sys
import textwrap
import time
import zipfile
from contextlib import ExitStack

import pytest

import tfos_lab
from tests.rigs.kerberos import FOR_CLIENTS, USER, kerberos
from tests.rigs.yarn import ONE_CONTAINER, RigMissing, java_command, place_on, yarn_cluster
from tests.support.eventually import eventually
from tests.support.quick import QUICK_ENV
from tests.support.spark_home import QUICK_JVM

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(660)]

PATIENCE_S = 240
GAP_S = 4.0
HOME = f"hdfs:///user/{USER}"
# Of a file of tokens, as it is and in base64, of a token as Hadoop prints it, and of a cache of tickets.
SECRETS = (b"HDTS", b"SERUUw", b"HDFS_DELEGATION_TOKEN", b"krbtgt")


class Secured:
    """The rig, with a ticket of its user: what a driver has in its environment, and which NameNode is active."""

    def __init__(self, realm, cluster, folder):
        self.realm, self.cluster, self.folder = realm, cluster, folder
        self.java = f"-Djava.security.krb5.conf={realm.clients}"
        self.ticket = folder / "ticket"
        realm.kinit(self.ticket)
        self.active = 0

    @property
    def environ(self):
        places = {name: str(self.cluster.conf_dir) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR")}
        return places | {"KRB5_CONFIG": str(self.realm.clients), "KRB5CCNAME": str(self.ticket)}

    def address_of(self, number):
        """Return the address of one NameNode, by a name of its host."""
        sites = (self.cluster.conf_dir / "hdfs-site.xml").read_text()
        port = sites.partition(f"rpc-address.cluster.nn{number + 1}</name><value>127.0.0.1:")[2].partition("<")[0]
        return f"hdfs://localhost:{port}"

    def fail_over(self):
        """Stop the active NameNode, and have the other one take over some seconds later."""
        old, self.active = self.active, 1 - self.active
        self.cluster.order(f"stop/{old}")
        time.sleep(GAP_S)
        self.cluster.order(f"activate/{self.active}")
        self.cluster.order(f"start/{old}")


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """The rig (`Secured`); skips where this machine cannot run it."""
    folder = tmp_path_factory.mktemp("secured")
    with ExitStack() as stack:
        try:
            realm = stack.enter_context(kerberos(folder / "kdc"))
            java = [f"-Djava.security.krb5.conf={realm.clients}", f"-Drig.user={USER}"]
            (folder / "hadoop").mkdir()
            rig = yarn_cluster(folder / "hadoop", conf=realm.hadoop, clients=FOR_CLIENTS, java=java, available=True)
            cluster = stack.enter_context(rig)
        except RigMissing as missing:
            pytest.skip(str(missing))
        yield Secured(realm, cluster, folder)


@pytest.fixture
def environ(secured, monkeypatch, tmp_path):
    """Have this process find the rig as a user's does, and forget at the end what sessions there have told it."""
    ours = {"TFOS_LAB_RUNS": str(tmp_path / "runs"), "TFOS_LAB_DEFAULT_FS": ""}
    for name, value in (secured.environ | ours).items():
        monkeypatch.setenv(name, value)


RUN = """
import tfos_lab
def attempt(address, node=lambda: "ran", **options):
    try:
        print(*tfos_lab.run(node, cluster_size=1, log_dir=address, **options).wait(120).values())
    except tfos_lab.errors.ConfigError as error:
        print(error)
"""


def in_a_process(code, **environ):
    """Return the lines that a program prints whose driver is beside its nodes."""
    done = subprocess.run(
        [sys.executable, "-c", RUN + textwrap.dedent(code)],
        env=os.environ | environ,
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return done.stdout.splitlines()


def test_without_a_ticket_and_with_an_expired_one_a_sentence_says_kinit_which_helps_at_once(secured, environ, tmp_path):
    """TensorFlow then reads and writes by the ticket that KRB5CCNAME names, at addresses of every kind."""
    addresses = [f"hdfs://cluster/user/{USER}", HOME, f"{secured.address_of(0)}/user/{USER}"]
    cache, old = tmp_path / "none", tmp_path / "old"
    secured.realm.kinit(old, "-l", "1s")
    keytab = secured.realm.keytab
    time.sleep(1.5)
    none, expired, wrote = in_a_process(
        f"""
        import os, subprocess
        def write(args, ctx):
            import tensorflow as tf
            found = []
            for address in {addresses}:
                with tf.io.gfile.GFile(address + "/f", "w") as file:
                    file.write(address)
                found.append((tf.io.gfile.GFile(address + "/f").read(), tf.io.gfile.glob(address + "/f*")))
            return found
        address = "hdfs://cluster/user/{USER}/kinit"
        attempt(address)
        os.environ["KRB5CCNAME"] = "{old}"
        attempt(address)
        subprocess.run(["kinit", "-k", "-t", "{keytab}", "{USER}"], check=True)
        attempt(address, write)
        """,
        KRB5CCNAME=str(cache),
    )
    what = "HDFS asks for Kerberos, and there is no valid ticket"
    assert f"cannot write to it: {what} (No Kerberos credentials available (default cache: {cache})): run kinit" in none
    assert f"cannot write to it: {what} (Ticket expired): run kinit" in expired
    assert wrote == str([(address, [f"{address}/f"]) for address in addresses])


def test_tokens_are_enough_where_they_name_a_host_by_its_number(secured, environ, tmp_path):
    """By default, Hadoop writes them so; of others it is said how a session brings them."""
    address = secured.address_of(secured.active)
    fetcher = ["org.apache.hadoop.hdfs.tools.DelegationTokenFetcher", "-fs", address, "--renewer", USER]
    command = [*java_command(secured.cluster.conf_dir, secured.java), *fetcher, str(tmp_path / "tokens")]
    subprocess.run(command, check=True)
    nothing = str(tmp_path / "none")
    ran, other = in_a_process(
        f"""
        attempt("{address}/user/{USER}/tokens", env={QUICK_ENV})
        attempt("hdfs://cluster/user/{USER}/tokens")
        """,
        KRB5CCNAME=nothing,
        HADOOP_TOKEN_FILE_LOCATION=str(tmp_path / "tokens"),
    )
    assert ran == "ran"
    assert "this application has no valid token for the address" in other
    assert "name it in spark.kerberos.access.hadoopFileSystems" in other


def train(args, ctx):
    """Train, wait for the second NameNode to take over, and save what was trained."""
    import keras
    import tensorflow as tf

    with ctx.strategy().scope():
        model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    rows = ctx.dataset(5).map(lambda batch: (batch["x"], 2.0 * batch["x"], batch["sample_weight"]))
    model.fit(rows, verbose=0, callbacks=ctx.callbacks())
    with tf.io.gfile.GFile(f"{args}/of-{ctx.job_name}", "w") as file:
        file.write("before")
        file.flush()
        print("trained", flush=True)  # noqa: T201 - as users write it
        while not tf.io.gfile.exists(f"{args}/taken-over"):
            time.sleep(0.2)
        file.write(" and after")
    if ctx.is_chief:
        ctx.save_model(model)
        model.save(f"{args}/model.keras")
    text = tf.io.gfile.GFile(f"{args}/of-{ctx.job_name}").read()
    return {
        "text": text,
        "of_one": sum(weight.item() for weight in model.get_weights()),
        "home": ctx.absolute_path("x"),
    }


def test_a_training_on_hdfs_goes_on_while_another_namenode_takes_over_and_shows_no_secret(secured, environ, new_spark):
    from tfos_lab.data.file_systems import open_path

    java = {f"spark.{who}.extraJavaOptions": f"{QUICK_JVM} {secured.java}" for who in ("driver", "executor", "yarn.am")}
    spark = new_spark("yarn", conf=place_on(secured.cluster).conf | java | ONE_CONTAINER, env=secured.environ)
    folder = f"{HOME}/yarn"
    spark.range(20).selectExpr("array(cast(id / 20 as float)) as x").write.parquet(f"{folder}/rows")
    store = f"{folder}/runs"
    cluster = tfos_lab.run(
        train, folder, cluster_size=2, log_dir=f"{folder}/logs", run_store=store, name="trained", spark=spark
    )
    cluster.train(f"{folder}/rows")
    eventually(lambda: cluster.logs().count("trained") == 2 or cluster.state == "failed", PATIENCE_S)
    secured.fail_over()
    system, place = open_path(f"{folder}/taken-over")
    system.open_output_stream(place).close()
    results = cluster.wait(PATIENCE_S)
    run_dir = cluster.run_dir
    cluster.stop()
    assert {result["text"] for result in results.values()} == {"before and after"}
    assert {result["home"] for result in results.values()} == {f"hdfs://cluster/user/{USER}/x"}
    system, place = open_path(folder)
    assert [info for info in system.get_file_info(_below(f"{place}/logs")) if "events.out" in info.base_name]
    record = tfos_lab.runs(store)["trained"]
    assert "trained" in record.logs("chief:0")
    assert tfos_lab.runs(store)["outcome"].tolist() == ["done"]
    assert zipfile.is_zipfile(record.output_dir / "model.keras")
    rows = spark.createDataFrame([([1.0],)], "x array<float>").coalesce(1)
    (scored,) = tfos_lab.predict(rows, f"{folder}/model.keras", "x").collect()
    assert scored.prediction == pytest.approx(results["chief:0"]["of_one"])
    files = [path for path in run_dir.rglob("*") if path.is_file()]
    assert files
    assert not [(path, secret) for path in files for secret in SECRETS if secret in path.read_bytes()]


def _below(place):
    from pyarrow import fs

    return fs.FileSelector(place, recursive=True)


def test_a_service_whose_namenodes_are_both_down_is_one_sentence(secured, environ):
    for number in (0, 1):
        secured.cluster.order(f"stop/{number}")
    try:
        (sentence,) = in_a_process(f'attempt("hdfs://cluster/user/{USER}/logs")')
    finally:
        for number in (0, 1):
            secured.cluster.order(f"start/{number}")
        secured.cluster.order(f"activate/{secured.active}")
    assert f"path='hdfs://cluster/user/{USER}/logs': " in sentence
    assert sentence.endswith("cannot write to it: Connection refused (os error 111)")
