"""The doctor's checks of what Jupyter loads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tfos_lab.engine.doctor import front_end


@pytest.fixture
def folders(monkeypatch, tmp_path):
    """Jupyter's folders for data and configuration, with both extensions; the user's configuration comes first."""
    data, user, system = (tmp_path / name for name in ("data", "user", "system"))
    monkeypatch.setattr("jupyter_core.paths.jupyter_path", lambda *parts: [str(Path(data, *parts))])
    monkeypatch.setattr("jupyter_core.paths.jupyter_config_path", lambda: [str(user), str(system)])
    monkeypatch.setattr(front_end.sys, "prefix", str(tmp_path / "prefix"))
    write(data / "labextensions/tfos-lab/package.json", {})
    write_server(system, enabled=True)
    return data, user, system


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def write_server(folder, *, enabled):
    settings = {"ServerApp": {"jpserver_extensions": {"tfos_lab.jupyter_server": enabled}}}
    write(folder / "jupyter_server_config.d/tfos_lab.json", settings)


def test_extensions_that_are_there_are_fine(folders):
    assert front_end.check_lab_extension().ok
    assert front_end.check_server_extension().ok


def test_a_missing_lab_extension_is_a_problem(folders):
    (folders[0] / "labextensions/tfos-lab/package.json").unlink()
    finding = front_end.check_lab_extension()
    assert (finding.ok, finding.found) == (False, f"no tfos-lab in {folders[0]}/labextensions")
    assert "make setup" in finding.advice


@pytest.mark.parametrize("disabled", [{"tfos-lab": True}, {"tfos-lab:clusters": True}, ["tfos-lab"]])
def test_a_disabled_lab_extension_is_a_problem_with_the_command_that_enables_it(folders, disabled):
    page = folders[2] / "labconfig/page_config.json"
    write(page, {"disabledExtensions": disabled})
    finding = front_end.check_lab_extension()
    assert (finding.ok, finding.found) == (False, f"disabled in {page}")
    assert finding.advice == "jupyter labextension enable tfos-lab, then reload the page"


def test_the_user_s_own_word_counts_more_than_the_system_s(folders):
    write(folders[2] / "labconfig/page_config.json", {"disabledExtensions": {"tfos-lab": True}})
    write(folders[1] / "labconfig/page_config.json", {"disabledExtensions": {"tfos-lab": False}})
    assert front_end.check_lab_extension().ok


def test_what_others_have_disabled_is_no_problem(folders):
    write(folders[1] / "labconfig/page_config.json", {"disabledExtensions": {"tfos-lab-other": True}})
    (folders[2] / "labconfig").mkdir()
    (folders[2] / "labconfig/page_config.json").write_text("{")
    assert front_end.check_lab_extension().ok


def test_a_server_extension_that_is_disabled_or_unknown_is_a_problem(folders):
    write_server(folders[1], enabled=False)
    finding = front_end.check_server_extension()
    assert finding.found == f"disabled in {folders[1]}/jupyter_server_config.d/tfos_lab.json"
    assert finding.advice.startswith("jupyter server extension enable tfos_lab.jupyter_server")
    for folder in folders[1:]:
        (folder / "jupyter_server_config.d/tfos_lab.json").unlink()
    assert front_end.check_server_extension().found == "no configuration names it"


def test_what_jupyter_s_command_has_disabled_is_found(folders):
    settings = {"ServerApp": {"jpserver_extensions": {"tfos_lab.jupyter_server": False}}}
    # `jupyter server extension disable` writes a file of its own beside the one that was installed.
    write(folders[2] / "jupyter_server_config.d/tfos_lab.jupyter_server.json", settings)
    assert "tfos_lab.jupyter_server.json" in front_end.check_server_extension().found


def test_an_environment_for_kernels_only_needs_neither(monkeypatch):
    monkeypatch.setattr(front_end.importlib.util, "find_spec", lambda _name: None)
    assert front_end.check_lab_extension().ok
    assert front_end.check_server_extension().ok
