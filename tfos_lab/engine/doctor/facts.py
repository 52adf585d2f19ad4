"""What an executor reports to the doctor."""

from __future__ import annotations

import msgspec


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One executor's report, made by `tfos_lab.node.host_facts`.

    Attributes
    ----------
    host, executor : str
        The host's name, and Spark's id of the executor.
    python : str
        The minor version of its Python, such as ``"3.11"``.
    problem : str
        Why no node can run there, as half a sentence; "" if one can.
    platform, environment : str
        System and processor; the manifest of the archive that its Python is from, or "".
    gpus : str
        GPUs of the host, separated by commas.
    versions : dict of str to str
        Versions of the packages in `tfos_lab.core.package_versions.COMPARED`, those that are installed.
    clock_s : float
        What its clock showed, in seconds since the epoch.
    shared_memory_bytes : int or None
        Free bytes of /dev/shm; None where there is none.
    unreachable : str
        Why it cannot connect to the driver's machine; "" if it can, or was not asked to.
    sees_probe : bool
        Whether it finds the file that the driver has made in the run folder.
    """

    host: str
    python: str
    clock_s: float
    executor: str = ""
    problem: str = ""
    platform: str = ""
    environment: str = ""
    gpus: str = ""
    versions: dict[str, str] = {}
    shared_memory_bytes: int | None = None
    unreachable: str = ""
    sees_probe: bool = True


def decode_facts(text: str) -> HostFacts:
    """Read a report; raises `msgspec.ValidationError` if it is none."""
    return msgspec.json.decode(text, type=HostFacts)
