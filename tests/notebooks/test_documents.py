"""README and docs: their Python is executed, each page as one notebook, and what they say of options is true."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

import tfos_lab
from tests.support.lazy import Lazy
from tfos_lab.errors import ConfigError

nbformat = Lazy("nbformat")

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [README, *DOCS]

_BLOCK = re.compile(r"^(<!-- not run[^\n]*-->\n)?```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_VARIABLE = re.compile(r"\bTFOS_[A-Z_]*[A-Z]\b")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)

per_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def snippets(page: Path, *, run: bool) -> list[str]:
    """Return the page's blocks of Python that are run, or those that are marked as not to be run."""
    return [code for mark, code in _BLOCK.findall(page.read_text()) if bool(mark) != run]


RUNNABLE = [page for page in PAGES if snippets(page, run=True)]


@pytest.mark.parametrize("kernel", ["local"], indirect=True)
@pytest.mark.whole_notebook
@pytest.mark.tensorflow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.name)
def test_the_python_in_a_page_runs(page, kernel, tmp_path):
    cells = [nbformat.v4.new_code_cell(code.strip()) for code in snippets(page, run=True)]
    path = tmp_path / f"{page.stem.lower()}.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    done = kernel.execute(path)
    shown = [cell.outputs[-1].get("data", {}).get("text/plain", "") for cell in done.notebook.cells if cell.outputs]
    for expected in EXPECTED.get(page.name, ()):
        assert any(re.search(expected, text) for text in shown), f"{expected} is not among {shown}"


# What the values of the pages' cells have to show.
EXPECTED = {
    "README.md": (re.escape("{'chief:0': 40, 'worker:0': 40}"), r"all 4 nodes: \["),
    "guide.md": (r"^20$", r"^0$", r"^1000$"),
    "from-tensorflowonspark.md": (r"^332833500$",),
}


@per_page
def test_what_is_not_run_is_python_at_least(page):
    for code in snippets(page, run=False):
        ast.parse(code)


@pytest.fixture(scope="module")
def commands():
    """The names of the commands of `%tfos`."""
    shell = InteractiveShell()
    tfos_lab.load_ipython_extension(shell)
    with pytest.raises(ConfigError) as refused:
        shell.run_line_magic("tfos", "!")
    return set(re.search("there are (.*)", str(refused.value))[1].split(", "))


@per_page
def test_the_line_magics_that_it_names_are_there(page, commands):
    named = set(re.findall(r"`%tfos (\w+)", page.read_text()))
    assert named <= commands


def test_every_line_magic_is_listed(commands):
    named = set(re.findall(r"`%tfos (\w+)", (ROOT / "docs/options.md").read_text()))
    assert named == commands


def test_every_variable_that_the_code_reads_is_in_the_table():
    sources = [path for path in (ROOT / "tfos_lab").rglob("*") if path.suffix in {".py", ".sh"}]
    # A variable of JavaScript is called so, too.
    read = {name for path in sources for name in _VARIABLE.findall(path.read_text())} - {"TFOS_OPTIONS"}
    table = (ROOT / "docs/options.md").read_text().split("## Environment variables")[1]
    listed = re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
    assert sorted(name for name in listed if name.startswith("TFOS_")) == sorted(read)


def test_the_variables_of_others_that_it_names_are_read_too():
    table = (ROOT / "docs/options.md").read_text().split("## Environment variables")[1]
    sources = "\n".join(path.read_text() for path in (ROOT / "tfos_lab").rglob("*.py"))
    names = re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
    # Python's own tempfile reads it.
    assert [name for name in names if name not in sources and name != "TMPDIR"] == []


def test_every_dependency_has_a_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    table = (ROOT / "docs/development.md").read_text().split("## Dependencies")[1].split("## Conventions")[0]
    for requirement in [*project["dependencies"], *project["optional-dependencies"]["lab"]]:
        name = re.match(r"[\w-]+", requirement)[0]
        assert re.search(rf"\b{name}\b", table), name


@per_page
def test_its_links_and_pictures_lead_somewhere(page):
    for link in _LINK.findall(page.read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), link
        if anchor:
            assert anchor in map(anchor_of, _HEADING.findall(target.read_text())), link


def anchor_of(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_every_page_can_be_reached_from_the_readme():
    text = README.read_text()
    for page in DOCS:
        assert f"(docs/{page.name})" in text, page.name


# Modules that open a listener, and what the page on security calls it.
LISTENERS = [
    ("core/listener.py", "control connection"),
    ("driver/tensorboard/server.py", "TensorBoard of a kernel's clusters"),
    ("node/feed/endpoint.py", "rows from other hosts"),
    ("node/agent.py", "TensorFlow's server (gRPC)"),
    ("node/forkserver/main.py", "fork servers"),
    ("node/tensorboard.py", "TensorBoard of a kernel's clusters"),
    ("driver/tensorboard/server.py", "`cluster.tensorboard_url`"),
    ("compat/reservation.py", "`reservation.Server`"),
    ("compat/TFManager.py", "`TFManager.start"),
]
_LISTENS = re.compile(
    r"\bcreate_server\(|create_unix_server|start_unix_server|bind_sockets|BaseManager\)|werkzeug|"
    r"\b(?:router|sock|listener)\.(?:bind|listen)\("
)


def test_every_listener_is_on_the_page_on_security():
    page = (ROOT / "docs/security.md").read_text()
    package = ROOT / "tfos_lab"
    found = {
        path.relative_to(package).as_posix() for path in package.rglob("*.py") if _LISTENS.search(path.read_text())
    }
    assert found == {module for module, _ in LISTENERS}
    assert [name for _, name in LISTENERS if name not in page] == []


def test_the_readme_is_short_enough_to_be_read():
    assert len(README.read_text().splitlines()) < 150
