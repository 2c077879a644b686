"""What axe-core (vendored in ``axe/`` with its licence) finds on a page."""

import json
from collections.abc import Collection
from functools import cache
from pathlib import Path

from tests.support.browser.page import Page

SOURCE = Path(__file__).parent / "axe/axe.min.js"
#: The rules of WCAG 2.2 at A and AA, and what axe calls best practice.
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
#: The rules whose result differs between light and dark.
COLOURS = ("color-contrast", "link-in-text-block")
GRAVE = ("serious", "critical")
#: Two frames, in which a page hears of light or dark, then in an instant: a colour on its way between is neither.
SETTLE = """new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve))).then(() =>
  document.getAnimations().forEach(each => { try { each.finish(); } catch { each.cancel(); } }))"""
RUN = """axe.run(document, %s).then(({violations}) => violations.flatMap(({id, impact, help, nodes}) =>
  nodes.map(node => ({id, impact, help, at: node.target.join(" "), why: node.failureSummary, html: node.html}))))"""


@cache
def _source() -> str:
    return SOURCE.read_text()


def violations(page: Page, ignored: Collection[str] = (), *, colours_only: bool = False) -> list[str]:
    """Return what is serious or critical, each with its rule, its element and how to mend it."""
    page.evaluate(SETTLE)
    only = {"type": "rule", "values": COLOURS} if colours_only else {"type": "tag", "values": TAGS}
    options = {"runOnly": only, "resultTypes": ["violations"], "preload": False}
    found = page.evaluate_apart(_source(), RUN % json.dumps(options))
    return [
        f"{each['impact']} {each['id']}: {each['help']}: {each['at']}: {each['why']} {each['html'][:200]}"
        for each in found
        if each["impact"] in GRAVE and each["id"] not in ignored
    ]
