"""A module beside the notebook reaches nodes that do not have it, and each run has it as it is on disk."""

import pytest

from tests.support.quick import QUICK_ENV


@pytest.mark.back_ends("standalone")
def test_a_module_beside_the_notebook_reaches_each_run_as_it_is_on_disk(run, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "helpers_of_a_run.py"

    def map_fun(args, ctx):
        import helpers_of_a_run

        return helpers_of_a_run.RATE * args

    results = []
    for rate in (3, 44):
        file.write_text(f"RATE = {rate}\n")
        results.append(set(run(map_fun, 2, cluster_size=2, env=QUICK_ENV).wait(60).values()))
    assert results == [{6}, {88}]
