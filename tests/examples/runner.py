"""Runs programs one after another, in the one session that spark-submit gives it: executors and TensorFlow start once.

Its argument is a Unix socket. Each line that it reads there is a program with its arguments, and each that it answers
what came of it. What a program does at its end to the session is not done.
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import socket
import sys
import traceback

from pyspark.sql import SparkSession


def run(program: str, *arguments: str) -> dict[str, object]:
    """Run one program; return its exit code and what it has printed."""
    sys.argv = [program, *arguments]
    code, printed, told = 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(told):
        try:
            runpy.run_path(program, run_name="__main__")
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        except Exception:  # noqa: BLE001 - it is what the program has come to
            code = 1
            traceback.print_exc()
    return {"returncode": code, "stdout": printed.getvalue(), "stderr": told.getvalue()}


def main(address: str) -> None:
    """Run what comes until nobody is there to ask for more."""
    session, stop = SparkSession.builder.getOrCreate(), SparkSession.stop
    SparkSession.stop = lambda _: None
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        with connection.makefile("rw") as wire:
            for line in wire:
                wire.write(json.dumps(run(*json.loads(line))) + "\n")
                wire.flush()
    stop(session)


if __name__ == "__main__":
    main(sys.argv[1])
