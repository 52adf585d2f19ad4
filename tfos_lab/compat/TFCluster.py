"""Runs a function on a cluster of TensorFlow nodes, on Spark's executors: `run`, then the methods of `TFCluster`.

1. `run` starts the nodes and returns when all of them run.
2. With ``InputMode.SPARK``, `TFCluster.train` and `TFCluster.inference` send them the rows of an RDD.
3. `TFCluster.shutdown` waits until their functions have returned, and raises what went wrong on any of them.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tfos_lab.compat import TFManager, TFSparkNode, reservation
from tfos_lab.core.roles import Role
from tfos_lab.texts import format_count

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

    import tfos_lab

__all__ = ["InputMode", "TFCluster", "TFManager", "TFSparkNode", "reservation", "run", "tf_status"]

logger = logging.getLogger(__name__)

_LINE = "=" * 88
_DEFAULT_EPOCHS = 10

# Has the key "error" once the newest cluster has failed; for programs that look here after `TFCluster.shutdown`.
tf_status: dict[str, str] = {}


class InputMode:
    """Who reads the data."""

    TENSORFLOW = 0  #: the function itself, from files
    SPARK = 1  #: Spark, which feeds the nodes the rows of RDDs


class TFCluster:
    """A running cluster; made by `run`.

    Attributes
    ----------
    sc : pyspark.SparkContext
        As given.
    defaultFS, working_dir : str
        Spark's default file system, and the working directory of this process.
    num_executors : int
        Number of nodes.
    nodeRDD : pyspark.RDD
        An RDD with the number of each node that is on an executor.
    cluster_id : int
        A number of its own.
    cluster_info : list of dict
        For each node ``executor_id``, ``host``, ``job_name``, ``task_index``, ``port``, ``tb_port``; and ``tb_pid``,
        ``addr`` and ``authkey``, which are empty: there is no process to end, and no manager to connect to.
    cluster_meta, meta : dict
        ``id``, ``cluster_template``, ``num_executors``, ``default_fs``, ``working_dir``, ``server_addr``,
        ``release_port``.
    input_mode : int
        See `InputMode`.
    queues : list of str
        Names of the queues.
    server : reservation.Server
        Whoever asks it to stop, ends the streams that feed this cluster.
    """

    def __init__(self, cluster: tfos_lab.Cluster, settings: TFSparkNode.NodeSettings, input_mode: int) -> None:
        assert cluster.spark is not None
        self._cluster = cluster
        self._error: Exception | None = None
        self._tensorboard_url = cluster.tensorboard_url
        self.sc: SparkContext = cluster.spark.sparkContext
        self.defaultFS = settings.default_fs
        self.working_dir = settings.working_dir
        self.input_mode = input_mode
        self.queues = list(settings.queues)
        self.cluster_info = _cluster_info(cluster, self._tensorboard_url)
        self.num_executors = len(self.cluster_info)
        template: dict[str, list[int]] = {}
        for node in self.cluster_info:
            template.setdefault(node["job_name"], []).append(node["executor_id"])
        at_home = template.get(Role.PS, []) if cluster.config.driver_ps else []
        on_executors = [rank for rank in range(self.num_executors) if rank not in at_home]
        self.nodeRDD: RDD[int] = self.sc.parallelize(on_executors, len(on_executors))
        self.server = reservation.Server(self.num_executors)
        for node in self.cluster_info:
            self.server.reservations.add(node)
        self.cluster_id = random.getrandbits(64)
        self.cluster_meta = self.meta = {
            "id": self.cluster_id,
            "cluster_template": template,
            "num_executors": self.num_executors,
            "default_fs": self.defaultFS,
            "working_dir": self.working_dir,
            "server_addr": self.server.start(),
            "release_port": settings.release_port,
        }

    def train(self, dataRDD: Any, num_epochs: int = 0, feed_timeout: float = 600, qname: str = "input") -> None:  # noqa: N803
        """Feed the rows of an RDD to the nodes that train; returns when they have taken all of them.

        Parameters
        ----------
        dataRDD : pyspark.RDD, pyspark.sql.DataFrame or pyspark.streaming.DStream
            The rows. For a DStream, this returns at once; the rows of each interval are fed when they come.
        num_epochs : int
            How often to feed them; 0 for 10 times. End the feed with ``DataFeed.terminate`` if that is too often.
        feed_timeout : float
            The feed fails after so many seconds in which no row moves.
        qname : str
            The queue: ``DataFeed(ctx.mgr, qname_in=...)`` reads it.

        Raises
        ------
        AssertionError
            In another input mode, for an unknown queue, and for a negative number of epochs.
        NodeFailed, FeedError
            If a node fails meanwhile, or the rows cannot be fed.
        """
        logger.info("Feeding training data")
        self._check_feed("train", qname)
        _require(num_epochs >= 0, f"num_epochs={num_epochs} cannot be negative; 0 means {_DEFAULT_EPOCHS}")
        from tfos_lab.compat.cluster import feed

        feed(self._cluster, dataRDD, num_epochs or _DEFAULT_EPOCHS, feed_timeout=feed_timeout, queue=qname)

    def inference(self, dataRDD: Any, feed_timeout: float = 600, qname: str = "input") -> Any:  # noqa: N803
        """Return an RDD of what the nodes answer with ``DataFeed.batch_results``, one result for each row.

        Parameters
        ----------
        dataRDD : pyspark.RDD, pyspark.sql.DataFrame or pyspark.streaming.DStream
            The rows.
        feed_timeout : float
            A task fails after so many seconds without an answer.
        qname : str
            The queue of the rows.

        Returns
        -------
        pyspark.RDD or pyspark.streaming.DStream
            Results, in the order of the rows within each partition. It is lazy: use it before `shutdown`.

        Raises
        ------
        AssertionError
            In another input mode, and for an unknown queue.
        """
        logger.info("Feeding inference data")
        self._check_feed("inference", qname)
        if hasattr(type(dataRDD), "foreachRDD"):
            return dataRDD.transform(lambda rdd: self.inference(rdd, feed_timeout, qname))
        return self._cluster.inference(dataRDD, objects=True, queue=qname, timeout=feed_timeout)

    def _check_feed(self, method: str, qname: str) -> None:
        _require(
            self.input_mode == InputMode.SPARK,
            f"TFCluster.{method}() requires InputMode.SPARK: give TFCluster.run input_mode=TFCluster.InputMode.SPARK",
        )
        advice = f"this cluster has {list(self.queues)}; name it in TFCluster.run(queues=[...])"
        _require(qname in self.queues, f"Unknown queue: {qname!r}: {advice}")

    def shutdown(self, ssc: Any = None, grace_secs: float = 0, timeout: float = 259200) -> None:
        """Wait until the nodes have finished, and end the cluster. SparkContext and program go on.

        The feeds end, and the nodes are waited for; parameter servers end when the others have
        returned. Call it after `train` and `inference`, or right after `run` if the function reads its own data.

        Parameters
        ----------
        ssc : pyspark.streaming.StreamingContext, optional
            Streams that feed this cluster: they are waited for first, and ended when a node has called ``terminate``,
            when the cluster has failed, or when `server` is asked to stop.
        grace_secs : float
            How long an evaluator may go on after the other nodes. Work after the last row, such as exporting a model,
            needs none: it is always waited for.
        timeout : float
            Seconds after which nodes that still run are stopped; -1 for no limit.

        Raises
        ------
        NodeFailed, FeedError
            What went wrong on any node, during the feed or after it. A further call raises it again.
        ShutdownTimeout
            If nodes still run after ``timeout``.
        """
        logger.info("Waiting for TensorFlow nodes to complete...")
        if self._error is not None:
            raise self._error
        from tfos_lab.compat.cluster import end_cluster

        try:
            end_cluster(self._cluster, ssc, is_asked=lambda: self.server.done, grace_s=grace_secs, timeout_s=timeout)
        except Exception as error:
            self._error = error
            tf_status["error"] = str(error)
            raise
        finally:
            self.server.stop()
        logger.info("Shutting down cluster")

    def tensorboard_url(self) -> str | None:
        """Return the address of TensorBoard for a browser on this machine; None without ``tensorboard=True``."""
        return self._tensorboard_url


def run(
    sc: SparkContext,
    map_fun: Callable[[Any, Any], object],
    tf_args: Any,
    num_executors: int,
    num_ps: int,
    tensorboard: bool = False,
    input_mode: int = InputMode.TENSORFLOW,
    log_dir: str | None = None,
    driver_ps_nodes: bool = False,
    master_node: str | None = None,
    reservation_timeout: float = 600,
    queues: Sequence[str] = ["input", "output", "error"],
    eval_node: bool = False,
    release_port: bool = True,
) -> TFCluster:
    """Start ``map_fun(args, ctx)`` on a cluster of nodes; returns when all of them run.

    Parameters
    ----------
    sc : pyspark.SparkContext
        Whose executors to use: of ``local[N]``, ``local-cluster``, standalone and others.
    map_fun : callable
        Runs on every node, in a process of its own. What it returns is dropped.
    tf_args : object
        What it gets as ``args``. A list is ``sys.argv`` on the nodes, too.
    num_executors : int
        Number of nodes in all.
    num_ps : int
        How many of them are parameter servers. The order is: parameter servers, master, evaluator, workers.
    tensorboard : bool
        Run TensorBoard beside the node that leads.
    input_mode : int
        See `InputMode`.
    log_dir : str, optional
        Folder for TensorBoard's event files; the run's folder by default.
    driver_ps_nodes : bool
        Run the parameter servers on this machine, and the other nodes on executors. ``num_executors`` counts all.
    master_node : {"chief", "master"}, optional
        Job name of the node that leads; without it there are workers only, and TF_CONFIG is not set.
    reservation_timeout : float
        Seconds to wait for all nodes.
    queues : sequence of str
        Names of the queues of rows.
    eval_node : bool
        One node is the evaluator.
    release_port : bool
        False has the node's port held until the function calls ``ctx.release_port()``.

    Raises
    ------
    AssertionError
        If the roles do not add up.
    Exception
        For parameter servers on this machine, or an evaluator, with ``InputMode.SPARK``; for anything that keeps the
        nodes from running. Nothing is left running then.
    """
    if input_mode != InputMode.TENSORFLOW and (driver_ps_nodes or eval_node):
        asked = "driver_ps_nodes=True" if driver_ps_nodes else "eval_node=True"
        advice = "these nodes take no rows; leave it out, or use InputMode.TENSORFLOW"
        raise Exception(f"{asked} is only supported in InputMode.TENSORFLOW: {advice}")  # noqa: TRY002 - as in TFoS
    _check_roles(num_executors, num_ps, master_node, eval_node=eval_node)
    logger.info("Reserving TFSparkNodes %s", "w/ TensorBoard" if tensorboard else "")
    from tfos_lab.compat.cluster import start_cluster

    tf_status.clear()
    started, settings = start_cluster(
        sc,
        map_fun,
        tf_args,
        queues=queues,
        release_port=release_port,
        frees_slots=input_mode == InputMode.SPARK,
        options={
            "cluster_size": num_executors,
            "num_ps": num_ps,
            "driver_ps": driver_ps_nodes,
            "master_node": master_node or None,
            "evaluator": eval_node,
            "tensorboard": tensorboard,
            "log_dir": log_dir or None,
            "start_timeout": reservation_timeout,
        },
    )
    try:
        cluster = TFCluster(started, settings, input_mode)
    except BaseException:
        started.stop(grace=0.0)
        raise
    logger.info("All TFSparkNodes started")
    for node in cluster.cluster_info:
        logger.info(node)
    if url := cluster.tensorboard_url():
        for text in (_LINE, "", f"TensorBoard running at:       {url}", "", _LINE):
            logger.info(text)
    return cluster


def _cluster_info(cluster: tfos_lab.Cluster, tensorboard_url: str | None) -> list[dict[str, Any]]:
    """Return a dict for each node, with TFoS's keys."""
    parts = urlsplit(tensorboard_url or "")
    tb_port = (parts.port or (443 if parts.scheme == "https" else 80)) if tensorboard_url else 0
    addresses = [view.address.rpartition(":") for view in cluster.nodes]
    return [
        {
            "executor_id": rank,
            "host": host.strip("[]"),
            "job_name": view.job_name,
            "task_index": view.task_index,
            "port": int(port),
            "tb_pid": 0,
            "tb_port": tb_port if view.is_chief else 0,
            "addr": None,
            "authkey": b"",
        }
        for rank, (view, (host, _, port)) in enumerate(zip(cluster.nodes, addresses, strict=True))
    ]


def _check_roles(num_executors: int, num_ps: int, master_node: str | None, *, eval_node: bool) -> None:
    others = num_ps + bool(master_node) + bool(eval_node)
    wanted = f"num_ps={num_ps}, master_node={master_node!r} and eval_node={eval_node}"
    _require(
        others <= num_executors,
        f"{wanted} need {format_count(others, 'node')}, but num_executors={num_executors}, which counts all nodes",
    )
    _require(
        others < num_executors or bool(master_node),
        f"{wanted} leave no node to train of num_executors={num_executors}: at least one worker or master is needed",
    )


def _require(condition: bool, sentence: str) -> None:
    """Raise an AssertionError, as TFoS does, unless the condition holds; also under ``python -O``."""
    if not condition:
        raise AssertionError(sentence)
