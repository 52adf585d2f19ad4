"""What a node does: its steps, what they wait for, and what it takes of its host."""

from __future__ import annotations

from tfos_lab.messages.common import Message


class Activity(Message, frozen=True):
    """What a node has done lately; sent about once a second.

    The child sends what it knows of its steps, the agent adds the figures of the processes and the host. Shares are of
    the last seconds, 0 to 1; together they are 1, or 0 before there are any.

    Attributes
    ----------
    step : int or None
        Steps taken so far, of all loops together.
    step_s : float or None
        Median seconds of the last steps.
    waits_rows, waits_data, waits_peers : float
        Share of the time spent waiting for rows of a feed, for the function's own ``tf.data`` pipeline, and for other
        nodes.
    computes, python : float
        Share spent in TensorFlow, and in Python of the function and its libraries.
    rows_s : float
        Rows taken from feeds, per second.
    where : str
        What the function's thread does, such as ``"train, Cell In[3], line 12"``.
    has_gpu_peers : bool
        Whether waiting for peers cannot be told from computing, since that happens on GPUs.
    cpu : float
        CPU seconds per second of the child and its processes.
    memory_bytes : int
        Resident memory of them.
    host_cpu, host_memory : float
        Share of the host's CPU and memory that is in use, by anyone.
    gpu, gpu_memory_bytes
        Use (0 to 1) and used memory of the node's GPUs; None without one.
    idle_s : float
        Seconds since the last sign of the function.
    last_sign : str
        What that was: ``"step 41"``, ``"took rows"``, ``"printed"``, ``"reported"`` or ``"began"``.
    """

    rank: int
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
    gpu: float | None = None
    gpu_memory_bytes: int | None = None
    idle_s: float = 0.0
    last_sign: str = ""


FromAgent = Activity
