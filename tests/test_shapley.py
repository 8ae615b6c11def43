"""Exact Shapley values and other semivalues: axioms, the oracle, and the list of rows."""

from math import comb
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference as ref
from tests.conftest import tiny, tiny_data
from trip_jax.config import Contribution
from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley import CoalitionRows, game_values
from trip_jax.shapley.exact import semivalues
from trip_jax.shapley.semivalues import (
    SEMIVALUES,
    beta_shapley,
    in_words,
    marginal_weights,
    shapley,
)

MEMBERS = np.array([[3, 1, 4, 2]])
compiled_semivalues = jax.jit(semivalues, static_argnames=("slots", "normalization", "semivalue"))


def values(
    utilities: np.ndarray,
    normalization: str = "efficient",
    members: np.ndarray = MEMBERS,
    semivalue: str = "shapley",
) -> np.ndarray:
    """[n, M, U] of tables [rows, U] laid out as `CoalitionRows` says."""
    rows = CoalitionRows.of(members, batch=1)
    table = np.zeros((rows.client.shape[1], utilities.shape[1]), np.float32)
    table[: len(utilities)] = utilities
    one = jax.tree.map(lambda field: field[0], rows)
    return np.asarray(
        compiled_semivalues(
            jnp.asarray(table),
            one,
            jnp.asarray(members[0]),
            slots=int(members.max()),
            normalization=normalization,
            semivalue=semivalue,
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
    rows = CoalitionRows.of(members, batch=batch)
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
    rows = CoalitionRows.of(MEMBERS, batch=1)
    assert int(rows.n_rows[0]) == rows.client.shape[1] == 8 + 2 + 16 + 4


def test_too_many_coalitions_name_m_the_number_and_the_setting() -> None:
    def of(members: Any, most: int) -> CoalitionRows:
        members = np.array(members)
        return CoalitionRows.of(members, batch=1, estimator="exact", max_coalitions=most)

    with pytest.raises(InvalidSetting, match=r"m=40 .*2\^40 .*contribution.max_coalitions=1,000"):
        of([[40, 2]], 1000)
    of(MEMBERS, 30)
    with pytest.raises(InvalidSetting, match=r"30 models.*contribution\.estimator=auto"):
        of(MEMBERS, 29)


def by_definition(table: np.ndarray, m: int, semivalue: str) -> list[float]:
    """The mean of u(S + j) - u(S) over the coalitions that a semivalue weighs, all alike."""
    return [
        float(
            np.mean(
                [
                    table[s | 1 << j] - table[s]
                    for s in range(2**m)
                    if not s >> j & 1 and (semivalue == "banzhaf" or s.bit_count() == m - 1)
                ]
            )
        )
        for j in range(m)
    ]


@pytest.mark.parametrize("semivalue", ["banzhaf", "loo"])
def test_other_semivalues_by_their_definitions(semivalue: str) -> None:
    tables = [game(i, int(m)) for i, m in enumerate(MEMBERS[0])]
    for normalization in ("efficient", "paper"):
        ours = values(np.concatenate(tables), normalization, semivalue=semivalue)
        for i, m in enumerate(MEMBERS[0]):
            expected = np.array(by_definition(tables[i][:, 0], m, semivalue))
            scale = m if normalization == "paper" else 1
            np.testing.assert_allclose(ours[i, :m, 0], scale * expected, atol=1e-5)
            assert not ours[i, m:].any()
    alone = game_values(tables[2], semivalue)
    np.testing.assert_allclose(alone[:, 0], by_definition(tables[2][:, 0], 4, semivalue), atol=1e-5)


@pytest.mark.parametrize("semivalue", ["shapley", "banzhaf", "loo", "beta_16_1", "beta_1_4"])
def test_weights_sum_to_one_over_the_coalitions_without_a_player(semivalue: str) -> None:
    weights = marginal_weights(9, "efficient", semivalue)
    for m in range(1, 10):
        number = [comb(m - 1, s) for s in range(9)]
        assert weights[m] @ number == pytest.approx(1)
        printed = marginal_weights(9, "paper", semivalue)[m]
        np.testing.assert_allclose(printed, m * weights[m], rtol=1e-6)


def test_semivalues_say_what_sentences_call_them() -> None:
    names = ["loo", "beta_16_1", "of_later_versions"]
    words = ["leave-one-out value", "Beta(16, 1)-Shapley value", "semivalue 'of_later_versions'"]
    assert [in_words(name) for name in names] == words


def test_beta_shapley_by_its_integral_and_between_its_ends() -> None:
    """The weight of |S| = s is m times the mean of t^s (1 - t)^(m-1-s), t of Beta(beta, alpha)."""
    t = (np.arange(10_000) + 0.5) / 10_000
    for m in range(1, 8):
        for s in range(m):
            assert beta_shapley(m, s, 1, 1) == pytest.approx(shapley(m, s))
            for alpha, beta in ((16, 1), (4, 1), (1, 4), (1, 16)):
                density = t ** (beta - 1) * (1 - t) ** (alpha - 1)
                expected = m * np.average(t**s * (1 - t) ** (m - 1 - s), weights=density)
                found = SEMIVALUES[f"beta_{alpha}_{beta}"](m, s)
                assert found == pytest.approx(expected, rel=1e-5)
    # Small coalitions count most with 16, 1, where the first to join gets most.
    saturating = np.array([0, 1, 1, 1.0])
    shares = [game_values(saturating, name)[0] for name in ("beta_16_1", "shapley", "beta_1_16")]
    np.testing.assert_allclose(shares, [16 / 17, 1 / 2, 1 / 17], rtol=1e-5)


def test_semivalues_differ_where_players_interact() -> None:
    """Three players who need each other: a third each, a quarter each, or all of it each."""
    together = np.zeros(8)
    together[7] = 1
    for semivalue, share in (("shapley", 1 / 3), ("banzhaf", 1 / 4), ("loo", 1)):
        np.testing.assert_allclose(game_values(together, semivalue), [share] * 3, rtol=1e-6)


@pytest.mark.thorough
def test_the_run_reports_the_semivalue_it_is_asked_for() -> None:
    """The middle of a line of three has m = 3; leave-one-out from the same three rounds of u."""
    graph = nx.path_graph(3)
    runs = {
        semivalue: tiny(
            graph,
            data=tiny_data((5, 6, 7)),
            contribution=Contribution("loss", "efficient", semivalue),
        ).run()
        for semivalue in ("shapley", "loo")
    }
    np.testing.assert_array_equal(runs["loo"].models, runs["shapley"].models)
    loo, shapley = runs["loo"].records.lcv, runs["shapley"].records.lcv
    assert np.abs(loo - shapley).max() > 1e-4
    # Of two members' games, shapley_j - loo_j = (u(j) - u(empty) - (u(N) - u(k))) / 2 for both.
    difference = (shapley - loo)[:, 0, :2]
    np.testing.assert_allclose(difference[:, 0], difference[:, 1], atol=1e-5)
