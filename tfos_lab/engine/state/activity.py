"""What a node does, as displays and users see it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from tfos_lab import messages as m
from tfos_lab.engine.state.changed import made_of

# What a node's time is spent on.
SHARE_NAMES = ("waits_rows", "waits_data", "waits_peers", "computes", "python")


@dataclass(frozen=True, kw_only=True)
class NodeActivity:
    """What one node has done in the last seconds; measured on the node, about once a second.

    Attributes
    ----------
    step : int or None
        Steps taken so far, as they were counted; `NodeView.step` is what the function has reported.
    step_s : float or None
        Seconds of a step of training: the mean in this epoch of Keras' `fit`, else the median of the last ones; None
        before there are any.
    waits_rows, waits_data, waits_peers, computes, python : float
        Shares of the time, 0 to 1: waiting for fed rows, for the function's own ``tf.data``, for other nodes; in
        TensorFlow, and in Python. All are 0 where nothing is known.
    rows_s : float
        Rows taken from feeds, per second.
    where : str
        What the function's thread does now.
    has_gpu_peers : bool
        Whether waiting for peers counts as computing, since that happens on GPUs.
    cpu : float
        Cores in use by the node's processes.
    memory_bytes : int
        Their resident memory.
    host_cpu, host_memory : float
        Share of the host's CPU and memory in use, 0 to 1.
    host_cores : int
        The host's cores; 0 where not known.
    gpu : float or None
        Use of the node's GPUs, 0 to 1; None without one.
    gpu_memory_bytes : int or None
        Memory in use on them.
    trains_alone : bool
        Whether Keras' `fit` trains a model that no strategy shares with other nodes.
    idle_s : float
        Seconds since the last sign.
    last_sign : str
        That sign, such as ``"step 41"``.
    slower : float or None
        How many times slower than its peers it is, where it holds them up; else None.
    """

    step: int | None = None
    step_s: float | None = None
    waits_rows: float = 0.0
    waits_data: float = 0.0
    waits_peers: float = 0.0
    computes: float = 0.0
    python: float = 0.0
    rows_s: float = 0.0
    where: str = ""
    has_gpu_peers: bool = False
    cpu: float = 0.0
    memory_bytes: int = 0
    host_cpu: float = 0.0
    host_memory: float = 0.0
    host_cores: int = 0
    gpu: float | None = None
    gpu_memory_bytes: int | None = None
    trains_alone: bool = False
    idle_s: float = 0.0
    last_sign: str = ""
    slower: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether there are shares."""
        return self.waits_rows + self.waits_data + self.waits_peers + self.computes + self.python > 0

    @staticmethod
    def from_message(message: m.Activity) -> NodeActivity:
        """Return what a node has sent."""
        figures = msgspec.structs.asdict(message)
        del figures["rank"]
        return made_of(NodeActivity, {**figures, "slower": None})
