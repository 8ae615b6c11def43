"""The table of epsilon by noise, computed by the accountant of runs.

    ```{epsilon} 0.1, 1, 10
    :rounds: 10
    ```

The argument lists values of `privacy.noise`. Delta is the default of runs.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from trip_jax.learning.privacy import Gaussian, Privacy


def table(noises: Sequence[str], rounds: int) -> Iterator[str]:
    """The lines of the table in Markdown."""
    delta = Privacy().delta
    spent = (Gaussian(1.0, float(one)).guarantee(rounds, delta).epsilon for one in noises)
    said = f"{delta:g}".replace("e-0", "e-")
    yield f"| `privacy.noise` in {rounds} rounds | {' | '.join(noises)} |"
    yield "|---" * (1 + len(noises)) + "|"
    yield f"| epsilon at delta {said} | {' | '.join(map(_said, spent))} |"


def _said(epsilon: float) -> str:
    """Three digits, or all before the point."""
    return f"{epsilon:,.0f}" if epsilon >= 100 else f"{epsilon:.3g}"


class Epsilon(SphinxDirective):
    """The directive `epsilon`, which becomes the table."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar = {"rounds": directives.positive_int}

    def run(self) -> list[nodes.Node]:
        noises = [one.strip() for one in self.arguments[0].split(",")]
        lines = list(table(noises, self.options["rounds"]))
        found = nodes.container()
        self.state.nested_parse(StringList(lines, "epsilon"), 0, found)
        return found.children


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("epsilon", Epsilon)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
