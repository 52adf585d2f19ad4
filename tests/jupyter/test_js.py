"""The dashboard's modules by themselves, under Node's own test runner: ``tests/js``."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.support.nodejs import find_node

REPOSITORY = Path(__file__).parents[2]
STATIC = Path("tfos_lab/jupyter/display/static")


def test_the_tests_of_the_modules_pass(tmp_path: Path) -> None:
    # Node only treats them as modules if a package.json beside them says so.
    (tmp_path / "package.json").write_text(json.dumps({"type": "module"}))
    for folder in (STATIC, Path("tests/js")):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder)
    files = sorted(str(path) for path in (tmp_path / "tests" / "js").glob("*.test.js"))
    assert files
    command = [find_node(), "--test", *files]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
