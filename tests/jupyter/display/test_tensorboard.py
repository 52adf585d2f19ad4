"""TensorBoard in a cell's output: with and without a Jupyter server, and the options of its script."""

from __future__ import annotations

import json
import re

import pytest

from tfos_lab.engine.discovery import publisher
from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.display.tensorboard import TensorBoardView, view_folder


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    publisher.show_folder.cache_clear()


def test_without_a_script_the_output_is_a_sentence():
    bundle = TensorBoardView("mnist-1", "mnist", "/runs/mnist-1/events")._repr_mimebundle_()
    assert bundle["text/plain"] == (
        "TensorBoard of mnist: %tfos tensorboard /runs/mnist-1/events shows it in a notebook, "
        "tensorboard --logdir /runs/mnist-1/events in a browser of its own"
    )
    sentence = bundle["text/html"].split("<script>")[0]
    assert "<code>%tfos tensorboard /runs/mnist-1/events</code> shows it in JupyterLab" in sentence
    assert "iframe" not in sentence


def test_without_a_jupyter_server_there_is_a_link():
    link = "http://127.0.0.1:41231/00ff/"
    bundle = TensorBoardView("mnist-1", "mnist", "/runs/mnist-1/events", link)._repr_mimebundle_()
    assert bundle["text/plain"] == (
        f"TensorBoard of mnist: {link} on this machine, while this program lives; "
        "then tensorboard --logdir /runs/mnist-1/events"
    )
    sentence = bundle["text/html"].split("<script>")[0]
    assert f'<a href="{link}" target="_blank" rel="noopener noreferrer">TensorBoard of <b>mnist</b></a>' in sentence
    assert "opens in browsers on this machine while this kernel lives" in sentence
    assert "<code>tensorboard --logdir /runs/mnist-1/events</code>" in sentence


def test_names_are_text_in_page_and_script():
    name = "</script><script>alert(1)</script>"
    page = TensorBoardView("mnist-1", name, "/runs/<b>")._repr_mimebundle_()["text/html"]
    assert page.count("<script>") == page.count("</script>") == 1
    assert "<b>" not in page.split("<script>")[0].replace("<b>&lt;", "")
    options = json.loads(re.search(r"\)\((\{.*\})\)</script>$", page)[1])
    assert (options["run"], options["name"]) == ("mnist-1", name)


def test_two_outputs_do_not_share_an_element():
    pages = [TensorBoardView("mnist-1", "mnist", "/runs")._repr_mimebundle_()["text/html"] for _ in range(2)]
    assert len({re.search(r'id="([^"]+)"', page)[1] for page in pages}) == 2


def test_a_folder_is_found_by_the_jupyter_server(tmp_path):
    (tmp_path / "old").mkdir()
    view = view_folder(str(tmp_path / "old"))
    try:
        assert view.link.startswith("http://127.0.0.1:"), "this test belongs to no Jupyter server"
        found = publisher.cluster_records.find(view.run_id)
        assert (found.run_dir, found.lives) == (str(tmp_path / "old"), False)
        assert view_folder(str(tmp_path / "old")).run_id == view.run_id
    finally:
        publisher.show_folder(str(tmp_path / "old")).close()


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no such cluster, and no such folder on this machine"):
        view_folder(str(tmp_path / "nowhere"))
