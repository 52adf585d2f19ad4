"""A real Kerberos: MIT's KDC on a free port of loopback, with all its files in a folder of its own.

Debian has it as ``krb5-kdc``, and ``kinit`` as ``krb5-user``.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.rigs.yarn import RigMissing
from tests.support.daemon import Daemon

REALM = "RIG"
# All servers of a JVM have one identity: the JVM has a single login.
SERVERS = f"hdfs/localhost@{REALM}"
USER = "ada"
FOR_CLIENTS = (
    "hadoop.security.authentication",
    "dfs.data.transfer.protection",
    "dfs.namenode.kerberos.principal",
    "dfs.datanode.kerberos.principal",
    "yarn.resourcemanager.principal",
)
_PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
_START_TIMEOUT_S = 30
_CLIENTS = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
[realms]
  {realm} = {{
    kdc = 127.0.0.1:{port}
  }}
[domain_realm]
  localhost = {realm}
"""
_SERVER = """\
[kdcdefaults]
  kdc_listen = 127.0.0.1:{port}
  kdc_tcp_listen = 127.0.0.1:{port}
[realms]
  {realm} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    acl_file = {folder}/acl
  }}
[logging]
  kdc = STDERR
"""


@dataclass(frozen=True)
class Kerberos:
    """A running KDC of the realm `REALM`, with the identities `SERVERS` and `USER`.

    ``clients`` has the settings of clients: ``KRB5_CONFIG``, and ``-Djava.security.krb5.conf`` of a JVM.
    """

    folder: Path
    clients: Path

    @property
    def keytab(self) -> Path:
        """The keys of the servers, and of the user."""
        return self.folder / "keys"

    def kinit(self, cache: Path, *options: str) -> None:
        """Bring a ticket of the user, as ``kinit`` does, into a file that ``KRB5CCNAME`` is to name."""
        command = ["kinit", "-c", f"FILE:{cache}", "-k", "-t", str(self.keytab), *options, USER]
        _call(command, self.environ)

    @property
    def hadoop(self) -> dict[str, str]:
        """The settings of Hadoop's servers; `FOR_CLIENTS` names those that clients have, too."""
        servers = ("dfs.namenode", "dfs.datanode", "yarn.resourcemanager", "yarn.nodemanager")
        keytabs = {f"{name}.keytab{'.file' if name.startswith('dfs') else ''}": str(self.keytab) for name in servers}
        names = {f"{name}.{'kerberos.' if name.startswith('dfs') else ''}principal": SERVERS for name in servers}
        return {
            **keytabs,
            **names,
            "hadoop.security.authentication": "kerberos",
            "dfs.block.access.token.enable": "true",
            "dfs.data.transfer.protection": "authentication",
            # Of what a test cannot have: ports below 1024, or pages by HTTPS.
            "ignore.secure.ports.for.testing": "true",
        }

    @property
    def environ(self) -> dict[str, str]:
        """The environment of MIT's programs."""
        return {**os.environ, "PATH": _PATH, "KRB5_CONFIG": str(self.clients), "KRB5_KDC_PROFILE": f"{self.folder}/kdc"}


@contextmanager
def kerberos(folder: Path) -> Iterator[Kerberos]:
    """Run a KDC until the block ends, or this process."""
    missing = [name for name in ("krb5kdc", "kadmin.local", "kdb5_util", "kinit") if not shutil.which(name, path=_PATH)]
    if missing:
        raise RigMissing(f"no Kerberos ({', '.join(missing)}): apt-get install krb5-kdc krb5-admin-server krb5-user")
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    (folder / "krb5.conf").write_text(_CLIENTS.format(realm=REALM, port=port))
    (folder / "kdc").write_text(_SERVER.format(realm=REALM, port=port, folder=folder))
    realm = Kerberos(folder, folder / "krb5.conf")
    _call(["kdb5_util", "create", "-s", "-r", REALM, "-P", "of a test"], realm.environ)
    for name in (SERVERS, USER):
        _call(["kadmin.local", "-q", f"addprinc -randkey {name}"], realm.environ)
        _call(["kadmin.local", "-q", f"ktadd -k {realm.keytab} {name}"], realm.environ)
    with Daemon("krb5kdc", ["krb5kdc", "-n"], log=folder / "kdc.log", env=realm.environ) as daemon:
        daemon.wait_for("commencing operation", timeout_s=_START_TIMEOUT_S)
        yield realm


def _call(command: list[str], environ: dict[str, str]) -> None:
    program = shutil.which(command[0], path=_PATH)
    done = subprocess.run([program or "", *command[1:]], env=environ, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout + done.stderr
