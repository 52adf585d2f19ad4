"""Servers on this machine, over HTTP on loopback, that speak the protocols of Azure's and of Google's stores.

Azure's is Azurite, which npm brings in seconds; it refuses wrong keys. Google's is fake-gcs-server, which Go builds in
minutes, and only for ``make stores``; it knows no keys. Both are kept beside the other rigs' parts, and keep files in
memory.
"""

from __future__ import annotations

import base64
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyarrow import fs

from tests.rigs.yarn import JARS, RigMissing
from tests.support.daemon import Daemon

_AZURITE = "azurite@3.37.0"
_GOOGLE = "github.com/fsouza/fake-gcs-server@v1.56.1"
_ALL = "TFOS_TEST_STORES"
_FETCH_TIMEOUT_S = 240
_START_TIMEOUT_S = 60
_ACCOUNT = "ada"


@dataclass(frozen=True)
class StoreServer:
    """A running server with an empty bucket that is called ``bucket``.

    Parameters
    ----------
    name : str
        ``"azure"`` or ``"google"``.
    address : str
        Of a bucket, with ``{}`` for its name.
    environ, hadoop_conf : dict of str to str
        The variables by which clients, and the settings by which Spark, find the server and the key.
    wrong : dict of str to str
        The variables with a wrong key; empty where the server knows no keys, and so are ``secrets``.
    """

    name: str
    address: str
    environ: dict[str, str]
    hadoop_conf: dict[str, str]
    wrong: dict[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()


@contextmanager
def azure_server(folder: Path) -> Iterator[StoreServer]:
    """Run Azurite until the block ends, or this process; its log is in ``folder``.

    Raises
    ------
    RigMissing
        If npm cannot bring it.
    """
    place = _kept(_AZURITE, ["npm", "install", "--no-audit", "--no-fund", "--prefix", ".", _AZURITE])
    key = base64.b64encode(secrets.token_bytes(48)).decode()
    program = place / "node_modules" / ".bin" / "azurite-blob"
    options = ["--blobPort", "0", "--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    patch = Path(__file__).with_name("azurite.js")
    env = {
        "PATH": os.environ["PATH"],
        "AZURITE_ACCOUNTS": f"{_ACCOUNT}:{key}",
        "NODE_OPTIONS": f'--require "{patch}"',
    }
    with Daemon("Azurite", [str(program), *options], log=folder / "azurite.log", env=env) as daemon:
        server = daemon.wait_for(r"listens on http://(\S+)", timeout_s=_START_TIMEOUT_S)[1]
        schemes = {f"{kind}_storage_scheme": "http" for kind in ("blob", "dfs")}
        hosts = {f"{kind}_storage_authority": server for kind in ("blob", "dfs")}
        fs.AzureFileSystem(_ACCOUNT, account_key=key, **schemes, **hosts).create_dir("bucket")

        def environ(key: str) -> dict[str, str]:
            words = f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={key}"
            return {"AZURE_STORAGE_CONNECTION_STRING": f"{words};BlobEndpoint=http://{server}/{_ACCOUNT}"}

        conf = {
            "spark.hadoop.fs.azure.abfs.endpoint": server,
            "spark.hadoop.fs.azure.always.use.https": "false",
            f"spark.hadoop.fs.azure.account.key.{_ACCOUNT}.dfs.core.windows.net": key,
        }
        wrong = environ(base64.b64encode(b"another").decode())
        address = f"abfss://{{}}@{_ACCOUNT}.dfs.core.windows.net"
        yield StoreServer("azure", address, environ(key), conf, wrong, (key,))


@contextmanager
def google_server(folder: Path) -> Iterator[StoreServer]:
    """Run fake-gcs-server until the block ends, or this process; its log is in ``folder``.

    Raises
    ------
    RigMissing
        If Go has not built it yet, and ``make stores`` does not run, or cannot build it.
    """
    if not (os.environ.get(_ALL) or _home(_GOOGLE).exists()):
        raise RigMissing("Go takes minutes to build fake-gcs-server: `make stores` does it")
    place = _kept(_GOOGLE, ["go", "install", "-ldflags=-s -w", _GOOGLE])
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    server = f"127.0.0.1:{port}"
    command = [str(place / "fake-gcs-server"), "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1"]
    command += ["-port", str(port), "-public-host", server]
    with Daemon("fake-gcs-server", command, log=folder / "google.log") as daemon:
        url = daemon.wait_for_url(r"server started at (http://[\d.:]+)", timeout_s=_START_TIMEOUT_S)
        store = fs.GcsFileSystem(anonymous=True, scheme="http", endpoint_override=server, project_id="tests")
        store.create_dir("bucket")
        # TensorFlow's own gs:// knows no other servers than Google's.
        conf = {"spark.hadoop.fs.gs.storage.root.url": url}
        yield StoreServer("google", "gcs://{}", {"STORAGE_EMULATOR_HOST": url}, conf)


def _home(what: str) -> Path:
    return JARS / what.rpartition("/")[2]


def _kept(what: str, command: list[str]) -> Path:
    """Return the folder with what a package client has brought, or brings now, into its working folder."""
    home = _home(what)
    if not home.exists():
        program = shutil.which(command[0])
        if program is None:
            raise RigMissing(f"no {command[0]}, which brings {what}")
        JARS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=JARS) as part:
            place = Path(part, "place")
            place.mkdir()
            env = {**os.environ, "GOBIN": str(place), "GOTOOLCHAIN": "local"}
            try:
                subprocess.run(
                    [program, *command[1:]],
                    cwd=place,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_FETCH_TIMEOUT_S,
                    check=True,
                )
            except subprocess.SubprocessError as error:
                raise RigMissing(f"{command[0]} cannot bring {what}: {error}") from error
            if not home.exists():  # another process has been quicker
                place.rename(home)
    return home
