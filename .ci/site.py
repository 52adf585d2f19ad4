"""What MkDocs calls as it builds the site: adds pages from outside docs/, the reference, and files that pages link."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files
from reference import reference_markdown

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
# Pages by their place in the repository, where they are not in docs/.
ELSEWHERE = {"README.md": "index.md", "examples/README.md": "examples.md", "CHANGELOG.md": "changelog.md"}
_LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and files that are not in docs/."""
    for source, target in ELSEWHERE.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    files.append(File.generated(config, "reference.md", content=reference_markdown()))
    for path in sorted(set(_linked_files())):
        files.append(File.generated(config, f"files/{path}", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_given: object) -> str:
    """Turn links from place to place in the repository into links from page to page."""
    source = _source_of(page.file.src_uri)
    return _LINK.sub(lambda link: _on_site(link[1], source, page.file.src_uri), markdown)


def _source_of(page: str) -> str:
    """Return where a page is in the repository."""
    return next((source for source, target in ELSEWHERE.items() if target == page), f"docs/{page}")


def _on_site(link: str, source: str, page: str) -> str:
    path = _target(link, source)
    if "://" in link or not (ROOT / path).is_file():
        return link  # MkDocs says that it leads nowhere
    target = ELSEWHERE.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}")
    return os.path.relpath(target, os.path.dirname(page) or ".")  # noqa: PTH120 - paths of pages, not of files


def _target(link: str, source: str) -> str:
    return os.path.normpath(Path(source).parent / link)


def _linked_files() -> Iterator[str]:
    """Yield the files, not pages, that pages link and that are not in docs/."""
    for source in [*ELSEWHERE, *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]:
        text = _FENCE.sub("", (ROOT / source).read_text("utf-8"))
        for link in _LINK.findall(text):
            path = _target(link, source)
            if "://" not in link and (ROOT / path).is_file() and path not in ELSEWHERE and path[:5] != "docs/":
                yield path
