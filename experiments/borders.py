"""How near ground truths from fewer coalitions come to those from all, and whether errors hold.

    python -m experiments.borders [scale=cpu] [dataset=digits] [model=mlp] [seed=0,1]
        [distribution=iid,...] [topology=regular,star,...] [budgets=74,128] [draws=20] [out=DIR]
        [SETTING=VALUE ...]

Truths of cells in which all coalitions are executed are estimated again from some of these: from
small and large ones (`borders=2`), and from drawn ones by other estimators with so many
coalitions. Error: root mean square over that of the values. Distance: the mean cosine distance
between a client's estimated and exact values, which is what an estimated truth adds to tables by
itself. Coverage: of 1.96 standard errors. Cells and what is kept: as experiments.methods.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas

from experiments.coverage import NORMAL, sampled
from experiments.harness import report
from experiments.harness.command_line import run_as_command
from experiments.harness.kept_runs import Arrays
from experiments.paper.cells import COALITIONS, CellStudy
from experiments.paper.paper_values import DISTRIBUTIONS
from trip_jax.learning.evaluation import UTILITIES
from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley.borders import border_coalitions, border_values
from trip_jax.shapley.sampling import require_budget
from trip_jax.truth.metrics import cosine_distance
from trip_jax.truth.shapley_value import are_all

DRAWN_BY = ("kernelshap", "stratified")
BORDERS = 2
MEASURES = ("error", "distance", "coverage")


def borders(arguments: Sequence[str]) -> None:
    """Estimate the truths that were asked for again; write the report."""
    study = asked(arguments)
    budgets = study.request.numbers("budgets", *((40,) if study.smoke else (74, 128)))
    draws = study.request.number("draws", 20, least=1)
    for dataset, model in study.reports():
        rows: list[dict[str, Any]] = []
        for where in product(study.seeds, study.distributions, study.topologies):
            seed, distribution, topology = where
            chosen = f"distribution={distribution}", f"topology={topology}"
            cell = study.cell(dataset, model, seed, *chosen)
            _require_fewer_than_all(cell.config.n_clients, budgets)
            print(f"{', '.join(map(str, where))}", flush=True)
            named = dict(zip(("seed", "distribution", "topology"), where, strict=True))
            rows += [named | row for row in _judged(cell.decentralised(), budgets, draws)]
        frame = pandas.DataFrame(rows)
        title = study.about(dataset, model, f"{draws} draws")
        written = study.report(dataset, model)
        text = written.write(frame, "Truths from fewer coalitions", title, *_sections(frame))
        print(f"{text}\nresults in {study.folder}")


def asked(arguments: Sequence[str]) -> CellStudy:
    """Which cells are asked for."""
    fixed = {
        name: f"All coalitions are executed here: leave out {name}={{value}}."
        for name in COALITIONS
    }
    own = ("budgets", "draws")
    return CellStudy("borders", arguments, DISTRIBUTIONS, ("regular", "star"), own, fixed)


def _require_fewer_than_all(n: int, budgets: Sequence[int]) -> None:
    if are_all(n, borders=BORDERS):
        raise InvalidSetting(f"borders={BORDERS} leaves out none of n_clients={n}: set it to 6.")
    for estimator, budget in product(DRAWN_BY, budgets):
        require_budget(budget, n, estimator, "budgets")
        if budget >= 2**n:
            raise InvalidSetting(f"budgets={budget} must lie below the {2**n} coalitions of all.")


def _judged(truth: Arrays, budgets: Sequence[int], draws: int) -> Iterator[dict[str, Any]]:
    """A row for each estimator, budget and utility."""
    n = truth["inside"].shape[1]
    number = 1 << np.arange(n)
    table = np.zeros_like(truth["utilities"])  # [2^n, n, 3], coalitions by their numbers
    table[truth["inside"] @ number] = truth["utilities"] - truth["utilities"][0]
    exact = truth["values"].swapaxes(0, 1)  # of player j to receiver i: [j, i, 3]
    inside = border_coalitions(n, BORDERS)
    values, errors = border_values(inside, table[inside @ number])
    for row in _measured(values[None], errors[None], exact):
        yield {"estimator": f"borders={BORDERS}", "coalitions": len(inside)} | row
    games = jnp.asarray(table.reshape(len(table), -1), jnp.float32)
    keys = jax.random.split(jax.random.key(2026), draws)
    for estimator, budget in product(DRAWN_BY, budgets):
        found = sampled(games, keys, estimator=estimator, budget=budget)
        values, errors = (np.asarray(one).reshape(draws, *exact.shape) for one in found)
        for row in _measured(values, errors, exact):
            yield {"estimator": estimator, "coalitions": budget} | row


def _measured(
    values: np.ndarray, errors: np.ndarray, exact: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Of values and errors [draws, players, receivers, 3]."""
    off = np.abs(values - exact)
    for k, utility in enumerate(UTILITIES):
        size = np.sqrt((exact[..., k] ** 2).mean())
        of_clients = cosine_distance(values[..., k].swapaxes(-1, -2), exact[..., k].T)
        yield {
            "utility": utility,
            "error": np.sqrt((off[..., k] ** 2).mean()) / size,
            "distance": np.nanmean(of_clients),
            "coverage": (off[..., k] <= NORMAL * errors[..., k] + 1e-6 * size).mean(),
            "claimed": np.sqrt((errors[..., k] ** 2).mean()) / size,
        }


def _sections(frame: pandas.DataFrame) -> Iterator[str]:
    """A table of each utility, as Markdown."""
    yield (
        "Means over cells, and the worst cell. Error: root mean square over that of the values; "
        "distance: mean cosine distance to the exact values; coverage: of 1.96 standard errors."
    )
    for utility, rows in frame.groupby("utility", sort=False):
        head = [one for name in MEASURES for one in (name, "worst")]
        lines = [["estimator", "coalitions", *head]]
        for key, own in rows.groupby(["estimator", "coalitions"], sort=False):
            worst = [own.error.max(), own.distance.max(), own.coverage.min()]
            means = [own[name].mean() for name in MEASURES]
            both = [one for pair in zip(means, worst, strict=True) for one in pair]
            digits = (3, 3, 4, 4, 3, 3)
            cells = [report.number(v, d) for v, d in zip(both, digits, strict=True)]
            lines.append([*map(str, key), *cells])
        yield f"## By {utility}"
        yield report.markdown(lines)


if __name__ == "__main__":
    run_as_command(borders)
