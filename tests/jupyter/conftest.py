"""A real IPython shell for the tests of the notebook edge."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell


@pytest.fixture
def shell() -> Iterator[Any]:
    """The shell of this process, with the names of a fresh notebook."""
    main = sys.modules["__main__"]
    shell = InteractiveShell.instance()
    sys.modules["__main__"] = shell.user_module
    before = dict(shell.user_ns)
    yield shell
    for name in set(shell.user_ns) - set(before):
        del shell.user_ns[name]
    shell.user_ns.update(before)
    sys.modules["__main__"] = main


@pytest.fixture
def run_cell(shell: Any) -> Any:
    """Run a cell as a front end does, and raise what it raises."""

    def run(text: str) -> Any:
        result = shell.run_cell(text, store_history=True)
        result.raise_error()
        return result.result

    return run
