"""Shapley values from all small and all large coalitions."""

from itertools import combinations
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas
import pytest

from experiments.borders import borders
from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley import game_values
from trip_jax.shapley.borders import border_coalitions, border_values, n_border_coalitions
from trip_jax.shapley.few_draws import NORMAL, student
from trip_jax.truth.coalitions import are_all, require_coalitions

N = 8
EVERY = (np.arange(2**N)[:, None] >> np.arange(N) & 1).astype(bool)
INSIDE = border_coalitions(N, 2)
ROWS = INSIDE @ (1 << np.arange(N))


def interactions(most: int, seed: int) -> np.ndarray:
    """Tables [2^N, 3 games] of sums of games that up to `most` players win together."""
    rng = np.random.default_rng(seed)
    table = np.zeros((2**N, 3))
    for size in range(1, most + 1):
        for winners in combinations(range(N), size):
            table += EVERY[:, list(winners)].all(axis=1)[:, None] * rng.normal(size=3)
    return table


@pytest.mark.parametrize(("n", "borders"), [(8, 2), (7, 2), (9, 3)])
def test_all_small_and_all_large_coalitions_once(n: int, borders: int) -> None:
    inside = border_coalitions(n, borders)
    assert not inside[0].any() and inside[-1].all()
    numbers = set(inside @ (1 << np.arange(n)))
    sizes = {number: number.bit_count() for number in range(2**n)}
    assert numbers == {s for s, size in sizes.items() if min(size, n - size) <= borders}
    assert len(inside) == len(numbers) == n_border_coalitions(n, borders)


@pytest.mark.parametrize("most", [1, 3, 4])
def test_the_error_is_that_of_the_values_where_few_players_interact(most: int) -> None:
    table = interactions(most, seed=most)
    values, error = border_values(INSIDE, table[ROWS])
    np.testing.assert_allclose(values.sum(axis=0), table[-1] - table[0], atol=1e-9)
    off = np.sqrt(((values - game_values(table)) ** 2).mean(axis=0))
    widened = float(student(jnp.asarray(N - 1.0))) / NORMAL
    np.testing.assert_allclose(error, np.tile(off * widened, (N, 1)), atol=1e-9)
    assert (off < 1e-9).all() == (most == 1)  # straight lines need no interpolation


def test_intervals_hold_the_values_of_saturating_games() -> None:
    rng = np.random.default_rng(5)
    learnt = EVERY @ rng.gamma(1.0, 1.0, (N, 200))
    table = 1 - np.exp(-learnt) + 0.01 * rng.normal(size=(2**N, 200))
    values, error = border_values(INSIDE, table[ROWS])
    truth = game_values(table)
    assert 0.9 < (np.abs(values - truth) <= 1.96 * error).mean() < 0.99
    assert np.linalg.norm(values - truth) < 0.05 * np.linalg.norm(truth)


def test_what_leaves_nothing_out_is_all() -> None:
    assert are_all(5, borders=2) and not are_all(6, borders=2)
    assert n_border_coalitions(5, 2) == 2**5


@pytest.mark.parametrize(
    ("n", "options", "message"),
    [
        (8, {"borders": 1}, "borders must be at least 2, not 1"),
        (8, {"borders": 2, "samples": 80}, "leave out one of them"),
        (100, {"borders": 2}, "10,102 coalitions .*: lower n_clients or borders"),
    ],
)
def test_borders_that_cannot_be_are_refused(n: int, options: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        require_coalitions(n, **options)


@pytest.mark.thorough
def test_truths_of_cells_are_estimated_again(tmp_path: Path) -> None:
    few = ["distribution=iid", "topology=regular", "draws=2", "training.rounds=2"]
    borders(["scale=smoke", *few, f"out={tmp_path}"])
    (rows,) = tmp_path.glob("borders*.csv")
    frame = pandas.read_csv(rows)
    assert set(frame.corrected) == {"none", "predictions", "surrogate"}
    assert dict(frame.groupby("estimator").coalitions.first()) == {
        "borders=1": 14,
        "borders=2": 44,
        "kernelshap": 40,
        "stratified": 40,
    }
    assert (frame.error > 0).all() and (frame.distance < 1).all()
    assert frame.coverage.between(0, 1).all()


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("borders=2", "All coalitions are executed here: leave out borders=2."),
        ("budgets=64", "budgets=64 must lie below the 64 coalitions"),
        ("budgets=10", "budgets=10 is too small for m=6"),
        ("n_clients=5", "borders=2 leaves out none of n_clients=5"),
    ],
)
def test_what_cannot_be_estimated_again_is_refused(
    argument: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidSetting, match=message):
        borders(["scale=smoke", argument, f"out={tmp_path}"])
    assert not list(tmp_path.iterdir())
