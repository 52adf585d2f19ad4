"""A real IPython shell with the extension, and nodes with a quick TensorFlow, for the tests of the notebook edge."""

import gc
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell

import tfos_lab
from tests.notebook.kernel import Kernel
from tests.support.quick import QUICK_ENV
from tfos_lab.errors import ConfigError


@pytest.fixture(scope="module", autouse=True)
def _quick_resets():
    """A reset of the shell collects garbage: not among all of TensorFlow, if tests of this process have imported it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _quick_nodes(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", QUICK_ENV["PYTHONPATH"])
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))


@pytest.fixture
def shell():
    """The shell of this process as a fresh notebook has it; clusters that still run at the end are stopped."""
    main, shell = sys.modules["__main__"], InteractiveShell.instance()
    shell.reset(new_session=True)
    sys.modules["__main__"] = shell.user_module
    yield shell
    for cluster in tfos_lab.clusters():
        if not cluster.ended:
            cluster.stop(grace=0.0)
    shell.reset(new_session=True)
    sys.modules["__main__"] = main


@pytest.fixture
def run(shell):
    """Run a cell of a notebook with the extension, as a front end does; return its value, or raise its error."""

    def run(text):
        result = shell.run_cell(text, store_history=True)
        result.raise_error()
        return result.result

    tfos_lab.load_ipython_extension(shell)
    yield run
    shell.run_cell("%tfos config reset")


@pytest.fixture
def problem(run):
    """The sentence with which a cell is refused."""

    def problem(text):
        with pytest.raises(ConfigError) as error:
            run(text)
        return str(error.value)

    return problem


@pytest.fixture
def said(run, capsys):
    """Run a cell and return the lines that it prints."""

    def said(text):
        capsys.readouterr()
        run(text)
        return capsys.readouterr().out.splitlines()

    return said


@pytest.fixture(scope="session")
def kernel(tmp_path_factory):
    """A real kernel with the extension, driven as a front end with somebody at its keyboard does."""
    with Kernel(tmp_path_factory.mktemp("kernel")) as kernel:
        assert kernel.run("%colors nocolor\n%load_ext tfos_lab") == ""
        yield kernel
