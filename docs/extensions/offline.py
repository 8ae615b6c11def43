"""The site is read without a network: a page that would fetch from elsewhere is refused."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

ELSEWHERE = re.compile(r"\s*(?:[a-z][a-z+.-]*:)?//", re.IGNORECASE)
IN_CSS = re.compile(r"""(?:url\(|@import)\s*["']?([^"')\s;]+)""")
FETCHED = {"src", "srcset", "poster", "data"}
"""Attributes whose address a browser opens by itself; of <link>, href is one as well."""


class Addresses(HTMLParser):
    """Collects what a page fetches."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._style = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._style = tag == "style"
        for name, value in attributes:
            if name in FETCHED or (tag == "link" and name == "href"):
                self.found.append(value or "")
            elif name == "style":
                self.found += IN_CSS.findall(value or "")

    def handle_data(self, text: str) -> None:
        if self._style:
            self.found += IN_CSS.findall(text)


def fetched_from_elsewhere(site: Path) -> Iterator[tuple[Path, str]]:
    """Files of a site with the addresses outside of it that a browser would open."""
    for path in sorted(site.rglob("*")):
        if path.suffix == ".css":
            addresses = IN_CSS.findall(path.read_text())
        elif path.suffix == ".html":
            parser = Addresses()
            parser.feed(path.read_text())
            addresses = parser.found
        else:
            continue
        yield from ((path, address) for address in addresses if ELSEWHERE.match(address))


def refuse(app: Sphinx, error: Exception | None) -> None:
    """A warning, with which a strict build fails, for each of them."""
    if error is None and app.builder.format == "html":
        for path, address in fetched_from_elsewhere(Path(app.outdir)):
            logging.getLogger(__name__).warning("%s fetches %s", path, address)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", refuse)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
