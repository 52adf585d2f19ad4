"""The option ``gpus``: its values, and what each job gets."""

from __future__ import annotations

import pytest

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.gpu_shares import EQUAL, gpus_wanted
from tfos_lab.errors import ConfigError

JOBS = ("chief", "worker", "ps", "evaluator")
PINNED = {"CUDA_VISIBLE_DEVICES": "1"}


@pytest.mark.parametrize(
    ("gpus", "env", "wanted"),
    [
        (None, {}, [EQUAL, EQUAL, 0, 0]),
        (2, {}, [2, 2, 0, 0]),
        (0, {}, [0, 0, 0, 0]),
        ({"worker": 2, "evaluator": 1}, {}, [0, 2, 0, 1]),
        ("all", {}, [None] * 4),
        (None, PINNED, [None] * 4),
        (1, PINNED, [1, 1, 0, 0]),
    ],
)
def test_nodes_that_train_get_gpus_and_others_where_they_are_asked_for(gpus, env, wanted):
    assert [gpus_wanted(gpus, job, env) for job in JOBS] == wanted


@pytest.mark.parametrize(
    ("gpus", "message"),
    [
        ("some", "gpus='some': a whole number of GPUs per node is needed, or 'all' for all nodes to see all"),
        ({"boss": 1}, r"gpus\['boss'\]: not a job name; there are ps, chief, master, evaluator, worker"),
        ({"worker": 0.5}, r"gpus\['worker'\]=0.5: a whole number of GPUs per node is needed"),
        (True, "gpus=True: a whole number of GPUs per node is needed"),
    ],
)
def test_other_values_are_refused(gpus, message):
    with pytest.raises(ConfigError, match=message):
        ClusterConfig(gpus=gpus)
