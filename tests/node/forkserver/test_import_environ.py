"""Which variables choose a fork server."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tfos_lab.node.forkserver.import_environ import import_environ_of, whole_environ_of

# Prints the variables before and after what `cluster.model()` makes a kernel import.
_IMPORT = """
import json, os
from tfos_lab.node.forkserver.import_environ import whole_environ_of
before = whole_environ_of(os.environ, {}, tensorflow=True)
import keras, sklearn, tensorflow
keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
print(json.dumps([before, whole_environ_of(os.environ, {}, tensorflow=True)]))
"""


@pytest.mark.tensorflow
def test_a_kernel_that_has_imported_tensorflow_uses_the_same_fork_server():
    command = [sys.executable, "-c", _IMPORT]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    before, after = json.loads(done.stdout.splitlines()[-1])
    assert after == before


def test_values_of_the_user_s_own_choose_another_one():
    chosen = whole_environ_of({"TF2_BEHAVIOR": "0", "KMP_BLOCKTIME": "0", "USER": "me"}, {}, tensorflow=True)
    assert chosen == {"TF2_BEHAVIOR": "0", "KMP_BLOCKTIME": "0"}
    assert import_environ_of({"TF_CONFIG": "{}", "TF_CPP_MIN_LOG_LEVEL": "1"}, {"ANY": "x"}) == {
        "ANY": "x",
        "TF_CPP_MIN_LOG_LEVEL": "1",
    }
