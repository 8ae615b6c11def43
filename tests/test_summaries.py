"""Numbers that summaries repeat are those of the table of results, and of the paper's numbers."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas
import pytest

from experiments import adapters
from experiments.harness import result_table
from trip_jax.shapley.borders import n_border_coalitions

ROOT = Path(__file__).parents[1]
README = "README.md"
SCALING = "docs/results/scaling.md"
SPEED = "docs/results/speed.md"
ADAPTERS, TRUTH = "docs/results/adapters.md", "docs/truth.md"

DIGITS = "methods/digits"
SAID = (
    (f"{DIGITS}-predictions", "method=predictions", ".004 ± .001"),
    (DIGITS, "method=surrogate", ".007 ± .003"),
    (DIGITS, "method=TRIP-Shapley", ".228 ± .041"),
)
"""Distances by accuracy in the README: runs, rows, what it says."""

GAINS = (
    ("amount=0.1; defended=False", ".0248"),
    ("amount=0.1; defended=True", "-.0001"),
    ("amount=0.05; defended=True", ".0092"),
    ("amount=0.05; defended=False", ".0124"),
)
"""What liars gain by false reports, in the README."""


Computed = Callable[[str, str, str], str]
"""(run, rows, template) -> what stands in a cell of a page."""


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Computed]:
    pytest.importorskip("sphinx", reason="pip install sphinx")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from extensions import results as extension

    def compute(run: str, where: str, template: str) -> str:
        frame = extension.chosen(extension.rows(run), extension.conditions(f"run={run}; {where}"))
        found: str = extension.filled(template, frame, {})
        return found

    yield compute
    for name in [name for name in sys.modules if name.split(".")[0] == "extensions"]:
        monkeypatch.delitem(sys.modules, name)


def text_of(page: str) -> str:
    return " ".join((ROOT / page).read_text().split())


def test_distances_of_methods(computed: Computed) -> None:
    for run, where, said in SAID:
        found = computed(run, f"utility=accuracy; {where}", "{distance .3 sd}")
        assert found == said and said in text_of(README), (run, where)


def test_what_lies_gain(computed: Computed) -> None:
    lies = "lie=d2; variant=-; fraction=0.2"
    for where, said in GAINS:
        assert computed("dishonest/held-out", f"{lies}; {where}", "{gain .4}") == said, where
        assert said in text_of(README)


def test_how_many_clients_are_possible(computed: Computed) -> None:
    million = computed("scaling/million", "clients=1000000", "{seconds_a_round .0} s, GiB")
    memory = computed("scaling/million", "clients=1000000", "{memory_peak_GiB .0} GiB")
    for page in (README, SCALING):
        assert million.partition(",")[0] in text_of(page) and memory in text_of(page)


def test_what_the_papers_scale_takes_on_a_card(computed: Computed) -> None:
    samples, models, of_a_cell = 100 * 600 * 3 * 50, 3560 * 50, 296 * 7500 * 10
    taken, moved, cells = [], [], []
    for precision in ("float32", "tensorfloat32", "bfloat16"):
        where = f"precision={precision}; clients=100"
        training, evaluation = f"{where}; models_at_once=100", f"{where}; models_at_once=64"
        seconds = [
            amount / float(computed("roofline", f"work={work}", "{median .3}"))
            for amount, work in (
                (samples, f"training; {training}"),
                (models, f"evaluation; {evaluation}"),
            )
        ]
        shares = [
            float(computed("roofline", f"work={work}", "{of_floor .3}"))
            for work in (f"training; {training}", f"evaluation; {evaluation}")
        ]
        taken.append(f"{sum(seconds):.0f} s")
        moved.append(f"{sum(a * b for a, b in zip(seconds, shares, strict=True)):.0f} s")
        cells.append(f"{seconds[0] * of_a_cell / samples:.0f} s")
    page = text_of(SPEED)
    assert f"| small world | {' | '.join(taken)} |" in page
    assert f"| its memory traffic alone | {' | '.join(moved)} |" in page
    assert f"| a cell of Table I | {' | '.join(cells)} |" in page


def test_what_is_arithmetic() -> None:
    measured = result_table.rows("adapters")
    lines = " ".join(adapters.on_paper(measured[measured.adapted.notna()]))
    for said in ("1.007 billion", "2.0 GB", "5.2 MB", "4.0 GB", "1.6 GB", "1,208 GB", "4.08"):
        assert said in lines and said in text_of(ADAPTERS), said
    assert "4.1 GFLOP" in lines and "| 4.1 |" in text_of(ADAPTERS)

    border = n_border_coalitions(8, 2)
    for n, executed in ((8, 2**8), (8, border), (10, 2**10), (20, 128), (100, 512)):
        time = f"{round(n * executed / (8 * 2**8), 2):g}".lstrip("0")
        row = rf"\| {n}, [^|]*\| {executed:,}( drawn)? \| {re.escape(time)} "
        assert re.search(row, text_of(TRUTH)), row


def test_numbers_at_the_papers_scale() -> None:
    numbers = pandas.read_csv(ROOT / "experiments" / "paper.csv")
    correlations = numbers[numbers.claim == "correlation"]
    correlations = correlations[correlations.utility == "accuracy"]
    found = correlations.groupby(["distribution", "measure"]).ours.mean()
    for distribution in ("sizes", "noisy_images"):
        assert f"{found[distribution, 'Pearson']:.2f}".replace("0.", ".") in text_of(README)
    rows = numbers[(numbers.measure == "cosine distance") & (numbers.method == "TRIP-Shapley")]
    rows = rows[(rows.utility == "accuracy") & (rows.dataset == "fashion_mnist")]
    first = rows[rows.topology == "regular"].ours.mean()
    assert f"| {first:.3f}; equal".replace("0.", ".") in text_of(README)
