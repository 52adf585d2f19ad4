"""What is kept of what nodes show, and what no node of ours shows."""

import msgspec
import pytest

from tests.support.eventually import eventually
from tfos_lab.core import messages as m
from tfos_lab.driver.shown import read_shown

pytestmark = pytest.mark.leaves_nothing

PNG = b"\x89PNG\r\n\x1a\n"


def shown(name, step, content=None, rank=0):
    return m.Shown(name, step, content or m.Picture(PNG + str(step).encode()), 1.0, rank=rank)


def kept(cluster, name):
    return [one for one in cluster.view().shown if one.name == name]


def test_a_name_has_what_was_shown_last_or_one_for_each_step(start, nodes):
    cluster = start()
    cluster.wait_until_running()
    for step in (1, 2):
        nodes.send(shown("last", None, m.Picture(PNG + bytes([step]))))
        nodes.send(shown("steps", step))
    nodes.send(shown("steps", 1, m.Table(["a"], [[1], ["x"]], 2)))
    nodes.send(shown("end", None))
    eventually(lambda: kept(cluster, "end"))
    [last] = kept(cluster, "last")
    assert read_shown(cluster.run_dir, last) == m.Picture(PNG + b"\x02")
    first, second = kept(cluster, "steps")
    assert (first.step, second.step) == (1, 2)
    assert read_shown(cluster.run_dir, first) == m.Table(["a"], [[1], ["x"]], 2)
    assert len(list((cluster.run_dir / "shown").iterdir())) == 4


def test_a_long_series_is_thinned_between_its_ends_and_a_run_keeps_its_last_names(start, nodes):
    cluster = start()
    cluster.wait_until_running()
    for step in range(100):
        nodes.send(shown("steps", step))
    nodes.send(shown("end", None))
    eventually(lambda: kept(cluster, "end"))
    steps = [one.step for one in kept(cluster, "steps")]
    assert (steps[0], steps[-1]) == (0, 99)
    assert 10 <= len(steps) <= 20
    assert steps == sorted(steps)
    for number in range(298):
        nodes.send(shown(f"name {number}", None))
    eventually(lambda: kept(cluster, "name 297"))
    assert [one.step for one in kept(cluster, "steps")] == [99], "names that others need room for keep the last"
    assert len(cluster.view().shown) == 300
    assert len(list((cluster.run_dir / "shown").iterdir())) == 300


@pytest.mark.parametrize(
    "content",
    [
        m.Picture(b"<svg onload='alert(1)'/>"),
        m.Picture(PNG + bytes(m.SHOWN_BYTES)),
        m.Table(["a", "b"], [[1]], 1),
        m.Matrix(["a"], [[1.0, 2.0]]),
        m.Matrix(["a", "b"], [[1.0, 2.0]]),
    ],
    ids=["no PNG", "too large", "cells", "columns", "rows"],
)
def test_what_no_node_shows_is_refused(start, nodes, content):
    cluster = start()
    cluster.wait_until_running()
    nodes.send(msgspec.structs.replace(shown("wrong", None, content), rank=1))
    eventually(lambda: cluster.state == "failed")
    assert "Shown" in cluster.view().reason
    assert cluster.view().shown == ()
