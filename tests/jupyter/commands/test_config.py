"""%tfos config: the defaults of options for the cells of a notebook."""

from __future__ import annotations

import pytest

from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.commands.table import Commands
from tfos_lab.jupyter.options.defaults import DEFAULTS
from tfos_lab.jupyter.options.table import parse_options


@pytest.fixture
def run(magics, run_cell, capsys):
    """Run a cell and return the lines that it prints."""

    def run(text):
        run_cell(text)
        return capsys.readouterr().out.splitlines()

    return run


def test_what_is_set_holds_for_cells_and_is_listed_first(run):
    shown = run("%tfos config cluster_size=4 tensorboard env={'A': 'b c'}")
    assert [line.split()[0] for line in shown[:3]] == ["cluster_size", "env", "tensorboard"]
    assert shown[0].endswith("%tfos config")
    options = parse_options("", {}).cluster
    assert (options.cluster_size, options.tensorboard, options.env) == (4, True, {"A": "b c"})


def test_names_of_the_notebook_are_values_too(run):
    run("nodes = 3")
    run("%tfos config cluster_size=nodes")
    assert DEFAULTS.values() == {"cluster_size": 3}


def test_it_is_forgotten_by_name_or_as_a_whole(run):
    run("%tfos config cluster_size=4 epochs=2 restarts=1")
    run("%tfos config reset epochs")
    assert set(DEFAULTS.values()) == {"cluster_size", "restarts"}
    shown = run("%tfos config reset")
    assert not any("config" in line for line in shown)
    assert any(line.split() == ["cluster_size", "1"] for line in shown)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cluster_size=0", "cluster_size=0: at least one node is needed"),
        ("cluster_size=2 clustersize=3", "clustersize: has no default to set; did you mean cluster_size?"),
        ("data=df", "data: has no default to set"),
        ("cluster_size", "cluster_size needs a value"),
        ("reset epoch", "epoch: has no default to set; did you mean epochs?"),
    ],
)
def test_what_is_wrong_changes_nothing(run, line, said):
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        run(f"%tfos config {line}")
    assert DEFAULTS.values() == {}


def test_the_administrator_s_defaults_are_read_when_the_magics_are_loaded(shell, run):
    assert DEFAULTS.values() == {}
    shell.config.TfosLab.cluster_size = 2
    try:
        shown = run("%reload_ext tfos_lab\n%tfos config")
    finally:
        del shell.config["TfosLab"]
    assert shown[0].split() == ["cluster_size", "2", "configuration"]


def test_tab_completes_options():
    found = list(Commands(lambda: None, list).complete(["config"]))
    assert {"reset", "cluster_size="} <= set(found)
    assert "data=" not in found
