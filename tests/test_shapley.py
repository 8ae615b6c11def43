"""Exact Shapley values: the axioms, the oracle, and the list of rows."""

from math import comb
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference as ref
from trip_jax.errors import InvalidSetting
from trip_jax.shapley import CoalitionRows, shapley_values
from trip_jax.shapley.exact import marginal_weights

MEMBERS = np.array([[3, 1, 4, 2]])


def values(
    utilities: np.ndarray, normalization: str = "efficient", members: np.ndarray = MEMBERS
) -> np.ndarray:
    """[n, M, U] of tables [rows, U] laid out as `CoalitionRows` says."""
    rows = CoalitionRows.of(members, batch=1, budget=2**20)
    table = np.zeros((rows.client.shape[1], utilities.shape[1]), np.float32)
    table[: len(utilities)] = utilities
    one = jax.tree.map(lambda field: field[0], rows)
    return np.asarray(
        shapley_values(
            jnp.asarray(table),
            one,
            jnp.asarray(members[0]),
            largest=int(members.max()),
            normalization=normalization,
        )
    )


def game(seed: int, m: int, n_utilities: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(2**m, n_utilities))


def as_oracle(table: np.ndarray, m: int, normalization: Any) -> list[float]:
    u = {frozenset(j for j in range(m) if s >> j & 1): float(table[s]) for s in range(2**m)}
    result = ref.shapley(u, range(m), normalization)
    return [result[j] for j in range(m)]


@pytest.mark.parametrize("normalization", ["paper", "efficient"])
def test_several_games_at_once_against_the_oracle(normalization: str) -> None:
    tables = [game(i, int(m), 3) for i, m in enumerate(MEMBERS[0])]
    ours = values(np.concatenate(tables), normalization)
    assert ours.shape == (4, 4, 3)
    for i, m in enumerate(MEMBERS[0]):
        for u in range(3):
            expected = as_oracle(tables[i][:, u], m, normalization)
            np.testing.assert_allclose(ours[i, :m, u], expected, rtol=1e-4, atol=1e-5)
        assert not ours[i, m:].any()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_axioms(seed: int) -> None:
    m = 4
    members = np.array([[m]])
    tables = game(seed, m, 2)
    first, second = tables[:, :1], tables[:, 1:]
    v = values(first, members=members)[0, :, 0]
    np.testing.assert_allclose(v.sum(), first[-1, 0] - first[0, 0], atol=1e-5)  # efficiency
    both = values(2 * first - second, members=members)[0, :, 0]
    np.testing.assert_allclose(both, 2 * v - values(second, members=members)[0, :, 0], atol=1e-5)
    coalition = np.arange(2**m)
    null = first[coalition & ~1]  # player 0 changes nothing
    assert values(null, members=members)[0, 0, 0] == 0
    swapped = (coalition & ~3) | (coalition & 1) << 1 | (coalition & 2) >> 1
    v_swapped = values(first[swapped], members=members)[0, :, 0]  # symmetry, by renaming
    np.testing.assert_allclose(v_swapped, v[[1, 0, 2, 3]], atol=1e-5)


def test_as_printed_is_m_times_the_shapley_value() -> None:
    table = game(0, 4)
    members = np.array([[4]])
    np.testing.assert_allclose(
        values(table, "paper", members), 4 * values(table, "efficient", members), rtol=1e-5
    )


def test_marginal_weights_are_those_of_equation_1() -> None:
    weights = marginal_weights(5, "paper")
    for m in range(1, 6):
        for s in range(m):
            assert weights[m, s] == pytest.approx(1 / comb(m - 1, s))
        assert not weights[m, m:].any()


@pytest.mark.parametrize("batch", [1, 3, 64])
def test_every_coalition_stands_in_the_list_once(batch: int) -> None:
    members = np.array([[3, 2, 4, 2], [2, 3, 3, 2]])
    rows = CoalitionRows.of(members, batch=batch, budget=100)
    for g, counts in enumerate(members):
        real = int(rows.n_rows[g])
        pairs = list(
            zip(rows.client[g, :real].tolist(), rows.coalition[g, :real].tolist(), strict=True)
        )
        assert pairs == [(i, s) for i, m in enumerate(counts) for s in range(2**m)]
        for i, m in enumerate(counts):
            assert pairs[int(rows.first[g, i])] == (i, 0)
            assert pairs[int(rows.last[g, i])] == (i, 2**m - 1)
        for start in range(0, real, rows.block):
            assert len({i for i, _ in pairs[start : start + rows.block]}) == 1


def test_no_row_is_padding_when_one_model_is_evaluated_at_a_time() -> None:
    rows = CoalitionRows.of(MEMBERS, batch=1, budget=100)
    assert int(rows.n_rows[0]) == rows.client.shape[1] == 8 + 2 + 16 + 4


def test_a_budget_too_small_names_m_the_number_and_the_setting() -> None:
    with pytest.raises(InvalidSetting, match=r"m=40 .*2\^40 .*contribution.max_coalitions=1,000"):
        CoalitionRows.of(np.array([[40, 2]]), batch=1, budget=1000)
    CoalitionRows.of(MEMBERS, batch=1, budget=30)
    with pytest.raises(InvalidSetting, match="30 models"):
        CoalitionRows.of(MEMBERS, batch=1, budget=29)
