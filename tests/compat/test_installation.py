"""`install`: what it says, and that nodes have the alias before they unpack anything."""

from __future__ import annotations

import subprocess
import sys

SAY_TWICE = "import tfos_lab.compat; tfos_lab.compat.install(); tfos_lab.compat.install()"


def run_python(code, **environ):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=True)


def test_it_is_silent_and_may_be_called_again():
    done = run_python(SAY_TWICE)
    assert (done.stdout, done.stderr) == ("", "")


def test_one_line_says_which_wins_if_the_real_one_is_installed(tmp_path):
    (tmp_path / "tensorflowonspark").mkdir()
    (tmp_path / "tensorflowonspark/__init__.py").touch()
    [line] = run_python(SAY_TWICE, PYTHONPATH=str(tmp_path)).stderr.splitlines()
    installed = tmp_path / "tensorflowonspark/__init__.py"
    assert line.endswith(f"tensorflowonspark is installed ({installed}), but means tfos_lab.compat now")


def test_a_node_has_the_alias_before_it_unpacks(tmp_path):
    (tmp_path / "users.py").write_text(
        "import tensorflowonspark\n\ndef map_fun(args, ctx):\n    return tensorflowonspark.__name__\n"
    )
    pack = (
        "import sys, tfos_lab.compat; from tfos_lab.payload.packing import pack; "
        "tfos_lab.compat.install(); import users; sys.stdout.buffer.write(pack(users.map_fun, None))"
    )
    environ = {"PYTHONPATH": str(tmp_path)}
    packed = subprocess.run([sys.executable, "-c", pack], capture_output=True, env=environ, check=True).stdout
    unpack = (
        "import sys; from tfos_lab.payload.packing import unpack; print(unpack(sys.stdin.buffer.read())[0](None, None))"
    )
    done = subprocess.run([sys.executable, "-c", unpack], input=packed, capture_output=True, env=environ, check=True)
    assert done.stdout == b"tfos_lab.compat\n"
