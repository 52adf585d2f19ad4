"""Writes the table of states (`tfos_lab.core.states`) as modules for the dashboard and for the Lab extension."""

from __future__ import annotations

import json
from pathlib import Path

from tfos_lab.jupyter.display.states import state_tables

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "tfos_lab/jupyter/display/static/states.js"
TYPED = ROOT / "extensions/jupyterlab/src/states.ts"
HEADER = "// Generated from tfos_lab/core/states.py: change that file, then run `python .ci/generate_states.py`.\n"
LOOKS = "sign: string, shape: string, tone: string, ended: boolean"
TYPES = {"nodes": f"{{{LOOKS}, present: boolean, up: boolean}}", "clusters": f"{{{LOOKS}}}"}
NAMES = {"nodes": "NODE_STATES", "clusters": "CLUSTER_STATES"}


def modules() -> dict[Path, str]:
    """Return the text of each module."""
    script, typed = [HEADER], [HEADER]
    for kind, states in state_tables().items():
        rows = "\n".join(f"  {state}: {_literal(traits)}," for state, traits in states.items())
        script.append(f"/** @type {{Record<string, {TYPES[kind]}>}} */\nexport const {NAMES[kind]} = {{\n{rows}\n}};\n")
        typed.append(f"export const {NAMES[kind]}: Record<string, {TYPES[kind]}> = {{\n{rows}\n}};\n")
    return {SCRIPT: "\n".join(script), TYPED: "\n".join(typed)}


def _literal(traits: dict[str, str | bool]) -> str:
    return "{ " + ", ".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in traits.items()) + " }"


if __name__ == "__main__":
    for path, text in modules().items():
        path.write_text(text)
