"""Files of rows for tests: of an id, an array and a text, in the order of their ids."""

import gzip
import json
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support import records


def rows(start, stop):
    """Return rows with the ids of a range."""
    ids = range(start, stop)
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(ids, pa.int64()),
            "x": pa.array([[i / 2, 1.0, -1.0] for i in ids], pa.list_(pa.float32())),
            "name": pa.array([f"row {i}".encode() for i in ids], pa.binary()),
        }
    )


def write_parquet(path, batch, *, group=4):
    """Write rows in row groups of this size; return the path as text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_batches([batch]), path, row_group_size=group)
    return str(path)


def write_records(path, batch):
    """Write rows as TFRecords, compressed if the name says so; return the path as text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        data = b"".join(part.read_bytes() for part in records.write(folder, batch))
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def write_lines(path, start, stop):
    """Write rows of an id, half of it, and a text with a line's end in it, as CSV or JSON; return the path as text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if ".csv" in path.suffixes:
        text = "id,x,name\n" + "".join(f'{i},{i / 2},"row ""{i}"",\n"\n' for i in range(start, stop))
    else:
        made = ({"id": i, "x": i / 2, "name": f'row "{i}",\n'} for i in range(start, stop))
        text = "".join(f"{json.dumps(row)}\n" for row in made)
    data = text.encode()
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return str(path)
