"""References written from the program: settings, variables of results.nc, commands, experiments."""

import ast
import importlib
import io
import textwrap
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from trip_jax.cli.main import COMMANDS, USAGE
from trip_jax.cli.settings import Described, choices_of, groups, of_group, outside_groups
from trip_jax.protocol.contributions import METHODS
from trip_jax.results.variables import COORDINATES, VARIABLES, Variable

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

WORDS = {
    "level": "what the distribution of data varies",
    "first utility": "test accuracy, or R² of models that answer numbers,",
    "unit of loss": "nat, or 1 of models that answer numbers",
    "third utility": "probability, or margin with that utility",
    "third utility of models": "that utility of the client's model",
    "utility": "the utility of the run",
    "lcv": "local contribution",
    "unit": "of contributions",
    "unit of reports": "of reports",
    "unit of lcv": "nat for the loss, 1 for others",
    "unit of gain": "of the utility",
}
"""What stands for the words in braces of a variable, which differ from run to run."""


def settings() -> Iterator[str]:
    """All settings in Markdown: the choices of each group, and a table of its settings."""
    yield "## Outside groups"
    yield from _table(outside_groups())
    for group in groups():
        if group in ("execution", "experiment"):
            continue
        yield from ("", f"## {group}", "")
        yield from (
            f"- `{group}={name}`: {_cell(about)}" for name, about in choices_of(group).items()
        )
        yield from _table(of_group(group))
        if METHODS.setting.startswith(f"{group}."):
            yield from (
                f"- `{METHODS.setting}={one}`: {METHODS[one].in_words()}" for one in METHODS
            )
            yield ""


def _table(rows: Iterator[Described]) -> Iterator[str]:
    found = list(map(_setting, rows))
    if found:
        yield from ("", "| setting | default | what, and who reads it | unit and values |")
        yield from ("|---|---|---|---|", *found, "")


def _setting(one: Described) -> str:
    what = _cell("; ".join((one.meaning, *one.facts)))
    return f"| `{one.name}` | `{one.default}` | {what} | {_cell(one.values)} |"


def variables() -> Iterator[str]:
    """The variables of results.nc in Markdown."""
    for title, declared in (("Coordinates", COORDINATES), ("Variables", VARIABLES)):
        yield from (f"## {title}", "", "| name | axes | what | unit |", "|---|---|---|---|")
        yield from map(_row, declared)
        yield ""


def _row(one: Variable) -> str:
    said = (one.name, one.long_name, one.units or "text")
    name, what, unit = (text.format_map(WORDS) for text in said)
    named = name if "{" in one.name else f"`{name}`"
    return f"| {named} | {', '.join(one.dims)} | {_cell(what)} | {_cell(unit)} |"


def commands() -> Iterator[str]:
    """The help of every command in Markdown."""
    yield from _literal(USAGE)
    for name, module in COMMANDS.items():
        yield from (f"## trip-jax {name}", "")
        with redirect_stdout(io.StringIO()) as said, suppress(SystemExit):
            importlib.import_module(module).main(["--help"])
        yield from _literal(said.getvalue())


def experiments() -> Iterator[str]:
    """What every experiment says of itself in Markdown, its command first."""
    for path in sorted(EXPERIMENTS.glob("[a-z]*.py")):
        said = ast.get_docstring(ast.parse(path.read_text())) or ""
        head, _, rest = said.partition("\n\n")
        if f"python -m experiments.{path.stem}" in rest:
            yield from (f"## {path.stem}", "", _cell(head), "")
            usage, _, explained = rest.partition("\n\n")
            yield from _literal(usage)
            for paragraph in explained.split("\n\n"):
                is_code = paragraph.startswith("    ")
                yield from _literal(paragraph) if is_code else (_cell(paragraph), "")


def _literal(text: str) -> Iterator[str]:
    yield from ("```text", *textwrap.dedent(text).strip("\n").splitlines(), "```", "")


def _cell(text: str) -> str:
    """A text as Markdown takes it in a cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*").replace("<", "\\<")


WRITTEN = {
    "settings-reference": settings,
    "variables-reference": variables,
    "commands-reference": commands,
    "experiments-reference": experiments,
}


class Reference(SphinxDirective):
    """A directive without content, which becomes the reference of its name."""

    def run(self) -> list[nodes.Node]:
        found = nodes.section()
        found.document = self.state.document
        lines = list(WRITTEN[self.name]())
        self.state.nested_parse(StringList(lines, self.name), 0, found, match_titles=True)
        return found.children


def setup(app: Sphinx) -> dict[str, bool]:
    for name in WRITTEN:
        app.add_directive(name, Reference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
