"""What a SparkSession's settings say about where files are: its default file system, and the keys of its stores."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tfos_lab.core.paths import remember_default_fs
from tfos_lab.core.threads import uninterrupted
from tfos_lab.data.file_systems import azure_variable
from tfos_lab.data.frames import default_fs, is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Settings of Hadoop's S3 client, and the variables that pyarrow, s3fs and Amazon's own clients read instead.
_KEYS = {
    "fs.s3a.access.key": "AWS_ACCESS_KEY_ID",
    "fs.s3a.secret.key": "AWS_SECRET_ACCESS_KEY",
    "fs.s3a.session.token": "AWS_SESSION_TOKEN",
}
_REGION, _ENDPOINT, _ENCRYPTED = "fs.s3a.endpoint.region", "fs.s3a.endpoint", "fs.s3a.connection.ssl.enabled"
# Google's connector has had two names for the file of a service account.
_KEY_FILES = ("fs.gs.auth.service.account.json.keyfile", "google.cloud.auth.service.account.json.keyfile")
_ROOT = "fs.gs.storage.root.url"
# Followed by the account's host.
_AZURE = "fs.azure.account.key."
# Of an emulator: its host and port, and whether it is asked by https.
_AZURE_ENDPOINT, _AZURE_ENCRYPTED = "fs.azure.abfs.endpoint", "fs.azure.always.use.https"
# For each kind, the variables that show that this process has its own keys or store; a session's do not count.
_OWN = {
    "AWS_": ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ENDPOINT_URL"),
    "GOOGLE_": ("GOOGLE_APPLICATION_CREDENTIALS",),
    "STORAGE_": ("STORAGE_EMULATOR_HOST",),
    "AZURE_": ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_CONNECTION_STRING"),
}
_brought: dict[str, str] = {}


@dataclass(frozen=True)
class SessionStores:
    """Where a session's files are, and the keys to them.

    ``default_fs`` is the file system of paths without a scheme, such as ``"hdfs://namenode:8020"``; empty without a
    session. ``env`` has the keys of S3, Google and Azure, the region and address of S3, and the addresses of emulators,
    as the variables that their clients, or `tfos_lab.data.file_systems`, read; and the session's user. They are
    secrets: nodes get them by their encrypted connection, and no log or record has them.
    """

    default_fs: str = ""
    env: dict[str, str] = field(default_factory=dict, repr=False)


@uninterrupted()
def stores_of(session: SparkSession | None) -> SessionStores:
    """Return a session's stores, and have clients in this process find them unless it has its own keys."""
    if session is None:
        return SessionStores()
    setting = _settings_of(session)
    env = _of_s3(setting) | _of_google(setting) | _of_azure(session, setting)
    if not is_connect(session):  # the same as on executors; with Kerberos, that of the ticket
        env["SPARK_USER"] = str(session.sparkContext.sparkUser())
    stores = SessionStores(default_fs(session), env)
    remember_default_fs(stores.default_fs)
    for kind, own in _OWN.items():
        if all(os.environ.get(name) in (None, _brought.get(name)) for name in own):
            for name in [name for name in _brought if name.startswith(kind)]:
                os.environ.pop(name, None)
                del _brought[name]
            theirs = {name: value for name, value in stores.env.items() if name.startswith(kind)}
            os.environ.update(theirs)
            _brought.update(theirs)
    return stores


def _settings_of(session: SparkSession) -> Callable[[str], str]:
    """Return a function that returns one of the session's Hadoop settings, or an empty text."""
    if is_connect(session):
        return lambda name: str(session.conf.get(f"spark.hadoop.{name}", "") or "")
    configuration = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - there is no public API for it
    # Keys may also be in the files of a credential provider, where Hadoop looks first.
    return lambda name: "".join(configuration.getPassword(name) or ())


def _of_google(setting: Callable[[str], str]) -> dict[str, str]:
    file = next(filter(None, map(setting, _KEY_FILES)), "")
    root = setting(_ROOT)
    # Google's own, private ones among them, are no emulators.
    emulator = "" if (urlsplit(root).hostname or "").endswith("googleapis.com") else root
    found = {"GOOGLE_APPLICATION_CREDENTIALS": file, "STORAGE_EMULATOR_HOST": emulator}
    return {variable: value for variable, value in found.items() if value}


def _of_azure(session: SparkSession, setting: Callable[[str], str]) -> dict[str, str]:
    """Return the accounts' keys; that of an only one also as adlfs reads it."""
    if is_connect(session):
        settings = {name.removeprefix("spark.hadoop."): value for name, value in session.conf.getAll.items()}
    else:
        found = session.sparkContext._jsc.hadoopConfiguration().getValByRegex(f"^{re.escape(_AZURE)}")  # noqa: SLF001
        # By its array: Java's iterators end by an error, which pyspark asks the JVM about for long.
        settings = {name: found[name] for name in found.keySet().toArray()}
    keys = {name.removeprefix(_AZURE).split(".")[0]: value for name, value in settings.items() if _AZURE in name}
    env = {azure_variable(account): key for account, key in keys.items()}
    if len(keys) == 1:
        ((account, key),) = keys.items()
        env |= {"AZURE_STORAGE_ACCOUNT_NAME": account, "AZURE_STORAGE_ACCOUNT_KEY": key}
        if endpoint := setting(_AZURE_ENDPOINT):
            scheme = "http" if setting(_AZURE_ENCRYPTED).lower() == "false" else "https"
            env["AZURE_STORAGE_CONNECTION_STRING"] = (
                f"DefaultEndpointsProtocol={scheme};AccountName={account};AccountKey={key};"
                f"BlobEndpoint={scheme}://{endpoint}/{account};"
            )
    return env


def _of_s3(setting: Callable[[str], str]) -> dict[str, str]:
    keys = {variable: setting(name) for name, variable in _KEYS.items()}
    if not (keys["AWS_ACCESS_KEY_ID"] and keys["AWS_SECRET_ACCESS_KEY"]):
        keys = {}
    found = keys | {"AWS_DEFAULT_REGION": setting(_REGION)}
    endpoint = setting(_ENDPOINT)
    # Amazon's own is the default of all clients.
    if endpoint and not endpoint.endswith("amazonaws.com"):
        scheme = "http" if setting(_ENCRYPTED).lower() == "false" else "https"
        found["AWS_ENDPOINT_URL"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    return {variable: value for variable, value in found.items() if value}
