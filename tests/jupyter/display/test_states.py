"""The states of Python's table in style sheets, scripts and pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tfos_lab.core.states import NodeState, RunState, Tone
from tfos_lab.jupyter.display.assets import read_style_sheet
from tfos_lab.jupyter.display.states import fill_in_states
from tfos_lab.jupyter.display.static_table import render_state

REPOSITORY = Path(__file__).parents[3]
SOURCES = REPOSITORY / "extensions/dashboard"


@pytest.mark.parametrize("state", [*NodeState, *RunState])
def test_every_state_is_shown_with_its_sign_and_word(state):
    shown = render_state(state)
    assert f'data-state="{state.value}"' in shown
    assert re.sub(r"<[^>]*>", "", shown) == f"{state.look.sign} {state.value}"


@pytest.mark.parametrize("state", [*NodeState, *RunState])
def test_every_state_has_a_drawing(state):
    drawn = re.findall(r"^  (\w+): \[", (SOURCES / "src/dom.ts").read_text(), flags=re.MULTILINE)
    assert state.look.shape in drawn


@pytest.mark.parametrize("state", [*NodeState, *RunState])
def test_every_state_has_its_colour(state):
    assert f"--tfos-{state.look.tone}:" in (SOURCES / "style/theme.css").read_text()
    sheet = read_style_sheet("dashboard.css")
    assert "@" not in re.sub(r"@(container|keyframes|media)", "", sheet)
    coloured = re.findall(r"\.tfos-state:is\(([^)]*)\){color:var\(--tfos-(\w+)\)", sheet.replace(" ", ""))
    tones = [tone for states, tone in coloured if f'"{state}"' in states]
    assert tones == ([] if state.look.tone is Tone.IDLE else [state.look.tone])  # idle is the default


def test_a_group_of_states_in_a_style_sheet_is_filled_in():
    css = '.a[data-state="@stop-requested"] b, .c[data-state="done"] { top: 0 }'
    filled = '.a:is([data-state="stopping"], [data-state="stopped"]) b, .c[data-state="done"] { top: 0 }'
    assert fill_in_states(css) == filled
