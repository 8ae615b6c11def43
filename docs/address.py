"""Writes the project's address wherever it stands: python docs/address.py

It is filled in once, in pyproject.toml (project.urls); the notebook, trip_node and
CITATION.cff, which can't look it up, take it from there.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = (
    "experiments/notebooks/trip_jax.ipynb",
    "trip_node/pyproject.toml",
    "CITATION.cff",
)
"""CITATION.cff tells the address that they hold, and so comes last."""


def addressed(text: str, held: str, address: str) -> str:
    """A text whose links to the project on GitHub, Colab's included, are to this address.

    Args:
        held: the address that they are to so far.
    """
    old, new = (one.removeprefix("https://github.com/") for one in (held, address))
    link = rf"(github\.com/|colab\.research\.google\.com/github/){re.escape(old)}(?![\w-])"
    return re.sub(link, rf"\g<1>{new}", text)


def held_by(citation: str) -> str:
    """The address in the text of CITATION.cff."""
    (address,) = re.findall(r'^repository-code: "(.*)"$', citation, flags=re.MULTILINE)
    return str(address)


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    held = held_by((ROOT / "CITATION.cff").read_text())
    for place in PLACES:
        path = ROOT / place
        path.write_text(addressed(path.read_text(), held, project["urls"]["Repository"]))
