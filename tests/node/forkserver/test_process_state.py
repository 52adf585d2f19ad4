"""What a forked process has of whoever asked for it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

from tfos_lab.node.forkserver.process_state import ProcessState

_APPLY = """
import json, msgspec, os, resource, sys, tempfile, time
from tfos_lab.node.forkserver.process_state import ProcessState
tempfile.gettempdir()
msgspec.msgpack.decode(bytes.fromhex(sys.argv[1]), type=ProcessState).apply()
now = ProcessState.of_this_process(os.environ)
print(json.dumps([msgspec.to_builtins(now), tempfile.gettempdir(), time.tzname]))
"""


def applied(state, **options):
    import msgspec

    encoded = msgspec.msgpack.encode(state).hex()
    done = subprocess.run(
        [sys.executable, "-c", _APPLY, encoded], capture_output=True, text=True, check=True, **options
    )
    return json.loads(done.stdout)


def test_all_of_it_is_taken_over(tmp_path):
    environ = {"ONLY": "this", "TMPDIR": str(tmp_path), "TZ": "Etc/GMT-3"}
    ours = ProcessState.of_this_process(environ)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = {**ours.limits, resource.RLIMIT_NOFILE: (min(soft, 100), hard)}
    cpus = ours.cpus[:1]
    wanted = ProcessState(environ=environ, cwd=str(tmp_path), umask=0o027, limits=limits, cpus=cpus)
    now, folder, zone = applied(wanted, env={**os.environ, "OLD": "state"}, umask=0o077)
    assert now["environ"] == environ
    assert now["cwd"] == str(tmp_path)
    assert now["umask"] == 0o027
    assert now["limits"][str(resource.RLIMIT_NOFILE)] == [min(soft, 100), hard]
    assert now["cpus"] == cpus
    assert folder == str(tmp_path)
    assert zone[0] == "+03"


def test_a_limit_that_is_refused_is_taken_as_far_as_it_goes():
    ours = ProcessState.of_this_process(dict(os.environ))
    lower = (64, 64)

    def lower_limits():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, lower)

    now, *_ = applied(ours, preexec_fn=lower_limits)
    had = list(ours.limits[resource.RLIMIT_NOFILE])
    assert now["limits"][str(resource.RLIMIT_NOFILE)] in ([64, 64], had)  # the administrator may raise it


def test_a_working_directory_that_is_gone_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    state = ProcessState.of_this_process({})
    assert state.cwd == ""
    monkeypatch.chdir(tmp_path)
    assert applied(state, cwd=str(tmp_path))[0]["cwd"] == str(tmp_path)
