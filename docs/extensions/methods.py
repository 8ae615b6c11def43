"""The table of contribution methods, written from what their classes declare."""

from collections.abc import Iterator

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from trip_jax.protocol.contributions import METHODS
from trip_jax.protocol.methods.facts import Costs

HEAD = (
    "method",
    "measured in",
    "computed",
    "who computes it sees",
    "models evaluated",
    "gradients",
    "bytes beside learning",
    "reads",
)


def table() -> Iterator[str]:
    """The lines of the table in Markdown."""
    yield f"| {' | '.join(HEAD)} |"
    yield "|---" * len(HEAD) + "|"
    for name in METHODS:
        method = METHODS[name]
        cells = (
            f"`{name}`",
            method.unit.words,
            str(method.told),
            str(method.sees),
            _amounts(method.costs, "evaluations"),
            _amounts(method.costs, "gradients"),
            _formula(method.costs.amount("n_bytes").formula),
            ", ".join(f"`{one}`" for one in method.reads),
        )
        yield f"| {' | '.join(cells)} |"


def _amounts(costs: Costs, name: str) -> str:
    """What a round takes a client and, if anything, what the end of the run does."""
    each, at_the_end = (costs.amount(one).formula for one in (name, f"final_{name}"))
    later = f"; {_formula(at_the_end)} at the end" * (at_the_end != "0")
    return _formula(each) + later


def _formula(formula: str) -> str:
    """A formula of `Amount` as TeX in dollars."""
    for word, tex in (("min", r"\min"), ("budget", r"\mathrm{budget}")):
        formula = formula.replace(word, tex)
    return f"${formula}$"


class Methods(SphinxDirective):
    """The directive `methods`, which has no content and becomes the table."""

    def run(self) -> list[nodes.Node]:
        found = nodes.container()
        self.state.nested_parse(StringList(list(table()), "methods"), 0, found)
        return found.children


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("methods", Methods)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
