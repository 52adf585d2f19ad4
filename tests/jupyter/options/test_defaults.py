"""Defaults of options: who may set them, and who has the last word."""

from __future__ import annotations

import logging

import pytest
from traitlets.config import Config

from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.cell.export import _keywords
from tfos_lab.jupyter.options.configured import CONFIGURABLE, TfosLab, read_configuration
from tfos_lab.jupyter.options.defaults import ADMIN, DEFAULTS, SESSION
from tfos_lab.jupyter.options.table import parse_options


@pytest.fixture(autouse=True)
def _no_defaults():
    DEFAULTS.clear()
    yield
    DEFAULTS.clear()


def configure(**values):
    config = Config()
    for name, value in values.items():
        config.TfosLab[name] = value
    read_configuration(config)


def test_a_line_says_more_than_the_notebook_and_that_more_than_the_administrator():
    configure(cluster_size=2, epochs=3, grace=1.5)
    assert parse_options("", {}).cluster.cluster_size == 2
    DEFAULTS.set(SESSION, {"cluster_size": 4})
    options = parse_options("epochs=5", {})
    assert (options.cluster.cluster_size, options.feed.epochs, options.cluster.grace_s) == (4, 5, 1.5)
    assert options.given == {"epochs": 5}
    assert options.defaults == {"cluster_size": 4, "grace": 1.5}
    DEFAULTS.forget(SESSION, "cluster_size")
    assert parse_options("", {}).cluster.cluster_size == 2


def test_options_that_only_cells_have_may_have_defaults_too():
    DEFAULTS.set(SESSION, {"background": True})
    assert parse_options("", {}).background
    assert not parse_options("background=false", {}).background


def test_a_wrong_default_of_an_administrator_is_named_and_does_not_count(caplog):
    with caplog.at_level(logging.WARNING):
        configure(cluster_size=0, clustersize=3, tensorboard=True)
    assert DEFAULTS.values() == {"tensorboard": True}
    assert "c.TfosLab.cluster_size=0: at least one node is needed; it does not count" in caplog.text
    assert "c.TfosLab.clustersize: has no default to set; did you mean cluster_size?" in caplog.text


def test_a_new_configuration_replaces_the_last_one():
    configure(cluster_size=2)
    configure(epochs=2)
    assert DEFAULTS.values() == {"epochs": 2}
    assert DEFAULTS.source_of("epochs") == ADMIN


def test_traits_document_the_options():
    assert TfosLab.class_trait_names(config=True)
    assert "nodes in all" in TfosLab.class_get_help()
    assert set(CONFIGURABLE) <= set(TfosLab.class_trait_names(config=True))


@pytest.mark.parametrize("name", ["data", "args", "spark", "name", "columns"])
def test_what_belongs_to_one_cell_has_no_default(name):
    assert name not in CONFIGURABLE


def test_a_default_that_does_not_fit_a_cell_is_named_in_its_error():
    DEFAULTS.set(SESSION, {"num_ps": 2})
    with pytest.raises(ConfigError) as error:
        parse_options("cluster_size=2", {})
    assert error.value.problems[-1] == "defaults that hold here: num_ps=2 (%tfos config)"


def test_an_exported_script_says_what_the_notebook_s_defaults_said():
    DEFAULTS.set(SESSION, {"restarts": 2})
    options = parse_options("cluster_size=2", {})
    assert sorted(_keywords(type(options.cluster), options)) == ["cluster_size=2", "restarts=2"]
