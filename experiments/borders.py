"""How near truths from fewer coalitions come to those from all, and whether errors hold.

    python -m experiments.borders [scale=cpu] [dataset=digits] [model=mlp] [seed=0,1]
        [distribution=iid,...] [topology=regular,star,...] [budgets=48,74] [draws=20]
        [corrected=none,predictions,surrogate] [out=DIR] [SETTING=VALUE ...]

Truths of cells in which all coalitions are executed are estimated again from some of these: from
small and large ones (`borders=1`, `borders=2`), and from drawn ones by other estimators with so
many coalitions; each also corrected by the replay of a method, as `decentralised_truth` can. Error:
root mean square over that of the values. Distance: the mean cosine distance between a client's
estimated and exact values, which is what an estimated truth adds to tables by itself. Coverage: of
1.96 standard errors. Cells and what is kept: as experiments.methods.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from experiments.coverage import NORMAL, sampled
from experiments.harness import report
from experiments.harness.command_line import run_as_command
from experiments.harness.kept_runs import Arrays
from experiments.paper.cells import COALITIONS, Cell, CellStudy
from experiments.paper.paper_values import DISTRIBUTIONS
from trip_jax.learning.evaluation import UTILITIES
from trip_jax.results.figure_style import MUTED
from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley import game_values
from trip_jax.shapley.borders import border_coalitions, border_values
from trip_jax.shapley.sampling import require_budget
from trip_jax.truth.coalitions import are_all, replays
from trip_jax.truth.metrics import cosine_distance
from trip_jax.truth.replayed import replay_of

Games = np.ndarray  # [2^n, n, 3], coalitions by their numbers

DRAWN_BY = ("kernelshap", "stratified")
BORDERS = (1, 2)
MEASURES = ("error", "distance", "coverage")
ALONE = "none"
"""The name of estimates from executions alone, without a replay."""
FIGURE = "Estimated truths, also corrected by a replay"
LINES = {ALONE: "-o", "predictions": "--s", "surrogate": ":D"}


def borders(arguments: Sequence[str]) -> None:
    """Estimate the truths that were asked for again; write the report."""
    study = asked(arguments)
    budgets = study.request.numbers("budgets", *((40,) if study.smoke else (48, 74, 128)))
    draws = study.request.number("draws", 20, least=1)
    asked_for = study.request.among("corrected", (ALONE, *replays()), *LINES)
    for dataset, model in study.reports():
        rows: list[dict[str, Any]] = []
        for where in product(study.seeds, study.distributions, study.topologies):
            seed, distribution, topology = where
            chosen = f"distribution={distribution}", f"topology={topology}"
            cell = study.cell(dataset, model, seed, *chosen)
            _require_fewer_than_all(cell.config.n_clients, budgets)
            print(f"{', '.join(map(str, where))}", flush=True)
            named = dict(zip(("seed", "distribution", "topology"), where, strict=True))
            truth = cell.decentralised()
            for replay in asked_for:
                replayed = _replayed(cell, replay)
                found = _judged(truth, replayed, budgets, draws)
                rows += [named | {"corrected": replay} | row for row in found]
        frame = pandas.DataFrame(rows)
        title = study.about(dataset, model, f"{draws} draws")
        written = study.report(dataset, model)
        text = written.write(frame, "Truths from fewer coalitions", title, *_sections(frame))
        written.draw(partial(draw, frame, title))
        print(f"{text}\nresults in {study.folder}")


def asked(arguments: Sequence[str]) -> CellStudy:
    """The settings of the command: cells, budgets and draws."""
    fixed = {
        name: f"All coalitions are executed here: leave out {name}={{value}}."
        for name in COALITIONS
    }
    names = ("budgets", "draws", "corrected")
    return CellStudy("borders", arguments, DISTRIBUTIONS, ("regular", "star"), names, fixed)


def _require_fewer_than_all(n: int, budgets: Sequence[int]) -> None:
    most = max(BORDERS)
    if are_all(n, borders=most):
        raise InvalidSetting(f"borders={most} leaves out none of n_clients={n}: set it to 6.")
    for estimator, budget in product(DRAWN_BY, budgets):
        require_budget(budget, n, estimator, "budgets")
        if budget >= 2**n:
            raise InvalidSetting(f"budgets={budget} must lie below the {2**n} coalitions of all.")


def _replayed(cell: Cell, method: str) -> Games:
    """What a method's replay says of all coalitions, by their numbers; zero of none."""
    n = cell.config.n_clients
    if method == ALONE:
        return np.zeros((2**n, n, len(UTILITIES)))

    def compute() -> Arrays:
        inside = np.arange(2**n)[:, None] >> np.arange(n) & 1
        return {"utilities": replay_of(cell.simulation, method)(inside.astype(bool))}

    return cell.computed(f"replay_{method}", compute)["utilities"]


def _judged(
    truth: Arrays, replayed: Games, budgets: Sequence[int], draws: int
) -> Iterator[dict[str, Any]]:
    """A row for each estimator, budget and utility."""
    n = truth["inside"].shape[1]
    number = 1 << np.arange(n)
    table = np.zeros_like(replayed)  # what the replay errs by
    table[truth["inside"] @ number] = truth["utilities"]
    table -= replayed
    table -= table[0]
    known = game_values(replayed)
    exact = truth["values"].swapaxes(0, 1)  # of player j to receiver i: [j, i, 3]
    for most in BORDERS:
        inside = border_coalitions(n, most)
        values, errors = border_values(inside, table[inside @ number])
        for row in _measured(known + values[None], errors[None], exact):
            yield {"estimator": f"borders={most}", "coalitions": len(inside)} | row
    games = jnp.asarray(table.reshape(len(table), -1), jnp.float32)
    keys = jax.random.split(jax.random.key(2026), draws)
    for estimator, budget in product(DRAWN_BY, budgets):
        found = sampled(games, keys, estimator=estimator, budget=budget)
        values, errors = (np.asarray(one).reshape(draws, *exact.shape) for one in found)
        for row in _measured(known + values, errors, exact):
            yield {"estimator": estimator, "coalitions": budget} | row


def _measured(
    values: np.ndarray, errors: np.ndarray, exact: np.ndarray
) -> Iterator[dict[str, Any]]:
    """The rows of estimated values and errors [draws, players, receivers, 3]."""
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
        lines = [["estimator", "corrected", "coalitions", *head]]
        for key, these in rows.groupby(["estimator", "corrected", "coalitions"], sort=False):
            worst = [these.error.max(), these.distance.max(), these.coverage.min()]
            means = [these[name].mean() for name in MEASURES]
            both = [one for pair in zip(means, worst, strict=True) for one in pair]
            digits = (3, 3, 4, 4, 3, 3)
            cells = [report.number(v, d) for v, d in zip(both, digits, strict=True)]
            lines.append([*map(str, key), *cells])
        yield f"## By {utility}"
        yield report.markdown(lines)


def draw(frame: pandas.DataFrame, title: str) -> Figure:
    """The mean distance to the exact values against how many coalitions are executed."""
    utilities = list(frame.utility.unique())
    figure, panels = report.panels(FIGURE, title, 3.2, len(utilities))
    colours = dict(zip((DRAWN_BY[0], "borders"), report.COLOURS, strict=False))
    by_choice = ["estimator", "corrected", "coalitions"]
    for axes, utility in zip(panels, utilities, strict=True):
        means = frame[frame.utility == utility].groupby(by_choice, as_index=False).distance.mean()
        for (chosen, colour), (replay, line) in product(colours.items(), LINES.items()):
            is_one = means.estimator.str.startswith(chosen) & (means.corrected == replay)
            rows = means[is_one].sort_values("coalitions")
            label = chosen if replay == ALONE else f"{chosen}, replay of {replay}"
            look: dict[str, Any] = {"ms": 4, "lw": 1, "color": colour, "label": label}
            look["mfc"] = colour if replay == ALONE else "white"
            axes.plot(rows.coalitions, rows.distance, line, **look)
        axes.axhline(0.01, color=MUTED, lw=0.5)
        axes.set(xscale="log", yscale="log", xlabel="executed coalitions")
        axes.set_title(utility, size=8)
        axes.set_xticks([16, 32, 64, 128], ["16", "32", "64", "128"])
        axes.xaxis.set_minor_locator(NullLocator())
    panels[0].set_ylabel("cosine distance to the exact values")
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return figure


if __name__ == "__main__":
    run_as_command(borders)
