"""The rows of files that are read in a random order: stored on the node's disk, which others use, too."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support.data_files import rows, write_parquet
from tfos_lab.data.schema import column_specs
from tfos_lab.engine.feed.files.shares import FoundFile, deal_rows
from tfos_lab.engine.feed.files.spark_schema import spark_fields
from tfos_lab.errors import FeedError
from tfos_lab.messages import DataFile, FilesDealt
from tfos_lab.node.feed import host_share
from tfos_lab.node.feed.files.segment import file_segments, stored_files
from tfos_lab.node.feed.host_share import HostShare
from tfos_lab.node.feed.node_feed import NodeFeed

SCHEMA = json.dumps({"type": "struct", "fields": spark_fields(rows(0, 1).schema)})


@pytest.fixture
def feed(tmp_path):
    path = Path(write_parquet(tmp_path / "a.parquet", rows(0, 10)))
    found = FoundFile(DataFile("/", str(path), path.stat().st_size), [(0, 4), (1, 4), (2, 2)])
    folder = tmp_path / f"c-0-{os.getpid()}" / "spool"
    folder.mkdir(parents=True)
    (parts,) = deal_rows([found], 1)
    dealt = FilesDealt(feed=0, format="parquet", parts=parts, rows=10, folder=str(folder))
    return NodeFeed(0, 1, "drop", column_specs(SCHEMA), file_segments(dealt, SCHEMA), files=dealt)


def store(feed):
    for _ in (storing := stored_files(feed)):
        pass
    storing.close()
    return feed.stored


def test_rows_are_stored_and_claimed_no_more(feed):
    (segment,) = store(feed)
    assert segment.rows == 10
    other = Path(feed.files.folder).parent.parent / "c-1-1"
    other.mkdir()
    (claim,) = HostShare(other)._claims()
    assert claim <= HostShare(other).free() // 64


def test_rows_are_not_stored_where_another_node_is_about_to_take_the_space(feed, monkeypatch):
    monkeypatch.setattr(host_share, "_free_bytes", lambda _folder: 100_000)
    other = Path(feed.files.folder).parent.parent / "c-1-1"
    other.mkdir()
    assert HostShare(other).take(99_900, 0)
    with pytest.raises(FeedError, match="does not fit onto the disk"):
        store(feed)
    shutil.rmtree(other)
    assert store(feed)
