"""Runs a program that was written for TensorFlowOnSpark, unchanged, as Python runs a script."""

from __future__ import annotations

import builtins
import importlib.util
import runpy
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from tfos_lab.compat.alias import install
from tfos_lab.compat.missing import add_advice

_WRAPPER = Path(__file__).with_name("__main__.py")
USAGE = """\
usage: python -m tfos_lab.compat SCRIPT [ARGUMENTS...]
   or: python -m tfos_lab.compat -m MODULE [ARGUMENTS...]
   or: spark-submit [OPTIONS] "$(python -m tfos_lab.compat --path)" SCRIPT [ARGUMENTS...]

Runs a program that was written for TensorFlowOnSpark, unchanged: `import tensorflowonspark` means tfos_lab.compat.

  -m      run a module of the search path as a program, such as unittest or pytest
  --path  print the path of the program that spark-submit runs, and exit
  --help  print this text, and exit"""


def main(arguments: Sequence[str]) -> int:
    """Run the command line, without its first word; returns the exit code."""
    match list(arguments):
        case ["-h" | "--help"]:
            sys.stdout.write(f"{USAGE}\n")
            return 0
        case ["--path"]:
            sys.stdout.write(f"{_WRAPPER}\n")
            return 0
        case ["-m", module, *rest]:
            return _refusal(f"there is no module {module}") if _is_missing(module) else run_module(module, rest)
        case [script, *rest] if not script.startswith("-"):
            problem = "is no file" if Path(script).exists() else "does not exist"
            return run_program(script, rest) if Path(script).is_file() else _refusal(f"the program {script} {problem}")
    sys.stderr.write(f"{USAGE}\n")
    return 2


def _is_missing(module: str) -> bool:
    sys.path[0] = str(Path.cwd())
    try:
        return importlib.util.find_spec(module) is None
    except ModuleNotFoundError:
        return True


def _refusal(problem: str) -> int:
    sys.stderr.write(f"tfos_lab.compat: {problem}; give the path of a Python script, or -m and a module\n")
    return 2


def run_program(script: str, arguments: Sequence[str]) -> int:
    """Run a script as ``__main__`` of this process, with the alias installed.

    Functions of ``__main__`` are pickled by value, so the nodes need no copy of the script.

    Returns
    -------
    int
        0, or 1 after an uncaught exception, whose traceback has been printed. `SystemExit` and `KeyboardInterrupt` are
        passed on.
    """
    path = Path(script).resolve()
    main_module = _become_main(path)
    sys.argv[:] = [script, *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = str(path.parent)

    def run_as_main() -> None:
        code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        exec(code, vars(main_module))  # noqa: S102 - it is what the user asks for

    return _run(run_as_main)


def run_module(module: str, arguments: Sequence[str]) -> int:
    """Run a module as ``python -m`` does, with the alias installed; returns what `run_program` returns."""
    sys.argv[:] = [module, *arguments]
    return _run(lambda: runpy.run_module(module, run_name="__main__", alter_sys=True))


def _run(program: Callable[[], object]) -> int:
    install()
    try:
        program()
    except Exception as error:  # noqa: BLE001 - what Python does with a program's last words
        add_advice(error)
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
            traceback = traceback.tb_next
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        return 1
    return 0


def _become_main(path: Path) -> ModuleType:
    """Return a new module that is ``__main__`` from now on, after the script too: threads and exit handlers need it."""
    module = ModuleType("__main__")
    names = {"__file__": str(path), "__builtins__": builtins, "__loader__": SourceFileLoader("__main__", str(path))}
    vars(module).update(names, __cached__=None)
    sys.modules["__main__"] = module
    return module
