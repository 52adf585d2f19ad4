"""The site of the documents: it is built strictly, from the same pages, with a reference of what is public."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import tfos_lab

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return folder


class Links(HTMLParser):
    """What a page leads to, and the anchors that it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors |= {given["id"]} if given.get("id") else set()
        self.targets += [given[name] for name in ("href", "src") if given.get(name)]


def test_every_link_of_every_page_leads_somewhere(site):
    pages = {path: Links(path) for path in site.glob("*.html") if path.name != "404.html"}
    assert len(pages) > 12
    lost = []
    for page, links in pages.items():
        for link in links.targets:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            known = target in pages and parts.fragment in ("", "__skip", *pages[target].anchors)
            if not (known if target.suffix == ".html" else target.is_file()):
                lost.append(f"{page.name}: {link}")
    assert lost == []


def test_the_reference_has_all_that_is_public(site):
    text = (site / "reference.html").read_text("utf-8")
    for name in tfos_lab.__all__:
        assert name.startswith("__") or f"tfos_lab.{name}" in text, name
    assert "{options}" not in text
    assert "<li><code>cluster_size</code> (<code>int, default 1</code>): Nodes" in text, "docstrings become lists"


def test_pictures_and_examples_come_along(site):
    assert (site / "files/tests/golden/compute-bound.png").is_file()
    assert list(site.glob("files/examples/mnist/*.py"))


def test_what_is_marked_as_not_run_is_still_shown_as_python(site):
    assert re.search(r'class="(language-python )?highlight"', (site / "deployment.html").read_text("utf-8"))
