"""Servers on this machine, over HTTP on loopback, that speak the protocols of S3, of Azure's store and of Google's.

S3's is moto and Google's gcp-storage-emulator, both of Python and brought by uv; Azure's is Azurite, which npm brings.
None is a part of our environment: they are brought once, in seconds, and kept beside the other rigs' parts. They keep
files in memory. The first and the last refuse wrong keys; Google's knows none.
"""

from __future__ import annotations

import base64
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyarrow import fs

from tests.rigs.yarn import JARS, RigMissing
from tests.support.daemon import Daemon

_MOTO = ("moto==5.2.5", "flask", "flask-cors")
_AZURITE = "azurite@3.37.0"
_GOOGLE = ("gcp-storage-emulator==2026.7.19",)
_FETCH_TIMEOUT_S = 240
_START_TIMEOUT_S = 60
_ACCOUNT = "ada"
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class StoreServer:
    """A running server with an empty bucket that is called ``bucket``.

    ``address`` is that of a bucket, with ``{}`` for its name. By ``environ`` clients, and by ``hadoop_conf`` Spark,
    find the server and the key. ``wrong`` has variables with a wrong key, and ``secrets`` what no log and no record may
    show; both are empty where the server knows no keys.
    """

    name: str
    address: str
    environ: dict[str, str]
    hadoop_conf: dict[str, str]
    wrong: dict[str, str] = field(default_factory=dict)
    secrets: Sequence[str] = ()


@contextmanager
def s3_server(folder: Path) -> Iterator[StoreServer]:
    """Run moto until the block ends, or this process; its log is in ``folder``."""
    command, env = [sys.executable, "-S", str(_HERE / "s3_server.py")], {"PYTHONPATH": str(packages(*_MOTO))}
    with Daemon("S3", command, log=folder / "s3.log", env=env) as daemon:
        ready = daemon.wait_for(r"ready: (\S+) (\S+) (\S+)", timeout_s=_START_TIMEOUT_S)
        url, key, secret = ready.groups()
        wrong = {"AWS_SECRET_ACCESS_KEY": "wrong"}
        environ = {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        conf = {
            "spark.hadoop.fs.s3a.endpoint": url,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": key,
            "spark.hadoop.fs.s3a.secret.key": secret,
        }
        yield StoreServer("s3", "s3://{}", environ, conf, wrong, (key, secret))


@contextmanager
def azure_server(folder: Path) -> Iterator[StoreServer]:
    """Run Azurite until the block ends, or this process; its log is in ``folder``."""
    install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", ".", _AZURITE]
    program = _kept(_AZURITE, install) / "node_modules" / ".bin" / "azurite-blob"
    options = ["--blobPort", "0", "--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    key = base64.b64encode(secrets.token_bytes(48)).decode()
    env = {
        "PATH": os.environ["PATH"],
        "AZURITE_ACCOUNTS": f"{_ACCOUNT}:{key}",
        "NODE_OPTIONS": f'--require "{_HERE / "azurite.js"}"',
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
    """Run gcp-storage-emulator until the block ends, or this process; its log is in ``folder``."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    command = [sys.executable, "-S", str(_HERE / "google_server.py"), str(port)]
    env = {"PYTHONPATH": str(packages(*_GOOGLE))}
    with Daemon("gcp-storage-emulator", command, log=folder / "google.log", env=env) as daemon:
        daemon.wait_for("ready", timeout_s=_START_TIMEOUT_S)
        server = f"127.0.0.1:{port}"
        store = fs.GcsFileSystem(anonymous=True, scheme="http", endpoint_override=server, project_id="tests")
        store.create_dir("bucket")
        url = f"http://{server}"
        # TensorFlow's own gs:// knows no other servers than Google's.
        conf = {"spark.hadoop.fs.gs.storage.root.url": url}
        yield StoreServer("google", "gcs://{}", {"STORAGE_EMULATOR_HOST": url}, conf)


def packages(*wanted: str) -> Path:
    """Return a folder with Python packages that are not part of our environment; uv brings those that are not there."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # Unlike pip, it compiles nothing: moto has thousands of modules, of which a few are imported.
    uv = str(Path(sys.executable).with_name("uv"))
    install = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", ".", *wanted]
    return _kept(f"{wanted[0].replace('==', '-')}-{version}", install)


def _kept(what: str, command: list[str]) -> Path:
    """Return the folder with what a package client has brought, or brings now, into its working folder."""
    home = JARS / what
    if not home.exists():
        program = shutil.which(command[0])
        if program is None:
            raise RigMissing(f"no {command[0]}, which brings {what}")
        JARS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=JARS) as part:
            place = Path(part, "place")
            place.mkdir()
            command = [program, *command[1:]]
            try:
                subprocess.run(
                    command,
                    cwd=place,
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
