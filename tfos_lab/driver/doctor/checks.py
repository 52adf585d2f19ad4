"""What the doctor checks of this machine: what is installed, its folders and devices, its network, and Jupyter's parts.

Each check returns a `Finding`. None changes anything, or imports TensorFlow.
"""

from __future__ import annotations

import contextlib
import importlib.util
import ipaddress
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfos_lab.core.listener import PORT_VARIABLE, listening_ports
from tfos_lab.core.package_versions import FITTING, Range, clashes, dotted, installed_version, numbers_of
from tfos_lab.core.runtime_files import spool_root
from tfos_lab.driver.run_dir import existing_part, run_bases
from tfos_lab.driver.warm_servers import warm_servers
from tfos_lab.errors import ConfigError
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.node.forkserver.health import SILENT, STOPPED
from tfos_lab.node.gpus import free_gpus, visible_gpus
from tfos_lab.texts import format_count


@dataclass(frozen=True)
class Finding:
    """The result of one check: what was checked, whether it is fine, what was found, and what to do if it is not."""

    what: str
    ok: bool
    found: str
    advice: str = ""

    @property
    def sentence(self) -> str:
        """The finding and the advice as one sentence."""
        return f"{self.what}: {self.found}" + (f"; {self.advice}" if self.advice and not self.ok else "")


def render_text(findings: Iterable[Finding]) -> str:
    """Return the findings as a table for a terminal, with a summary at the end."""
    findings = list(findings)
    width = max((len(finding.what) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{'✓' if finding.ok else '✗'} {finding.what:<{width}}  {finding.found}")
        if finding.advice and not finding.ok:
            lines.append(f"  {'':<{width}}  → {finding.advice}")
    problems = [finding.what for finding in findings if not finding.ok]
    counted = format_count(len(problems), "problem")
    return "\n".join([*lines, "", f"{counted}: {', '.join(problems)}." if problems else "All is well."])


# ---- what is installed ----------------------------------------------------------------------------------------------


JAVA_NEEDED = 17
# Names of TensorFlow's packages; all of them install the same module.
_TENSORFLOW_NAMES = ("tensorflow", "tensorflow-cpu", "tensorflow-macos", "tf-nightly", "tensorflow-rocm")
_COMMAND_TIMEOUT_S = 10.0
# Spark's Python on this machine needs pyarrow to feed rows.
_WORKER_PROBE = "import sys, pyarrow; print('%d.%d' % sys.version_info[:2])"


def check_python() -> Finding:
    """Check the version of this Python."""
    fitting, version = FITTING["python"], sys.version_info[:3]
    found = f"{dotted(version)}{_newer(fitting, version)} ({sys.executable})"
    return Finding("Python", version[:2] >= fitting.first, found, fitting.advice)


def check_java(environ: Mapping[str, str]) -> Finding:
    """Check the Java that Spark's scripts would start: the one of JAVA_HOME, else the one on PATH."""
    home = environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environ.get("PATH"))
    advice = (
        f"Spark needs Java {JAVA_NEEDED} or newer: apt-get install openjdk-17-jre-headless, or point JAVA_HOME at one"
    )
    if java is None:
        return Finding("Java", ok=False, found="none on PATH, and JAVA_HOME is not set", advice=advice)
    output = _output_of([java, "-version"], environ)
    version = java_version(output or "")
    if version is None:
        where = f"JAVA_HOME={home}" if home else java
        return Finding("Java", ok=False, found=f"{where} is no Java that runs", advice=advice)
    return Finding("Java", version >= JAVA_NEEDED, f"{version} ({java})", advice)


def java_version(text: str) -> int | None:
    """Read the major version from the output of ``java -version``.

    Examples
    --------
    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_412"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def _check_package(what: str, packages: Mapping[str, Range], *, needed: bool) -> Finding:
    """Check the version of the first of some packages that is installed, without importing it."""
    for name, fitting in packages.items():
        version = installed_version(name)
        if version is None:
            continue
        found = version + _newer(fitting, numbers_of(version)) + (f" ({name})" if name != next(iter(packages)) else "")
        return Finding(what, numbers_of(version) >= fitting.first, found, fitting.advice)
    found = "not installed" if needed else "not installed; only cluster.model() and nodes of this machine need it"
    return Finding(what, ok=not needed, found=found, advice=next(iter(packages.values())).advice)


def _newer(fitting: Range, version: tuple[int, ...]) -> str:
    is_newer = version[:2] >= fitting.before
    return f", newer than those that were tried (before {dotted(fitting.before)})" if is_newer else ""


def check_versions() -> Finding:
    """Check that what is installed fits together."""
    problems = clashes()
    return Finding("versions", not problems, "; ".join(problems) or "fit together", "install what is named there")


def check_spark_python(environ: Mapping[str, str]) -> Finding:
    """Check the Python that Spark starts for tasks on this machine; if it is another one, rows cannot be fed."""
    mine = dotted(sys.version_info[:2])
    python = environ.get("PYSPARK_PYTHON") or "python3"
    if alias_of(python):
        return Finding("Spark's Python", ok=True, found=f"{python}, from an archive that Spark unpacks on executors")
    advice = f"export PYSPARK_PYTHON={sys.executable} before Jupyter starts (`tfos-lab lab` does)"
    output = _output_of([python, "-c", _WORKER_PROBE], environ)
    last = output.strip().splitlines()[-1] if output and output.strip() else ""
    if output is None:
        return Finding("Spark's Python", ok=False, found=f"{python} does not run", advice=advice)
    if "pyarrow" in last:
        return Finding("Spark's Python", ok=False, found=f"{python} lacks pyarrow", advice=advice)
    found = f"{last} ({python})" if last == mine else f"{python} is Python {last}, and this is {mine}"
    return Finding("Spark's Python", last == mine, found, advice)


def alias_of(python: str) -> str:
    """Return the folder that a relative path of a Python begins with: what an archive is unpacked as; "" for others.

    Examples
    --------
    >>> alias_of("./environment/bin/python"), alias_of("/usr/bin/python3"), alias_of("python3")
    ('environment', '', '')
    """
    parts = Path(python).parts
    return "" if Path(python).is_absolute() or len(parts) < 2 else parts[0]


def _output_of(command: list[str], environ: Mapping[str, str]) -> str | None:
    """Return the output of a command, or None if there is no such command or it hangs."""
    program = shutil.which(command[0], path=environ.get("PATH"))
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, *command[1:]],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace")


# ---- folders and devices --------------------------------------------------------------------------------------------


FREE_BYTES_NEEDED = 2 * 1024**3
SHARED_MEMORY_NEEDED = 32 * 1024**2
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's own folder, looked at only
SHARED_MEMORY_ADVICE = (
    "NCCL, tf.data workers and Python's multiprocessing keep buffers there: remove what ended processes have left in "
    "/dev/shm, or make it larger (docker run --shm-size=2g; Kubernetes: an emptyDir of medium Memory)"
)
_GIB = 1024**3
_MIB = 1024**2


def check_gpus() -> Finding:
    """Count the GPUs; having none is fine."""
    gpus = visible_gpus()
    if not gpus:
        return Finding("GPUs", ok=True, found="none: nodes on this machine compute on the CPU")
    free = free_gpus(gpus)
    return Finding("GPUs", ok=True, found=f"{', '.join(gpus)}; {len(free) or 'none'} of {len(gpus)} free")


def check_scratch() -> Finding:
    """Check the folder for sockets and spools of nodes: it must be private and have space for rows."""
    try:
        root = spool_root()
    except OSError as error:
        return Finding("scratch folder", ok=False, found=str(error), advice="set TMPDIR to a folder of your own")
    there = shutil.disk_usage(root).free
    advice = "rows that are fed lie here: make room, or set TMPDIR to a larger disk"
    return Finding("scratch folder", there >= FREE_BYTES_NEEDED, f"{root}, {there / _GIB:.1f} GiB free", advice)


def check_shared_memory() -> Finding:
    """Check that shared memory is not full."""
    if not SHARED_MEMORY.is_dir():
        return Finding("shared memory", ok=True, found=f"this system has no {SHARED_MEMORY}")
    there = shutil.disk_usage(SHARED_MEMORY).free
    ok = there >= SHARED_MEMORY_NEEDED
    found = f"{SHARED_MEMORY}, {there / _MIB:,.0f} MiB free" if ok else shared_memory_shortage(there)
    return Finding("shared memory", ok, found, SHARED_MEMORY_ADVICE)


def shared_memory_shortage(there: int) -> str:
    """Say that shared memory is full, with what is left of it."""
    return f"{SHARED_MEMORY} is full: {there / _MIB:,.0f} MiB are left"


def check_runs() -> Finding:
    """Check that the folder for the logs of runs can be written to, by making a file there for a moment."""
    folder, fallback = run_bases()
    existing = existing_part(folder)
    try:
        # Permissions say nothing to root, and nothing of file systems that are mounted read-only.
        tempfile.TemporaryFile(prefix=".tfos-doctor-", dir=existing).close()
    except OSError as error:
        reason = f"{existing} cannot be written to ({error.strerror or error})"
        advice = f"name a folder of your own with TFOS_LAB_RUNS; until then, logs go to {fallback}"
        return Finding("run folder", ok=False, found=reason, advice=advice)
    return Finding("run folder", ok=True, found=str(folder))


# ---- fork servers ---------------------------------------------------------------------------------------------------


def check_fork_servers() -> Finding:
    """Ask this user's fork servers on this machine for their state; if there are none, the first cell starts them."""
    try:
        servers = warm_servers(owner="")
    except OSError as error:
        return Finding("fork servers", ok=False, found=str(error), advice="set TMPDIR to a folder of your own")
    if stuck := [f"the {one.kind} one {one.symptom}" for one in servers if one.symptom in (STOPPED, SILENT)]:
        return Finding(
            "fork servers", ok=False, found=", ".join(stuck), advice="run a cell: it replaces one that does not work"
        )
    # What those of other environments and kernels cannot import does not matter here.
    if broken := [one.symptom for one in servers if one.symptom and one.ours]:
        return Finding(
            "fork servers", ok=False, found=f"cannot import: {broken[0]}", advice="fix that, then restart the kernel"
        )
    counts = Counter(f"{one.kind} {one.state}" for one in servers if not one.symptom)
    found = ", ".join(f"{count} {which}" for which, count in counts.items())
    return Finding("fork servers", ok=True, found=found or "none yet: the first cell starts them")


# ---- network --------------------------------------------------------------------------------------------------------


_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
_LOOPBACK = ("localhost", "127.0.0.1")
_CONNECT_TIMEOUT_S = 3.0


def check_proxies(environ: Mapping[str, str]) -> Finding:
    """Check that connections of this machine to itself do not go to a proxy."""
    given = [name for name in (*_PROXIES, *(name.upper() for name in _PROXIES)) if environ.get(name)]
    if not given:
        return Finding("proxies", ok=True, found="none")
    exceptions = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    captured = [host for host in _LOOPBACK if not is_excepted(host, exceptions)]
    which = ", ".join(given)
    if not captured:
        return Finding("proxies", ok=True, found=f"{which}, not for this machine itself")
    value = ",".join([*([exceptions] if exceptions else []), *captured])
    found = f"{which} also holds for {' and '.join(captured)}: what this machine sends to itself goes to the proxy"
    advice = f"before Jupyter starts: export no_proxy={value} NO_PROXY={value} (and add the cluster's hosts)"
    return Finding("proxies", ok=False, found=found, advice=advice)


def is_excepted(host: str, exceptions: str) -> bool:
    """Whether a value of no_proxy names a host, a domain of it, or a network that has it.

    Examples
    --------
    >>> is_excepted("127.0.0.1", "example.com, 127.0.0.0/8"), is_excepted("localhost", "127.0.0.1")
    (True, False)
    """
    entries = [entry.strip().lower() for entry in exceptions.split(",") if entry.strip()]
    return any(
        entry in ("*", host) or host.endswith(f".{entry.lstrip('.')}") or _is_in_network(host, entry)
        for entry in entries
    )


def _is_in_network(host: str, entry: str) -> bool:
    with contextlib.suppress(ValueError):
        return "/" in entry and ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    return False


def check_ports() -> Finding:
    """Check that a port is free on which a cluster's nodes can reach this kernel."""
    try:
        ports = listening_ports()
    except ConfigError as error:
        return Finding("ports", ok=False, found="; ".join(error.problems), advice=f"correct {PORT_VARIABLE}")
    if not ports:
        return Finding("ports", ok=True, found="any free one")
    free = [port for port in ports if _is_free(port)]
    text = f"{ports[0]}-{ports[-1]}" if len(ports) > 1 else str(ports[0])
    if free:
        return Finding("ports", ok=True, found=f"{PORT_VARIABLE}={text}, {len(free)} of {len(ports)} free")
    advice = f"each kernel with clusters takes one: stop those of another kernel, or give {PORT_VARIABLE} a wider range"
    return Finding("ports", ok=False, found=f"{PORT_VARIABLE}={text}: none is free", advice=advice)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind(("", port))
            return True
    return False


def check_master(url: str) -> Finding | None:
    """Return what keeps this machine from a master such as ``spark://host:7077``; None if one of its hosts answers."""
    refusals = spark_session.refusals_at(url, _CONNECT_TIMEOUT_S)
    if not refusals:
        return None
    reasons = [f"{place} cannot be reached ({error.strerror or error})" for place, error in refusals.items()]
    advice = "check the address, that the master runs, and that no firewall blocks the port"
    return Finding("Spark master", ok=False, found=f"{url}: {'; '.join(reasons)}", advice=advice)


# ---- Jupyter --------------------------------------------------------------------------------------------------------


LAB_EXTENSION = "tfos-lab"
SERVER_EXTENSION = "tfos_lab.notebook.server"
_REINSTALL = "pip install --force-reinstall --no-deps tfos_lab (in a checkout: make setup), then restart Jupyter"


def check_lab_extension() -> Finding:
    """Check that JupyterLab finds the side panel's extension, and that nobody has disabled it."""
    from jupyter_core.paths import jupyter_config_path, jupyter_path

    if importlib.util.find_spec("jupyterlab") is None:
        return Finding("Lab extension", ok=True, found="no JupyterLab in this environment")
    folders = [Path(path) for path in jupyter_path("labextensions")]
    found = next((path for path in folders if (path / LAB_EXTENSION / "package.json").is_file()), None)
    if found is None:
        return Finding("Lab extension", ok=False, found=f"no {LAB_EXTENSION} in {folders[0]}", advice=_REINSTALL)
    pages = [Path(path) / "labconfig" / "page_config.json" for path in jupyter_config_path()]
    disabling = disabled_by([*pages, Path(sys.prefix) / "share/jupyter/lab/settings/page_config.json"])
    if disabling is not None:
        advice = f"jupyter labextension enable {LAB_EXTENSION}, then reload the page"
        return Finding("Lab extension", ok=False, found=f"disabled in {disabling}", advice=advice)
    return Finding("Lab extension", ok=True, found=str(found / LAB_EXTENSION))


def disabled_by(files: Iterable[Path]) -> Path | None:
    """Return the first file that disables the Lab extension; an earlier one that enables it has the last word."""
    for path in files:
        listed = _read(path).get("disabledExtensions")
        entries = dict.fromkeys(listed, True) if isinstance(listed, list) else listed
        if isinstance(entries, dict):
            own = [bool(value) for name, value in entries.items() if str(name).partition(":")[0] == LAB_EXTENSION]
            if own:
                return path if any(own) else None
    return None


def check_server_extension() -> Finding:
    """Check that the Jupyter server loads the part that shows clusters and TensorBoard."""
    from jupyter_core.paths import jupyter_config_path

    if importlib.util.find_spec("jupyter_server") is None:
        return Finding("server extension", ok=True, found="no Jupyter server in this environment")
    said = next(_server_settings([Path(path) for path in jupyter_config_path()]), None)
    if said is None:
        return Finding("server extension", ok=False, found="no configuration names it", advice=_REINSTALL)
    path, enabled = said
    advice = f"jupyter server extension enable {SERVER_EXTENSION}, then restart Jupyter"
    return Finding("server extension", enabled, str(path) if enabled else f"disabled in {path}", advice)


def _server_settings(folders: Iterable[Path]) -> Iterator[tuple[Path, bool]]:
    """Yield the files that enable or disable the server's extension, the one that counts first."""
    for folder in folders:
        # Within a folder, Jupyter reads files by their names, and the main one last; the last one counts.
        parts = sorted(folder.glob("jupyter_server_config.d/*.json"), reverse=True)
        for path in [folder / "jupyter_server_config.json", *parts]:
            named = _read(path).get("ServerApp")
            extensions = named.get("jpserver_extensions") if isinstance(named, dict) else None
            if isinstance(extensions, dict) and SERVER_EXTENSION in extensions:
                yield path, bool(extensions[SERVER_EXTENSION])


def _read(path: Path) -> dict[str, object]:
    with contextlib.suppress(OSError, ValueError):
        value = json.loads(path.read_text("utf-8"))
        return value if isinstance(value, dict) else {}
    return {}


# ---- all of them -----------------------------------------------------------------------------------------------------


def machine_checks(*, nodes_run_here: bool) -> Sequence[Callable[[], Finding]]:
    """Return the checks of this machine, in the order in which problems are best fixed."""
    tensorflow = dict.fromkeys(_TENSORFLOW_NAMES, FITTING["tensorflow"])
    keras = {"keras": FITTING["keras"], "tf-keras": FITTING["tf_keras"]}
    return (
        check_python,
        lambda: check_java(os.environ),
        lambda: _check_package("pyspark", {"pyspark": FITTING["pyspark"]}, needed=True),
        lambda: check_spark_python(os.environ),
        # A notebook whose nodes all run on executors needs neither of these.
        lambda: _check_package("TensorFlow", tensorflow, needed=nodes_run_here),
        lambda: _check_package("Keras", keras, needed=nodes_run_here),
        check_versions,
        check_gpus,
        check_scratch,
        check_shared_memory,
        check_runs,
        lambda: check_proxies(os.environ),
        check_ports,
        check_lab_extension,
        check_server_extension,
        check_fork_servers,
    )
