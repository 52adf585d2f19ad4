"""Misleading lines are left out of the view; everything else is shown, in whatever pieces it arrives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfos_lab.engine.logs.noise import NoiseFilter, without_noise
from tfos_lab.engine.logs.writer import LogWriter
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.messages import LogRecord

SHUFFLE = (
    "/x/keras/src/trainers/epoch_iterator.py:74: UserWarning: `shuffle=True` was passed, but will be ignored since the "
    "data `x` was provided as a tf.data.Dataset. The Dataset is expected to already be shuffled.\n"
    "  self.data_adapter = data_adapters.get_data_adapter(\n"
)
CUDA = "E0000 00:00:1795319214.6 17102 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: {}\n"
NO_DRIVER = CUDA.format("Failed call to cuInit: UNKNOWN ERROR (303)")
NO_GPU = CUDA.format("Failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected")
WRONG_DRIVER = CUDA.format(
    "Failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver"
)
GENERATOR = (
    "W0000 00:00 17 dataset.cc:997] Input of GeneratorDatasetOp::Dataset will not be optimized because the dataset "
    "does not implement the AsGraphDefInternal() method needed.\n"
)
STOPPED = (
    "W0000 00:00:1795318248.977981    6158 preemption_notifier.cc:90] SIGTERM caught at "
    "2026-11-22T03:30:48.977979253+00:00\n"
)


@pytest.mark.parametrize("noise", [SHUFFLE, NO_DRIVER, NO_GPU, GENERATOR, STOPPED])
def test_misleading_lines_are_left_out_and_their_neighbours_are_not(noise):
    assert without_noise(f"Epoch 1/2\n{noise}  two spaces\n") == "Epoch 1/2\n  two spaces\n"


@pytest.mark.parametrize(
    "line",
    [WRONG_DRIVER, "a.py:3: UserWarning: mine\n  f()\n", "cuInit is fine\n", "I said `shuffle=True` was passed\n"],
)
def test_lines_that_look_alike_are_shown(line):
    assert without_noise(line) == line


@given(st.lists(st.sampled_from(["1/7\r", "Epoch\n", "\n", "no end", "é "]), max_size=8), st.data())
def test_other_text_that_arrives_in_pieces_is_shown_whole(parts, data):
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    taker = NoiseFilter()
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert "".join(taker.take(piece) for piece in pieces) == text


def test_a_warning_and_its_line_of_source_may_arrive_apart():
    head, _, source = SHUFFLE.partition("\n")
    taker = NoiseFilter()
    assert [taker.take(f"{head}\n"), taker.take(source), taker.take("  mine\n")] == ["", "", "  mine\n"]


def test_the_rest_of_a_line_is_shown_even_if_it_looks_like_noise():
    taker = NoiseFilter()
    assert taker.take("loss: 0.1 ") + taker.take(NO_DRIVER) + taker.take("next\n") == f"loss: 0.1 {NO_DRIVER}next\n"


def test_the_file_is_whole_and_the_shown_text_is_filtered(tmp_path):
    writer = LogWriter(RunDir(tmp_path), lambda sentence: None)
    records = [LogRecord(0.0, "stderr", text.encode()) for text in (NO_DRIVER, SHUFFLE)]
    assert writer.write("chief:0", records) == []
    (event,) = writer.write("chief:0", [LogRecord(0.0, "stderr", b"loss\n")])
    assert event.text == "loss\n"
    assert writer.read("chief:0", 10) == "loss"
    assert writer.read("chief:0") == f"{NO_DRIVER}{SHUFFLE}loss\n"
