"""How rows of files are dealt: every row once, equally, whatever the files."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfos_lab.engine.feed.files.shares import FoundFile, deal_files, deal_rows
from tfos_lab.messages import DataFile


def files_of(sizes):
    return [
        FoundFile(DataFile("/", f"/{number}", 1), list(enumerate(blocks)), {"number": str(number)})
        for number, blocks in enumerate(sizes)
    ]


@given(st.lists(st.lists(st.integers(1, 20), max_size=5), max_size=8), st.integers(1, 6))
def test_each_row_goes_to_one_node_in_order_and_shares_differ_by_one_row_at_most(sizes, nodes):
    dealt = deal_rows(files_of(sizes), nodes)
    rows = [
        [
            (part.number, block, row)
            for part in parts
            for block, skip, count in part.pieces
            for row in range(skip, skip + count)
        ]
        for parts in dealt
    ]
    wanted = [(n, b, row) for n, blocks in enumerate(sizes) for b, size in enumerate(blocks) for row in range(size)]
    assert [row for some in rows for row in some] == wanted
    assert max(map(len, rows)) - min(map(len, rows)) <= 1
    assert all(part.partition == {"number": str(part.number)} for parts in dealt for part in parts)


@given(st.lists(st.integers(0, 100), max_size=20), st.integers(1, 6))
def test_each_file_is_counted_by_one_node(sizes, nodes):
    dealt = deal_files(sizes, nodes)
    assert [number for some in dealt for number in some] == list(range(len(sizes)))


def test_files_of_equal_size_are_counted_by_all_nodes():
    assert deal_files([5] * 6, 3) == [[0, 1], [2, 3], [4, 5]]
