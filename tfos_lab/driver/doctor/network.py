"""Checks of this machine's network settings: proxies, the ports that the driver may use, the way to a master."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import secrets
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tfos_lab.core.listener import PORT_VARIABLE, listening_ports
from tfos_lab.driver.doctor.finding import Finding
from tfos_lab.errors import ConfigError
from tfos_lab.launchers.spark.session import HOST_VARIABLE

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
_LOOPBACK = ("localhost", "127.0.0.1")
_HOST_AND_PORT = re.compile(r"(?:[a-z0-9+]+://)*(\[[^\]]+\]|[^\[\]:/,]+):(\d+)")
_CONNECT_TIMEOUT_S = 3.0


# ---- proxies --------------------------------------------------------------------------------------------------------


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


# ---- ports of this machine ------------------------------------------------------------------------------------------


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


# ---- the way from executors to this machine -------------------------------------------------------------------------


@dataclass(frozen=True)
class Callback:
    """Where executors try to reach this machine, and the text that they read there; nothing where nobody listens."""

    host: str = ""
    port: int = 0
    token: str = ""


@contextlib.contextmanager
def answering(bind_host: str, public_host: str) -> Iterator[Callback]:
    """Listen as a cluster's driver does, on a port that it would take, and tell everybody who connects a random text.

    Nothing is read from those who connect. The listener closes with the block.
    """
    listener = _listen(bind_host)
    if listener is None:
        yield Callback()
        return
    token = secrets.token_hex(16)
    thread = threading.Thread(target=_answer, args=(listener, token), name="tfos-doctor-answer", daemon=True)
    thread.start()
    try:
        yield Callback(public_host, listener.getsockname()[1], token)
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        listener.close()
        thread.join(1.0)


def _listen(host: str) -> socket.socket | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in _ports_to_try():
        with contextlib.suppress(OSError):
            return socket.create_server((host, port), family=family)
    return None


def _ports_to_try() -> list[int]:
    with contextlib.suppress(ConfigError):
        return listening_ports() or [0]
    return []


def _answer(listener: socket.socket, token: str) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError):
            connection.sendall(token.encode())


def unreachable_advice(callback: Callback) -> str:
    """Return what to do if executors cannot reach this machine."""
    return (
        f"let executors connect to this machine: open the port in the firewall or network policy ({PORT_VARIABLE}="
        f"9990-9999 fixes a range), and give an address that they know, with spark.driver.host or {HOST_VARIABLE} "
        f"(now {callback.host})"
    )


# ---- a master -------------------------------------------------------------------------------------------------------


def check_master(url: str) -> Finding | None:
    """Return what keeps this machine from a master such as ``spark://host:7077``; None if one of its hosts answers."""
    places = [(host.strip("[]"), int(port)) for host, port in _HOST_AND_PORT.findall(url)]
    reasons = [reason for place in places if (reason := _why_not(place))]
    if len(reasons) < len(places) or not places:
        return None
    advice = "check the address, that the master runs, and that no firewall blocks the port"
    return Finding("Spark master", ok=False, found=f"{url}: {'; '.join(reasons)}", advice=advice)


def _why_not(place: tuple[str, int]) -> str:
    try:
        socket.create_connection(place, _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return f"port {place[1]} of {place[0]} cannot be reached ({error.strerror or error})"
    return ""
