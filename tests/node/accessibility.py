"""What axe-core finds on a page that is open in a browser: contrast, names, landmarks, keyboard."""

from importlib.resources import files
from typing import Any

A4 = 688, 1017
"""Pixels of a sheet less its margins."""
SCREENS = ((1400, "light"), (768, "light"), (375, "dark"))
"""Widths of screens, and their colours."""


def violations(page: Any) -> list[tuple[str, str]]:
    """Each rule that the page breaks, with the first element that does."""
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run().then(({violations}) => violations)")
    return [(one["id"], one["nodes"][0]["html"]) for one in found]
