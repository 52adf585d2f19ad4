"""A soak: clusters, feeds, inferences and streams in one session, with a random fault in every fourth.

    make soak                      20 minutes
    make soak MINUTES=5 SEED=1234  the same rounds and faults again

Among the other tests it is six rounds. After each, nothing of it may be left: no process, thread, descriptor, folder or
job of Spark, and the kernel's memory stays flat.
"""
# ruff: noqa: T201 - a test that tells how far it is

import contextlib
import gc
import itertools
import os
import random
import threading
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

import tfos_lab
from tests.faults import table  # noqa: F401 - it declares its faults
from tests.faults.declare import FAULTS
from tests.faults.scene import Scene, agents_of
from tests.soak import nodes
from tests.support.eventually import eventually
from tests.support.leftovers import Stock, scratch_root
from tests.support.quick import QUICK_ENV
from tfos_lab.driver import start
from tfos_lab.errors import TfosError

SEED = int(os.environ.get("TFOS_SOAK_SEED") or random.SystemRandom().randrange(1_000_000))
MINUTES = float(os.environ.get("TFOS_SOAK_MINUTES", "0"))
MASTER = os.environ.get("TFOS_SOAK_MASTER", "local")

NODES = 3
# However little time there is: one of each kind, and one with a fault.
FEWEST = 6
# The longest that anything in a round may take on a busy machine.
PATIENCE_S = 240.0
# By how much the kernel may grow after the first rounds; allocators and caches take some.
GROWTH_BYTES = 48 << 20
# Connections between the session and its JVM come and go, each with a thread.
SLACK = 4


# ---- rounds: what is done with a cluster ----------------------------------------------------------------------------


def play_work(cluster, spark, rng, folder):
    results = cluster.wait(timeout=PATIENCE_S)
    assert dict(results) == {view.name: view.name for view in cluster.nodes}


def total_of(cluster):
    """Return the sum of all rows, when the nodes have read them."""
    return sum(cluster.wait(timeout=PATIENCE_S).values())


def play_feed(cluster, spark, rng, folder):
    rows, epochs = rng.randint(50, 3000), rng.randint(1, 2)
    frame = spark.range(0, rows, 1, rng.randint(1, 5)).withColumnRenamed("id", "x")
    cluster.train(frame, epochs=epochs, timeout=PATIENCE_S)
    assert total_of(cluster) == epochs * rows * (rows - 1) // 2, f"{rows} rows in {epochs} epochs"


def play_objects(cluster, spark, rng, folder):
    rows = rng.randint(10, 500)
    rdd = spark.sparkContext.parallelize(range(rows), rng.randint(1, 4)).map(lambda x: {"x": x})
    cluster.train(rdd, objects=True, timeout=PATIENCE_S)
    assert total_of(cluster) == rows * (rows - 1) // 2, f"{rows} objects"


def play_answers(cluster, spark, rng, folder):
    rows = rng.randint(10, 500)
    rdd = spark.sparkContext.parallelize(range(rows), rng.randint(1, 4))
    answers = cluster.inference(rdd, objects=True, timeout=PATIENCE_S).collect()
    assert answers == [2 * x for x in range(rows)], f"wrong answers for {rows} rows"
    cluster.shutdown(PATIENCE_S)


def play_stream(cluster, spark, rng, folder):
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 30).load()
    checkpoint = str(folder / f"checkpoint-{cluster.id}")
    stream = cluster.train(rate.selectExpr("value as x"), checkpoint=checkpoint, timeout=PATIENCE_S)
    eventually(lambda: not stream.is_active or sum(view.rows for view in cluster.nodes) >= 60, PATIENCE_S)
    stream.stop()
    total = total_of(cluster)
    rows = round((1 + (1 + 8 * total) ** 0.5) / 2)
    assert total == rows * (rows - 1) // 2, f"the sum {total} is not that of the first rows"


# By kind: what its nodes run, and what is done with them.
ROUNDS = {
    "work": (nodes.work, play_work),
    "feed": (nodes.read, play_feed),
    "objects": (nodes.read, play_objects),
    "answers": (nodes.answer, play_answers),
    "stream": (nodes.read, play_stream),
}


# ---- faults ---------------------------------------------------------------------------------------------------------
# Nobody lets a stopped process go on: what is stopped is ended by those who miss it.


class RoundScene(Scene):
    """The cluster of a round, which runs: a fault is done to any of its nodes."""

    def __init__(self, cluster, spark, rng, folder):
        super().__init__(None, folder, spark=spark)
        self.cluster, self.rng = cluster, rng

    def run(self, *_args, **_options):
        return self.cluster

    def child(self, _node):
        return psutil.Process(self.rng.choice([view.pid for view in self.cluster.nodes if view.pid]))

    def agent(self, _node):
        return self.rng.choice(list(agents_of(self.cluster.id).values()))


@contextlib.contextmanager
def done_to(scene, fault):
    """Do a fault to a cluster at a random moment of the block; the block may end before."""
    over, moment_s = threading.Event(), scene.rng.uniform(0.0, 0.8)

    def do():
        deadline = time.monotonic() + PATIENCE_S
        while not over.is_set() and time.monotonic() < deadline:
            if all(view.pid for view in scene.cluster.nodes):
                over.wait(moment_s)
                if not over.is_set():
                    with contextlib.suppress(psutil.NoSuchProcess, IndexError, ProcessLookupError):
                        fault.chaos(scene)
                return
            time.sleep(0.005)

    thread = threading.Thread(target=do, name=f"fault-{fault.do.__name__}")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# ---- what may be left -----------------------------------------------------------------------------------------------


class Traces:
    """Counts what must be as before after each round; made once the session is there."""

    def __init__(self, spark):
        self.spark, self.stock, self.most = spark, Stock(), Counter()
        # Spark's callbacks leave a thread with its connection for each query with `foreachBatch`, ours or not (4.2).
        self.streams = 0

    def settle(self):
        """Take what is open now as what may stay: the first rounds open what all later ones use."""
        self.collect()
        self.most |= {name: count - self.streams for name, count in open_now().items()}

    def collect(self):
        """Let go of what nobody uses; the JVM so closes the connections of its threads that have ended."""
        gc.collect()
        self.spark._jvm.System.gc()

    def left(self, cluster, *, is_warm, has_fault):
        """Return what is left of a round; an agent that was killed leaves its folder to those of a later round."""
        found = self.stock.leftovers(within_s=0.0)
        found += [] if has_fault else [f"the folder {path}" for path in scratch_root().glob(f"{cluster.id}-*")]
        found += [f"Spark's job {job}" for job in self.spark.sparkContext.statusTracker().getActiveJobsIds()]
        found += [f"Spark's stream {query.id}" for query in self.spark.streams.active]
        for name, count in open_now().items() if is_warm else ():
            most = self.most[name] + self.streams + SLACK
            found += [f"{count} {name} instead of {most}: {described(name)}"] if count > most else []
        return found

    def nothing_left(self, what, *round_, **options):
        self.collect()
        assert self.left(*round_, **options) == [], what
        return True


def open_now():
    """Return how many descriptors and threads this process has."""
    return Counter(descriptors=psutil.Process().num_fds(), threads=threading.active_count())


def described(name):
    if name == "threads":
        return [thread.name for thread in threading.enumerate()]
    targets = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            targets.append(str(entry.readlink()))
    return Counter(target.partition(":")[0] if ":" in target else "file" for target in targets)


def rss_bytes():
    """Return the memory of this process, after a collection."""
    gc.collect()
    return psutil.Process().memory_info().rss


# ---- the soak -------------------------------------------------------------------------------------------------------


def drawn(rng, number):
    """Return the kind of a round, and its fault or None: first one round of each kind, then a fault in every fourth."""
    later = number - len(ROUNDS)
    kind = rng.choice([*ROUNDS]) if later >= 0 else [*ROUNDS][number]
    faults = [fault for fault in FAULTS if fault.chaos]
    return kind, rng.choice(faults) if later >= 0 and later % 4 == 0 else None


def play(scene, kind, fault):
    """Play one round; return how it ended. An end that no fault explains is raised."""
    try:
        with done_to(scene, fault) if fault else contextlib.nullcontext():
            ROUNDS[kind][1](scene.cluster, scene.spark, scene.rng, scene.folder)
        return "ok"
    except (TfosError, PySparkException, Py4JError, KeyboardInterrupt) as error:
        if fault is None:
            raise
        return f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
    finally:
        scene.cluster.stop(grace=0.5)
        # A process lists all its clusters; what is left when one is forgotten is a leak.
        start._clusters.remove(scene.cluster)


def options_of(fault, rng):
    """Return what the cluster of a round is made with, and which of its nodes raises."""
    wanted = fault.chaos_options if fault else {}
    hangs = {"hang_timeout": wanted["hang_timeout"], "on_hang": "fail"} if "hang_timeout" in wanted else {}
    return hangs, f"worker:{rng.randrange(NODES - 1)}" if wanted.get("raises") else ""


@pytest.mark.timeout(900 + 120 * MINUTES)
@pytest.mark.parametrize("spark_mode", [MASTER])
def test_clusters_with_random_faults_leave_nothing(spark, spark_mode, tmp_path, monkeypatch):
    print(f"The same rounds again: make soak SEED={SEED} MASTER={MASTER}")
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))
    draw, traces, rss, until = random.Random(SEED), Traces(spark), [], time.monotonic() + 60 * MINUTES
    for number in itertools.takewhile(lambda number: number < FEWEST or time.monotonic() < until, itertools.count()):
        kind, fault = drawn(draw, number)
        rng, is_warm = random.Random(draw.random()), number >= len(ROUNDS)
        hangs, raises = options_of(fault, rng)
        cluster = tfos_lab.run(
            ROUNDS[kind][0],
            {"raises": raises, "steps": rng.randint(5, 30)},
            name=kind,
            spark=spark,
            cluster_size=NODES,
            local="processes" if spark_mode == "local" else "off",
            env=QUICK_ENV,
            grace=1.0,
            tensorboard=False,
            **hangs,
        )
        traces.streams += kind == "stream"
        end = play(RoundScene(cluster, spark, rng, tmp_path), kind, fault)
        what = f"round {number}: {kind}{f', {fault.do.__name__}' if fault else ''}: {end}"
        eventually(lambda: traces.nothing_left(what, cluster, is_warm=is_warm, has_fault=fault is not None))  # noqa: B023
        if not is_warm:
            traces.settle()
        rss.append(rss_bytes())
        print(f"{what}, {rss[-1] >> 20} MiB, {dict(open_now())}")
        assert rss[-1] - max(rss[: len(ROUNDS)]) < GROWTH_BYTES, "memory has grown since the first rounds"
