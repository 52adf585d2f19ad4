"""What nodes show, as it is drawn: nothing of it becomes markup, and a cell stays small."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.laws.random_data import fuzzed, values_of
from tests.support.outline import Outline
from tfos_lab.core import messages as m
from tfos_lab.driver.shown import ShownFiles
from tfos_lab.notebook.display.shown import render_shown

NASTY = st.sampled_from(["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</style><b>", "a"])
OURS = {"details", "summary", "div", "figure", "figcaption", "b", "span", "img"}
OURS |= {"table", "thead", "tbody", "tr", "th", "td"}


def picture(size: int, shade: int = 0) -> m.Picture:
    return m.Picture(b"\x89PNG\r\n\x1a\n" + b"....IHDR" + size.to_bytes(4, "big") * 2 + bytes([shade]) * 3000)


def drawn(*shown: m.Shown, at_most_bytes: int = 1_000_000) -> str:
    with tempfile.TemporaryDirectory() as folder:
        files = ShownFiles(Path(folder))
        for one in shown:
            files.take(one, f"worker:{one.rank}")
        return render_shown(files.views, folder, at_most_bytes)


@fuzzed(60)
@given(
    name=NASTY,
    content=st.one_of(
        st.builds(m.Table, columns=st.lists(NASTY, min_size=1, max_size=1),
                  rows=st.lists(st.lists(NASTY, min_size=1, max_size=1)), count=st.integers(0, 9)),
        st.builds(m.Matrix, labels=st.lists(NASTY, min_size=1, max_size=1), counts=st.just([[3.0]])),
        st.builds(m.Unshown, why=NASTY),
        values_of(m.Picture),
    ),
)  # fmt: skip
def test_nothing_that_a_node_shows_becomes_markup(name, content):
    html = drawn(m.Shown(name, 3, content, 1.0, rank=0))
    assert set(Outline(html).tags) <= OURS
    assert name in " ".join(Outline(html).texts)
    assert "onerror=alert(1)>" not in html


def test_the_newest_is_large_and_earlier_steps_are_folded_below_it():
    html = drawn(*(m.Shown("samples", step, picture(8), float(step), rank=0) for step in (1, 2, 3)))
    assert Outline(html).texts == ["Shown", "samples", "step 3", "2 earlier steps", "step 2", "step 1"]
    assert 'width="112" class="tfos-pixels"' in html, "small pictures are enlarged"
    assert 'alt="samples, step 3, shown by worker:0"' in html


def test_what_several_nodes_show_names_them():
    html = drawn(*(m.Shown("samples", None, picture(300), 1.0, rank=rank) for rank in (1, 0)))
    assert Outline(html).texts == ["Shown", "samples", "worker:0", "samples", "worker:1"]


def test_nodes_that_agree_show_it_once():
    same = [m.Shown("samples", None, picture(300), 1.0, rank=rank) for rank in range(3)]
    html = drawn(*same, m.Shown("samples", None, picture(300, shade=1), 1.0, rank=3))
    assert Outline(html).texts == ["Shown", "samples", "3 nodes", "samples", "worker:3"]


def test_a_card_has_room_for_some_and_says_so():
    shown = [m.Shown(name, step, picture(8), float(step), rank=0) for step in range(3) for name in ("a", "b")]
    html = drawn(*shown, at_most_bytes=14_000)
    assert Outline(html).texts[1:8] == [
        "a",
        "step 2",
        "1 earlier step",
        "step 1",
        "b",
        "step 2",
        Outline(html).texts[7],
    ]
    assert Outline(html).texts[-1] == "3 more in the folder shown of the run: a cell holds 14 kB of them"


def test_a_table_shows_its_first_rows_and_numbers_as_people_read_them():
    table = m.Table(["word", "p"], [["a", 0.123456789], ["b", None], ["c", 3.0]], 1203)
    html = drawn(m.Shown("worst", None, table, 1.0, rank=0))
    words = ["Shown", "worst", "word", "p", "a", "0.1235", "b", "c", "3", "the first 3 of 1,203 rows"]
    assert Outline(html).texts == words


def test_a_file_that_has_gone_is_left_out(tmp_path):
    files = ShownFiles(tmp_path)
    files.take(m.Shown("gone", None, picture(8), 1.0, rank=0), "chief:0")
    (tmp_path / files.views[0].file).unlink()
    assert Outline(render_shown(files.views, tmp_path, 1000)).texts[-1].startswith("1 more in the folder")
    assert render_shown((), tmp_path, 1000) == ""
