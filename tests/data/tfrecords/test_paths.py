"""Files of records: which files a path means, the values of their folders, and whether they are compressed."""

from __future__ import annotations

import pyarrow as pa

from tfos_lab.data.file_systems import open_path
from tfos_lab.data.tfrecords.framing import frame, read_frames
from tfos_lab.data.tfrecords.paths import find_files, open_records, partition_folder


def test_files_are_found_by_folder_file_and_pattern_without_hidden_ones(tmp_path):
    names = [
        "a-1",
        "a-2",
        "b-1",
        "_SUCCESS",
        ".x.crc",
        "_temporary-1/a-9",
        "k=v%2F1/a-3",
        "k=__HIVE_DEFAULT_PARTITION__/a-4",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = {file.path.removeprefix(f"{tmp_path}/"): file.partition for file in find_files(str(tmp_path))[1]}
    assert sorted(found) == ["a-1", "a-2", "b-1", "k=__HIVE_DEFAULT_PARTITION__/a-4", "k=v%2F1/a-3"]
    assert (found["k=v%2F1/a-3"], found["k=__HIVE_DEFAULT_PARTITION__/a-4"]) == ({"k": "v/1"}, {"k": None})
    assert partition_folder({"k": "v/1", "n": None}) == "k=v%2F1/n=__HIVE_DEFAULT_PARTITION__"
    assert [file.path for file in find_files(f"{tmp_path}/a-*")[1]] == [f"{tmp_path}/a-1", f"{tmp_path}/a-2"]
    assert [file.path for file in find_files(f"file:{tmp_path}/a-1")[1]] == [f"{tmp_path}/a-1"]


def test_a_length_that_looks_like_gzip_is_no_gzip(tmp_path):
    path = tmp_path / "records"
    path.write_bytes(frame(pa.array([b"x" * 0x8B1F], pa.large_binary())).to_pybytes())
    assert path.read_bytes().startswith(b"\x1f\x8b")
    with open_records(*open_path(str(path))) as stream:
        assert [len(frames) for frames in read_frames(stream, "records")] == [1]
