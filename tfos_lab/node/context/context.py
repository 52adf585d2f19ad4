"""`NodeContext`: what the user's function knows of its node and the cluster.

That of TensorFlowOnSpark's programs, with its names, is `tfos_lab.compat.TFSparkNode.TFNodeContext`.
"""

from __future__ import annotations

import inspect
import os
import socket
import tempfile
import threading
from typing import TYPE_CHECKING, Any

from tfos_lab.core import messages as m
from tfos_lab.core.roles import Role
from tfos_lab.core.states import NodeState
from tfos_lab.errors import ConfigError
from tfos_lab.node.context.folders import FolderMethods
from tfos_lab.node.context.reports import ReportMethods
from tfos_lab.node.context.rows import RowMethods
from tfos_lab.node.context.shares import ShareMethods
from tfos_lab.node.feed.reader import FeedReader
from tfos_lab.node.remote_files import register_file_systems
from tfos_lab.texts import nearest

if TYPE_CHECKING:
    import tensorflow as tf


class NodeContext(RowMethods, ReportMethods, FolderMethods, ShareMethods):
    """One node's view of the cluster; the second argument of ``map_fun(args, ctx)``.

    Attributes
    ----------
    job_name : str
        ``"chief"``, ``"worker"``, ``"ps"`` or ``"evaluator"``.
    task_index : int
        Number of this node within its job, from 0.
    node : str
        Both together, such as ``"worker:1"``.
    cluster_spec : dict of str to list of str
        ``{job: ["host:port", ...]}``, as ``tf.train.ClusterSpec`` takes it.
    world_size : int
        Number of nodes that train: the chief and the workers.
    rank : int or None
        Number of this node among them, from 0 and with the chief first; None on a parameter server or an evaluator.
    worker_num : int
        Number of this node within the whole cluster, from 0, parameter servers and the evaluator included.
    is_chief : bool
        Whether this node leads: it saves models and writes event files.
    gpus : list of str
        Indices of the GPUs of this node; empty if there are none or all are visible.
    log_dir : str
        Folder for event files, or an address; shared by all nodes if the file system is.
    event_dir : str
        This node's folder in it, a new one after each restart: TensorBoard shows each as a run of its own. If
        ``log_dir`` is a remote address, it is a folder on this host: whatever lies in it is put at the address while it
        grows, and at the end.
    restart : int
        How often the nodes have been restarted after one was lost; 0 at first.
    working_dir : str
        The folder of the notebook or program, on its machine. The node itself starts in a folder of its own, which
        shows what was there; ``os.chdir(ctx.working_dir)`` leaves it where the file system is shared.
    args : object
        What was passed as ``args``.
    """

    def __repr__(self) -> str:
        return f"<{self.node} of {sum(map(len, self.cluster_spec.values()))} nodes>"

    if not TYPE_CHECKING:  # to type checkers, every name would be one

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property has raised the same kind of error, which is to be seen
                return object.__getattribute__(self, name)
            near = None if name.startswith("_") else nearest(name, (known for known in dir(self) if known[0] != "_"))
            raise AttributeError(f"ctx has no '{name}'" + (f"; did you mean ctx.{near}?" if near else ""))

    @property
    def gpus(self) -> list[str]:
        """Indices of this node's GPUs."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return [gpu for gpu in visible.split(",") if gpu and gpu != "-1"]

    def strategy(self) -> tf.distribute.Strategy:
        """Return the ``tf.distribute`` strategy that fits the shape of the cluster.

        ============================  ==========================================================================
        cluster                       strategy
        ============================  ==========================================================================
        one training node             ``MirroredStrategy`` over several GPUs, else the default strategy
        several training nodes        ``MultiWorkerMirroredStrategy``
        with parameter servers        ``ParameterServerStrategy`` on the chief. On workers and parameter servers
                                      this call serves the chief and does not return.
        evaluator                     the default strategy
        ============================  ==========================================================================

        It is the same object at each call: a second ``MultiWorkerMirroredStrategy`` would start TensorFlow's collective
        operations anew, and abort those that another node has begun. Where several nodes train, the first call comes
        before anything that makes tensors, `dataset` included.

        Raises
        ------
        ConfigError
            If the cluster has parameter servers but no chief, or no worker; if the call comes too late.
        """
        from tfos_lab.node.strategy import strategy_for

        if self._strategy is None:
            self._strategy = strategy_for(self.cluster_spec, self.job_name, self.task_index)
        return self._strategy

    def start_server(self, *, protocol: str = "grpc", config: Any = None) -> tf.distribute.Server:
        """Start this node's TensorFlow server, at its own address in `cluster_spec`.

        For loops of your own, and for those of TensorFlow 1: it is the class that was called ``tf.train.Server``.
        With ``ctx.strategy()`` it is not needed.

        Parameters
        ----------
        protocol : str
            What the servers speak with one another.
        config : tf.compat.v1.ConfigProto, optional
            Defaults for all sessions on this server.

        Returns
        -------
        tf.distribute.Server
            It runs, for as long as the node does. Sessions connect to its ``target``. Its ``join()`` reports that this
            node only serves others and, as in TensorFlow, does not return: when all nodes that train have returned,
            the function ends there. A worker that was lost within ``join()`` is started again alone; see ``restarts``.

        Raises
        ------
        ConfigError
            On an evaluator, which is no part of TensorFlow's cluster, or if the node has a server already.

        Examples
        --------
        >>> def train(args, ctx):
        ...     server = ctx.start_server()
        ...     if ctx.job_name == "ps":
        ...         server.join()
        ...     with tf.compat.v1.train.MonitoredTrainingSession(server.target, is_chief=ctx.is_chief) as session:
        ...         ...
        """
        from tfos_lab.node.strategy import start_server

        spec = self.cluster_spec
        # The context holds it: a server ends with the last reference to it.
        self._server = start_server(spec, self.job_name, self.task_index, protocol=protocol, config=config)
        return self._server

    def _serve(self) -> None:
        """Report that this node only serves others, and wait until they are done."""
        self._send(m.Progressed(state=NodeState.SERVING, pid=os.getpid()))
        self._finish.wait()

    def _take_port(self) -> socket.socket | None:
        """Return the bound socket that holds this node's port in `cluster_spec`, for the caller to close.

        TensorFlow's servers bind the port beside it, so that only other servers need it closed before they start. None
        if it was taken before, or if there is none.
        """
        port, self._port = self._port, None
        return port

    @property
    def training_done(self) -> bool:
        """Whether all training nodes have returned; an evaluator's loop may end then."""
        return self._finish.is_set()

    def wait_for_training(self, timeout: float | None = None) -> bool:
        """Wait until all training nodes have returned, as a parameter server or an evaluator does.

        Parameters
        ----------
        timeout : float, optional
            The longest to wait, in seconds; required on a node that trains.

        Returns
        -------
        bool
            Whether they have returned.

        Raises
        ------
        ConfigError
            On a node that trains, without a timeout: it would wait for itself.
        """
        if timeout is None and Role(self.job_name).trains:
            advice = "call it where ctx.job_name is 'ps' or 'evaluator', or give it timeout"
            raise ConfigError(
                [f"ctx.wait_for_training() on {self.node}: it trains and would wait for itself; {advice}"]
            )
        return self._finish.wait(timeout)


def _name_methods_as_called() -> None:
    """Have Python's own errors say ``ctx.dataset()``, and not which of the classes above has the method."""
    for kind in NodeContext.__mro__:
        for name, member in vars(kind).items():
            if inspect.isfunction(member) and not name.startswith("_"):
                member.__qualname__ = f"ctx.{name}"


_name_methods_as_called()


def local_context(*, log_dir: str | None = None) -> NodeContext:
    """Return the context of a cluster of one node, in this process: ``map_fun(args, local_context())`` is a plain call.

    Parameters
    ----------
    log_dir : str, optional
        Folder for event files, or an address; a new temporary folder by default.

    Examples
    --------
    >>> import tfos_lab
    >>> tfos_lab.local_context().world_size
    1
    """
    register_file_systems()
    start = m.Start(
        rank=0,
        cluster_spec={"chief": ["localhost:0"]},
        job_name="chief",
        task_index=0,
        is_chief=True,
        log_dir=log_dir or tempfile.mkdtemp(prefix="tfos-local-"),
    )
    feed = FeedReader(0, lambda _message: None)
    feed.handle(m.FeedsEnded())
    return NodeContext(start, feed, lambda _message: None, threading.Event())
