"""Keys of Google's and Azure's stores in a session's settings: what is opened with them, and who sees them.

What is seen is which client is opened, and with what; `tests.rigs.test_stores` has servers.
"""

import os
import re
from pathlib import Path

import pytest

from tests.support.clusters import running_clusters
from tests.support.quick import QUICK_ENV
from tfos_lab.data.file_systems import open_path
from tfos_lab.errors import ConfigError

pytestmark = pytest.mark.leaves_nothing

# Not what such keys look like, so that Azure's client says so before it asks a server.
KEYS = {"one": "no base 64: first secret", "two": "no base 64: second secret"}
SETTINGS = {
    "fs.gs.auth.service.account.json.keyfile": "/no/such/key.json",
    **{f"fs.azure.account.key.{name}.dfs.core.windows.net": key for name, key in KEYS.items()},
}


@pytest.fixture
def run(spark, monkeypatch):
    """``tfos_lab.run`` with the session, which has keys of stores, while no variables are set; and none stay."""
    settings = spark.sparkContext._jsc.hadoopConfiguration()  # where it has what is set as ``spark.hadoop.…``
    for name, value in SETTINGS.items():
        settings.set(name, value)
    for name in [name for name in os.environ if name.startswith(("AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    before = dict(os.environ)
    with running_clusters({"spark": spark, "env": QUICK_ENV}) as start:
        yield start
    for name in SETTINGS:
        settings.unset(name)
    for name in {*os.environ} - {*before}:
        os.environ.pop(name)


def opened(account):
    """Return the client, the key that it has, and the path in it, of an address with that account."""
    system, path = open_path(f"abfss://box@{account}.dfs.core.windows.net/a file")
    return type(system).__name__, system.__reduce__()[1][0]["account_key"], path


def open_stores(args, ctx):
    """Return what is opened here, once the flag is there."""
    import os
    import time
    from pathlib import Path

    opened, flag = args
    while not Path(flag).exists():
        time.sleep(0.05)
    return [opened(name) for name in ("one", "two")], os.environ["GOOGLE_APPLICATION_CREDENTIALS"]


def test_a_session_s_keys_reach_nodes_and_driver_and_no_log_record_or_error(run, tmp_path):
    flag = tmp_path / "flag"
    cluster = run(open_stores, (opened, str(flag)), cluster_size=1)
    with pytest.raises(ConfigError, match="abfss://box@one") as azure:
        cluster.train("abfss://box@one.dfs.core.windows.net/a.csv")
    with pytest.raises(ConfigError, match=re.escape("/no/such/key.json")):
        cluster.train("gs://box/a.csv")
    flag.touch()
    (found,) = cluster.wait(timeout=100).values()
    stores = [("AzureFileSystem", key, "box/a file") for key in KEYS.values()]
    assert found == (stores, "/no/such/key.json")
    assert [opened(name) for name in KEYS] == stores
    said = [str(azure.value), repr(cluster), repr(cluster.view().notes)]
    said += [path.read_text(errors="replace") for path in Path(cluster.run_dir).rglob("*") if path.is_file()]
    assert not any(key in text for text in said for key in KEYS.values())


def test_a_process_s_own_key_stays(run, monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/mine.json")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "mine")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a key of this process")
    run(lambda: 1, cluster_size=1).wait(timeout=100)
    assert os.environ["GOOGLE_APPLICATION_CREDENTIALS"] == "/mine.json"
    assert opened("mine") == ("AzureFileSystem", "a key of this process", "box/a file")
