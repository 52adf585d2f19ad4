"""A real S3 server on this machine, over HTTP on loopback, that refuses wrong keys.

It is one of Python (moto). Its packages are no part of our environment: pip brings them once, beside the other rigs'
parts.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.rigs.yarn import JARS, RigMissing
from tests.support.daemon import Daemon

_PACKAGES = ("moto==5.2.5", "flask", "flask-cors")
_FETCH_TIMEOUT_S = 240
_START_TIMEOUT_S = 60


@dataclass(frozen=True)
class S3Server:
    """A running server with an empty bucket that is called ``bucket``.

    Parameters
    ----------
    url : str
        Such as ``http://127.0.0.1:5000``.
    key, secret : str
        Of the only user that it lets in.
    """

    url: str
    key: str
    secret: str

    @property
    def environ(self) -> dict[str, str]:
        """The variables by which all clients find the server and the keys."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    @property
    def hadoop_conf(self) -> dict[str, str]:
        """The settings by which Spark finds the server and the keys."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.url,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": self.key,
            "spark.hadoop.fs.s3a.secret.key": self.secret,
        }


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """Run a server until the block ends, or this process; its log is in ``folder``.

    Raises
    ------
    RigMissing
        If its packages cannot be installed.
    """
    script = Path(__file__).with_name("s3_server.py")
    command, env = [sys.executable, "-S", str(script)], {"PYTHONPATH": str(packages(*_PACKAGES))}
    with Daemon("S3", command, log=folder / "s3.log", env=env) as daemon:
        ready = daemon.wait_for(r"ready: (\S+) (\S+) (\S+)", timeout_s=_START_TIMEOUT_S)
        yield S3Server(*ready.groups())


def packages(*wanted: str) -> Path:
    """Return a folder with packages that are no part of our environment; pip brings them if they are not there yet.

    Raises
    ------
    RigMissing
        If they cannot be installed.
    """
    home = JARS / f"{wanted[0].replace('==', '-')}-python{sys.version_info.major}.{sys.version_info.minor}"
    if not home.exists():
        JARS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=JARS) as part:
            place = Path(part, "packages")
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(place), *wanted]
            try:
                subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=True)
            except subprocess.SubprocessError as error:
                raise RigMissing(f"pip cannot bring {wanted[0]}: {error}") from error
            if not home.exists():  # another process has been quicker
                place.rename(home)
    return home
