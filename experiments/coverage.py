"""Do 95 % intervals of sampled Shapley values hold 95 %?

    python -m experiments.coverage [scale=cpu] [players=8,12] [budgets=128,512] [seeds=200]
        [estimator=kernelshap,...] [out=DIR]

Coalitions are drawn anew for every seed, and an interval is 1.96 standard errors to both sides of a
value. Beside `budgets`, each estimator draws as few coalitions as it accepts. Games: random ones
and real ones (experiments/benchmarks/coverage_games.py), none of which chose anything in an
estimator. "Rounds" are sums of local contributions over fifty rounds, the games of three of which
come by turns; coalitions are drawn anew in each, and errors add up as in Eq. 3, while what bias is
left does not average out. Coverage is the share over seeds, players and
games; the error is the root mean square one over that of the true values; bias is the root mean
square over players of what the mean over seeds is off, less what chance shows, in standard
deviations of the values over seeds; claimed over true is the root mean square standard error over
the root mean square error. What was found is kept.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from math import nan
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas
from jax import Array, lax
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from experiments.benchmarks.coverage_games import judging_games, real_games
from experiments.estimators import MAX_PLAYERS, OURS, TabulatedGame
from experiments.harness import report
from experiments.harness.command_line import Request, run_as_command
from experiments.harness.kept_runs import Arrays, read, write
from experiments.harness.report import Report
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.plurals import counted
from trip_jax.shapley import ESTIMATORS, game_values
from trip_jax.shapley.sampling import draw, estimate

SETTINGS = ("scale", "players", "budgets", "seeds", "estimator", "out")
ALLOWED = (0.93, 0.97)
NORMAL = 1.96
AT_ONCE = 50  # seeds, for the memory
ROUNDS = (1, 3, 6)
SUMMED = 50  # rounds
COLUMNS = ["coverage", "least", "error", "bias", "claimed"]


def coverage(arguments: Sequence[str]) -> None:
    """Judge every estimator, or take what was kept; write the report."""
    request = Request("coverage", arguments, SETTINGS)
    request.refuse_overrides()
    (scale,) = request.among("scale", ("smoke", "cpu"), "cpu")
    smoke = scale == "smoke"
    players = request.numbers("players", *((6,) if smoke else (8, 12)))
    budgets = request.numbers("budgets", *(() if smoke else (128, 512)))
    seeds = request.number("seeds", 4 if smoke else 200, least=2)
    estimators = request.among("estimator", OURS)
    if not all(MAX_PLAYERS >= n >= 4 for n in players):
        raise InvalidSetting(f"players must lie between 4 and {MAX_PLAYERS}.")
    folder = request.folder(f"outputs/coverage_{scale}")
    rounds = ROUNDS[: 2 if smoke else 3]
    rows = []
    for n in players:
        games = _games(folder, n, rounds)
        for estimator in estimators:
            for budget in _accepted(estimator, n, budgets):
                label = f"{estimator}-{n}-{budget}-{seeds}-{_digest(games)}"
                compute = partial(_found, games, estimator, budget, seeds)
                found = _kept(folder / f"{label}.npz", compute)
                compute = partial(_over_rounds, games, estimator, budget, seeds)
                summed = _kept(folder / f"rounds-{label}.npz", compute)
                judged = pandas.DataFrame([*_judged(games, found), *_judged_rounds(games, summed)])
                rows.append(judged.assign(players=n, budget=budget, estimator=estimator))
                print(f"{estimator}, {n} players, {budget} coalitions: done", flush=True)
    frame = pandas.concat(rows, ignore_index=True)
    title = f"scale={scale}, {counted(seeds, 'seed')}"
    written = Report.of(request, folder)
    text = written.write(frame, "Coverage of 95 % intervals", title, *_sections(frame))
    print(f"{text}\nreport in {folder}")
    written.draw(partial(_draw, frame, title))


def _accepted(estimator: str, n: int, budgets: Sequence[int]) -> list[int]:
    """The least budget that an estimator accepts and those asked for that it takes."""
    least = ESTIMATORS[estimator].minimum(n)
    return [b for b in sorted({least, *budgets}) if least <= b < 2**n]


def _games(folder: Path, n: int, rounds: tuple[int, ...]) -> list[TabulatedGame]:
    def compute() -> Arrays:
        games = judging_games(n, seed=n, of_each=3) + real_games(n, rounds)
        return {
            "kinds": np.array([game.kind for game in games]),
            "tables": np.stack([game.table for game in games]),
        }

    kept = _kept(folder / f"games-{n}-{len(rounds)}.npz", compute)
    return [
        TabulatedGame(str(kind), table)
        for kind, table in zip(kept["kinds"], kept["tables"], strict=True)
    ]


def _kept(path: Path, compute: Callable[[], Arrays]) -> Arrays:
    if not path.exists():
        write(path, compute())
    return read(path)


def _digest(games: Sequence[TabulatedGame]) -> str:
    return sha256(np.stack([game.table for game in games]).tobytes()).hexdigest()[:8]


def _found(
    games: Sequence[TabulatedGame], estimator: str, budget: int, seeds: int, seed: int = 0
) -> Arrays:
    """Values and standard errors [seeds, n, games]."""
    tables = np.stack([game.table - game.table[0] for game in games], axis=1)
    keys = jax.random.split(jax.random.key(2026 + seed), seeds)
    found = sampled(jnp.asarray(tables, jnp.float32), keys, estimator=estimator, budget=budget)
    return dict(zip(("values", "errors"), map(np.asarray, found), strict=True))


@partial(jax.jit, static_argnames=("estimator", "budget"))
def sampled(tables: Array, keys: Array, *, estimator: str, budget: int) -> tuple[Array, Array]:
    """Values and standard errors [keys, n, games] from utilities [2^n, games]."""
    n = len(tables).bit_length() - 1

    def one(key: Array) -> tuple[Array, Array]:
        masks = draw(key, n, slots=n, rows=budget, estimator=estimator)
        return estimate(masks, tables[masks @ (1 << jnp.arange(n))], n, estimator=estimator)

    return lax.map(one, keys, batch_size=AT_ONCE)


def _of_rounds(games: Sequence[TabulatedGame]) -> dict[str, list[TabulatedGame]]:
    """Local contributions of the rounds, by utility."""
    kinds = dict.fromkeys(game.kind for game in games if game.kind.startswith("LCV"))
    return {kind: [game for game in games if game.kind == kind] for kind in kinds}


def _over_rounds(games: Sequence[TabulatedGame], estimator: str, budget: int, seeds: int) -> Arrays:
    """Sums over rounds and their standard errors [seeds, n, utilities]."""
    of_rounds = list(zip(*_of_rounds(games).values(), strict=True))
    total, square = 0.0, 0.0
    for k, of_one in enumerate(of_rounds):
        drawn = len(range(k, SUMMED, len(of_rounds)))
        found = _found(of_one, estimator, budget, seeds * drawn, seed=1 + k)
        by_seed = (seeds, drawn, *found["values"].shape[1:])
        values, errors = (found[part].reshape(by_seed) for part in ("values", "errors"))
        total, square = total + values.sum(axis=1), square + (errors**2).sum(axis=1)
    return {"values": np.asarray(total), "errors": np.sqrt(square)}


def _judged(games: Sequence[TabulatedGame], found: Arrays) -> Iterator[dict[str, str | float]]:
    """The rows of an estimator: its error and coverage in each game."""
    for k, game in enumerate(games):
        values, errors = (found[part][..., k] for part in ("values", "errors"))
        yield {"kind": game.kind, **judged(values, errors, game_values(game.table))}


def _judged_rounds(
    games: Sequence[TabulatedGame], summed: Arrays
) -> Iterator[dict[str, str | float]]:
    """A row for the sum over rounds of each utility."""
    for k, (kind, of_kind) in enumerate(_of_rounds(games).items()):
        each = [game_values(game.table) for game in of_kind]
        truth = np.sum([each[t % len(each)] for t in range(SUMMED)], axis=0)
        values, errors = (summed[part][..., k] for part in ("values", "errors"))
        yield {"kind": kind.replace("LCV", "rounds"), **judged(values, errors, truth)}


def judged(values: np.ndarray, errors: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """What is measured of values and standard errors [seeds, n] of one game.

    Values that are exact but for rounding to float32 count as covered.
    """
    away = values - truth
    rounding = 1e-5 * np.abs(truth).max()
    held = np.abs(away) <= NORMAL * errors + rounding
    variance = away.var(axis=0, ddof=1)
    moves = variance > rounding**2
    shown = np.maximum(away.mean(axis=0) ** 2 - variance / len(away), 0)
    bias = np.sqrt((shown[moves] / variance[moves]).mean()) if moves.any() else 0.0
    square = (away**2).mean()
    exact = square < rounding**2
    return {
        "coverage": held.mean(),
        "least": held.mean(axis=0).min(),
        "error": np.sqrt(square / (truth**2).mean()),
        "bias": bias,
        "claimed": nan if exact else np.sqrt((errors**2).mean() / square),
    }


def _sections(frame: pandas.DataFrame) -> list[str]:
    low, high = ALLOWED
    by = ["players", "budget", "estimator"]
    kinds = list(dict.fromkeys(frame.kind))
    share = frame.pivot_table(index=by, columns="kind", values="coverage")[kinds]

    def line(key: tuple[object, ...], means: pandas.Series) -> list[str]:
        outside = (means < low) | (means > high)
        cells = [report.number(v) for v in means]
        cells = [f"**{v}**" if bold else v for v, bold in zip(cells, outside, strict=True)]
        return [*map(str, key), *cells]

    rows = [line(key, means) for key, means in share.iterrows()]
    inside = ((share >= low) & (share <= high)).to_numpy()
    means = frame.groupby(by)[COLUMNS].agg(
        {"coverage": "mean", "least": "min", "error": "mean", "bias": "mean", "claimed": "mean"}
    )
    overall = [
        [*map(str, key), *(f"{value:.3f}" for value in row)] for key, row in means.iterrows()
    ]
    return [
        f"Coverage; in bold what lies outside {low} to {high}. {inside.sum()} of "
        f"{share.count().sum()} cells lie inside:",
        report.markdown([[*by, *kinds], *rows]),
        "Means over games, and the least coverage of a single player of a game:",
        report.markdown(
            [
                [*by, "coverage", "least", "error", "bias", "claimed over true"],
                *overall,
            ]
        ),
    ]


def _draw(frame: pandas.DataFrame, title: str) -> Figure:
    """Coverage of every kind of game, by estimator: a panel a number of players."""
    numbers = frame.players.unique()
    figure, each = report.panels("Coverage of 95 % intervals", title, 3.0, len(numbers))
    for axes, n in zip(each, numbers, strict=True):
        axes.axhspan(*ALLOWED, color="#dddddd", lw=0)
        axes.axhline(0.95, color="black", lw=0.6)
        for (estimator, rows), (colour, marker) in zip(
            frame[frame.players == n].groupby("estimator", sort=False), report.LOOKS, strict=False
        ):
            cells = rows.groupby(["budget", "kind"]).coverage.mean().reset_index()
            means = cells.groupby("budget").coverage
            axes.plot(cells.budget, cells.coverage, marker, color=colour, ms=2, mew=0, alpha=0.5)
            axes.plot(means.mean().index, means.mean(), color=colour, lw=1, label=estimator)
        axes.set(xlabel="coalitions", xscale="log")
        axes.set_title(f"{n} players", size=8)
        budgets = frame[frame.players == n].budget.unique()
        axes.set_xticks(budgets, budgets, size=6, rotation=45)
        axes.xaxis.set_minor_locator(NullLocator())
    each[0].set_ylabel("coverage")
    each[0].legend(fontsize=6)
    return figure


if __name__ == "__main__":
    run_as_command(coverage)
