"""What a thread does is read from its frames: here from made-up ones."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from tfos_lab.node.activity import frames
from tfos_lab.node.activity.frames import Doing, awaited_by, what_it_does, where
from tfos_lab.transport import frames as transport_frames

TENSORFLOW = "/venv/lib/python3.11/site-packages/tensorflow/python"
EXECUTE = f"{TENSORFLOW}/eager/execute.py"
ITERATOR = f"{TENSORFLOW}/data/ops/iterator_ops.py"
KERAS = "/venv/lib/python3.11/site-packages/keras/src/trainers/trainer.py"
FEED = "/somewhere/tfos_lab/node/feed/feed_queue.py"
LOCK_STEP = "/somewhere/tfos_lab/node/lock_step.py"
OWN = "/home/me/train.py"


def frame_of(*files):
    """Return the innermost of such frames: of functions in these files that call one another, the outermost first."""
    frame = None
    for file in files:
        code = compile("def step():\n    pass", file, "exec").co_consts[0]
        frame = SimpleNamespace(f_code=code, f_back=frame, f_lineno=2)
    return frame


def test_tensorflow_s_own_code_computes():
    assert what_it_does(frame_of(OWN, KERAS, EXECUTE)) is Doing.TENSORFLOW


def test_an_iterator_of_tensorflow_waits_for_data():
    assert what_it_does(frame_of(OWN, ITERATOR, f"{TENSORFLOW}/ops/gen_dataset_ops.py")) is Doing.DATA


def test_a_function_that_is_traced_is_no_step():
    assert what_it_does(frame_of(OWN, f"{TENSORFLOW}/framework/func_graph.py", OWN)) is Doing.TRACING


@pytest.mark.parametrize("files", [(OWN,), (OWN, KERAS), (EXECUTE, OWN), (FEED,)])
def test_anything_else_is_python(files):
    assert what_it_does(frame_of(*files)) is Doing.PYTHON


@pytest.mark.parametrize(("file", "doing"), [(FEED, Doing.ROWS), (LOCK_STEP, Doing.PEERS), (OWN, Doing.PYTHON)])
def test_a_condition_of_ours_says_what_is_awaited(file, doing):
    assert what_it_does(frame_of(OWN, file, threading.__file__, threading.__file__)) is doing


def test_threads_behind_an_iterator_say_why_there_is_no_batch():
    rows, peers, reading = (
        frame_of(FEED, threading.__file__),
        frame_of(LOCK_STEP, threading.__file__),
        frame_of("/somewhere/tfos_lab/node/feed/files/read.py"),
    )
    own = frame_of(OWN, threading.__file__)
    assert awaited_by([own]) is None
    assert awaited_by([own, peers]) is Doing.PEERS
    assert awaited_by([peers, rows]) is Doing.ROWS
    assert awaited_by([own, reading]) is Doing.ROWS


def test_the_place_is_the_function_s_own_line():
    assert where(frame_of(OWN, KERAS, EXECUTE)) == "step, train.py, line 2"
    assert where(frame_of(OWN, frames.__file__, transport_frames.__file__)) == "step, train.py, line 2"
    assert where(frame_of(KERAS)) == "step, trainer.py, line 2"
    assert where(frame_of(OWN, "<string>")) == "step, train.py, line 2"


def test_the_place_in_a_cell_is_named_as_people_know_it(monkeypatch):
    from tfos_lab.payload import notebook_sources

    monkeypatch.setitem(notebook_sources._labels, "/tmp/cell-1.py", "Cell In[7]")
    assert where(frame_of("/tmp/cell-1.py")) == "step, Cell In[7], line 2"
