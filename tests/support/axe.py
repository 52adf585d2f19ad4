"""axe-core in a page: what keeps people from using a part of it, by the rules of WCAG and axe's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from axe_playwright_python.base import AXE_SCRIPT

if TYPE_CHECKING:
    from playwright.sync_api import Page

_RUN = """async (selector) => {
  const { violations } = await axe.run({ include: [selector] }, { resultTypes: ["violations"] });
  return violations;
}"""


def violations_in(page: Page, selector: str) -> list[str]:
    """Return what axe finds in the elements that match, a line for each: its rule, what is wrong, and where."""
    assert page.locator(selector).count(), f"{selector} is not on the page"
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    found: list[dict[str, Any]] = page.evaluate(_RUN, selector)
    return [
        f"{violation['id']}: {violation['help']}: {node['html'][:200]}: {node['failureSummary']}"
        for violation in found
        for node in violation["nodes"]
    ]
