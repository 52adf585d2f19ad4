"""What a cluster record says of a cluster: plain data, which `tfos_lab.core.cluster_records` writes and reads."""

from __future__ import annotations

import msgspec

from tfos_lab.core.states import known_run_state


class RecordedActivity(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has done in the last seconds: see `tfos_lab.engine.state.activity`, where the names are explained."""

    step_s: float | None = None
    waits_rows: float = 0.0
    waits_data: float = 0.0
    waits_peers: float = 0.0
    computes: float = 0.0
    python: float = 0.0
    where: str = ""
    cpu: float = 0.0
    memory_bytes: int = 0
    host_cpu: float = 0.0
    host_memory: float = 0.0
    gpu: float | None = None
    gpu_memory_bytes: int | None = None
    idle_s: float = 0.0
    last_sign: str = ""
    slower: float | None = None


class RecordedNode(msgspec.Struct, frozen=True):
    """One node of a cluster, as it was a few seconds ago at most; metrics that are not finite are None.

    ``hung`` is a sentence if the node shows no sign of work although it should. ``activity`` is None before its first
    figures.
    """

    node: str
    state: str
    host: str = ""
    detail: str = ""
    pid: int = 0
    gpus: tuple[str, ...] = ()
    step: int | None = None
    total_steps: int | None = None
    rows: int = 0
    metrics: dict[str, float | None] = {}
    hung: str = ""
    activity: RecordedActivity | None = None


class RecordedFigures(msgspec.Struct, frozen=True):
    """How far a cluster is: its slowest node's step, and one metric, which is the loss where there is one.

    ``progress`` is how much of the training is done, 0 to 1; like ``seconds_left`` it is None where it is not known.
    """

    step: int | None = None
    total_steps: int | None = None
    metric: str = ""
    value: float | None = None
    progress: float | None = None
    seconds_left: float | None = None


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the Jupyter server knows about a cluster, or about a folder that TensorBoard shows.

    ``pid`` and ``born`` identify its process; ``tensorboard`` and ``control`` are paths of unix sockets, or empty.
    ``notebook`` is the path of the notebook that the kernel was started for, or empty. ``verdict`` says why training is
    as slow as it is, or nothing.
    """

    id: str
    name: str
    state: str
    pid: int
    born: str
    started_s: float
    reason: str = ""
    kernel_id: str = ""
    notebook: str = ""
    launcher: str = ""
    nodes: tuple[RecordedNode, ...] = ()
    figures: RecordedFigures = RecordedFigures()
    verdict: str = ""
    run_dir: str = ""
    tensorboard: str = ""
    control: str = ""

    @property
    def lives(self) -> bool:
        """Whether it is a cluster that has not ended."""
        state = known_run_state(self.state)
        return state is None or not state.ended
