"""Structs that several topics share."""

from __future__ import annotations

import msgspec

# The queue of rows that is read where none is named.
INPUT_QUEUE = "input"


class Message(msgspec.Struct, tag=True, frozen=True):
    """Base of all messages; a message is sent with the name of its type."""


class DriverAddress(msgspec.Struct, frozen=True):
    """Where the driver listens, and the keys to connect with; made for one cluster only."""

    endpoint: str
    server_key: str
    client_public_key: str
    client_secret_key: str

    @property
    def host(self) -> str:
        """The host's name or address, as the nodes reach it."""
        return self.endpoint.removeprefix("tcp://").rpartition(":")[0]


class LaunchSpec(msgspec.Struct, frozen=True):
    """All that an agent needs to reserve its rank; everything else comes from the driver.

    Attributes
    ----------
    owner
        Whose fork servers to use.
    watched_pid
        The process with which the agent ends: the kernel, or the executor's JVM.
    extra_env
        The user's ``env``; chooses the fork server.
    environ, cwd, sys_path
        What the child starts with.
    gpus
        The GPUs of this node, if Spark has assigned some.
    gpus_wanted
        How many GPUs of its host the node takes, where Spark has assigned none; None leaves the choice to the
        environment.
    shared_dir
        A folder that all nodes must see, or "".
    stays
        Whether the function works in ``cwd`` itself: the chief's does, in the folder of the notebook.
    host
        The name by which the other nodes reach this one; "" for its address on the route to the driver.
    ports
        The first and the last port on which the node may listen; None for any.
    network
        The network on which the nodes reach one another; "" if its address on the route to the driver is right.
    """

    cluster_id: str
    rank: int
    node: str
    driver: DriverAddress
    owner: str
    watched_pid: int
    executor: str = ""
    gpus: list[str] | None = None
    gpus_wanted: int | None = None
    extra_env: dict[str, str] = {}
    environ: dict[str, str] = {}
    cwd: str = "/"
    sys_path: list[str] = []
    driver_timeout_s: float = 600.0
    shared_dir: str = ""
    stays: bool = False
    host: str = ""
    ports: tuple[int, int] | None = None
    network: str = ""


class TlsIdentity(msgspec.Struct, frozen=True):
    """A certificate, its key, and the certificate of the authority that has signed it, in PEM; made for one cluster."""

    certificate: bytes
    key: bytes
    authority: bytes


class Outcome(msgspec.Struct, frozen=True):
    """How a node ended.

    ``kind`` is ``"returned"`` (``value`` holds the encoded result; a large one is a file of ``stored_bytes``),
    ``"raised"`` (``error``, ``message``, ``traceback``), ``"exited"`` (``exit_code``, negative for a signal), or
    ``"stopped"``.

    It has taken ``steps`` elements of the dataset that it read last, which may have ``dataset_ended``; -1 if that is
    not known. ``orphaned`` says that it was killed with the process that it was forked from.
    """

    kind: str
    value: bytes = b""
    error: str = ""
    message: str = ""
    traceback: str = ""
    consequence: bool = False
    exit_code: int = 0
    steps: int = -1
    dataset_ended: bool = False
    orphaned: bool = False
    stored_bytes: int = 0
