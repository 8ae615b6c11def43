"""MR, TMR, GTG-Shapley and OR on games whose values are known."""

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest

from tests import reference as ref
from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley import game_values
from trip_jax.truth.centralized import Game, comfedsv, gtg_shapley, mr, one_round, tmr
from trip_jax.truth.centralized.gtg_shapley import converged, sweep


class Asked:
    """A table of utilities that notes down which coalitions it is asked for."""

    def __init__(self, table: np.ndarray):
        self.table = np.asarray(table, float)
        self.asked: list[int] = []

    def __call__(self, coalitions: np.ndarray) -> np.ndarray:
        assert coalitions.dtype == np.int64
        self.asked += coalitions.tolist()
        return self.table[coalitions]

    def game(self) -> Game:
        return Game(len(self.table).bit_length() - 1, self)


def of(n: int, worth: Callable[[set[int]], float], scale: float = 1.0) -> np.ndarray:
    """The table [2^n] of scale * worth(S)."""
    members = [{j for j in range(n) if s >> j & 1} for s in range(2**n)]
    return scale * np.array([float(worth(s)) for s in members])


def glove(scale: float = 1.0) -> np.ndarray:
    """One left glove (0), two right ones: values 2/3, 1/6, 1/6."""
    return of(3, lambda s: 0 in s and len(s) > 1, scale)


def games(*tables: np.ndarray) -> list[Game]:
    return [Asked(table).game() for table in tables]


def noise(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=2**n)


GLOVE = np.array([4, 1, 1]) / 6
ADDITIVE = of(3, lambda s: 0.5 + sum([0.25, -0.125, 0.0][j] for j in s))
SHARES = [0.25, -0.125, 0.0]
ALL_FOUR = of(4, len)

# name: table, values
BY_HAND = {
    "alone": (np.array([2.0, 5.0]), [3]),
    "additive": (ADDITIVE, SHARES),
    "glove": (glove(), GLOVE),
    # The weights 3, 2, 2, 1 against a quota of 5: 0 is pivotal in 10 of 24 orders.
    "majority": (
        of(4, lambda s: sum([3, 2, 2, 1][j] for j in s) >= 5),
        np.array([10, 6, 6, 2]) / 24,
    ),
    # A runway for planes that need 1, 2 and 3: each stretch is shared by those who use it.
    "airport": (of(3, lambda s: max(s, default=-1) + 1), [1 / 3, 5 / 6, 11 / 6]),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_games_worked_by_hand(name: str) -> None:
    table, expected = BY_HAND[name]
    found = one_round(*games(table))
    np.testing.assert_allclose(found.values, expected, atol=1e-15)
    assert found.values.dtype == np.float64
    assert (found.calls, found.rounds_skipped) == (len(table), 0)
    np.testing.assert_array_equal(mr(games(table)).values, found.values)
    np.testing.assert_array_equal(tmr(games(table)).values, found.values)


def test_game_values_against_the_oracle() -> None:
    table = noise(0, 5)
    u = {frozenset(j for j in range(5) if s >> j & 1): table[s] for s in range(32)}
    expected = ref.shapley(u, range(5), "efficient")
    np.testing.assert_allclose(game_values(table), list(expected.values()), atol=1e-14)


def test_a_game_asks_for_each_coalition_once() -> None:
    source = Asked(noise(1, 3))
    game = source.game()
    found = game(np.array([5, 2, 5]))
    np.testing.assert_array_equal(found, source.table[[5, 2, 5]])
    assert game.calls == 2
    assert game(2).shape == ()
    assert game(2) == source.table[2]
    assert game(np.array([], np.int64)).shape == (0,)
    assert game.gain() == source.table[7] - source.table[0]
    np.testing.assert_array_equal(game.table(), source.table)
    assert sorted(source.asked) == list(range(8))
    assert game.calls == 8
    for outside in (-1, 8):
        with pytest.raises(ValueError, match=r"3 players .* below 2\^3"):
            game(outside)


def test_methods_share_evaluations_and_count_their_own() -> None:
    source = Asked(glove())
    game = source.game()
    assert tmr([game], threshold=2).calls == 2
    assert len(source.asked) == 2
    for method in (mr, tmr, gtg_shapley):
        assert method([game]).calls == 8
    assert one_round(game).calls == 8
    assert tmr([game], threshold=2).calls == 2
    assert sorted(source.asked) == list(range(8))


def test_mr_sums_plain_values() -> None:
    found = mr(games(glove(), ADDITIVE, glove(-2)))
    np.testing.assert_allclose(found.values, np.array(SHARES) - GLOVE, atol=1e-15)
    assert (found.calls, found.rounds_skipped) == (24, 0)


def test_mr_song_sums_decayed_shares() -> None:
    # A round with a negative value is shared equally, even though its sum is positive.
    found = mr(games(glove(3), ADDITIVE, glove(7)), mode="song", decay=0.5)
    expected = 0.5 * GLOVE + 0.25 / 3 + 0.125 * GLOVE
    np.testing.assert_allclose(found.values, expected, atol=1e-15)
    assert (found.calls, found.rounds_skipped) == (24, 0)
    np.testing.assert_allclose(mr(games(glove()), mode="song").values, 0.8 * GLOVE, atol=1e-15)


def test_mr_song_takes_a_rounded_zero_for_zero() -> None:
    # u = 0, 1.1, 0.1, 1: client 1 is worth (0.1 + (1 - 1.1)) / 2, zero but for rounding.
    table = np.array([0, 1.1, 0.1, 1])
    assert game_values(table)[1] < 0
    found = mr(games(table), mode="song", decay=0.5)
    np.testing.assert_allclose(found.values, [0.5, 0], atol=1e-15)


def test_rounds_without_any_gain_have_no_shares() -> None:
    nothing = np.full(8, 0.1)
    for method, mode in ((mr, "song"), (tmr, "wei")):
        found = method(games(nothing, glove()), mode=mode, decay=0.5)
        np.testing.assert_allclose(found.values, 0.25 * GLOVE, atol=1e-15)
        assert found.rounds_skipped == 1


def test_tmr_leaves_out_rounds_that_gain_little() -> None:
    sources = [Asked(u) for u in (glove(0.0099), glove(), glove(-0.0099), glove(-0.5))]
    found = tmr([source.game() for source in sources])
    np.testing.assert_allclose(found.values, 0.5 * GLOVE, atol=1e-15)
    assert (found.calls, found.rounds_skipped) == (2 + 8 + 2 + 8, 2)
    assert sources[0].asked == sources[2].asked == [0, 7]
    # More of them with a higher threshold, none below zero.
    assert tmr(games(glove(), glove(0.5)), threshold=0.7).rounds_skipped == 1
    assert tmr(games(np.ones(8)), threshold=-1).rounds_skipped == 0


def test_a_gain_of_exactly_the_threshold_is_little_whatever_rounding_says() -> None:
    for start, end in ((0.5, 0.51), (0.57, 0.58), (0.76, 0.75)):
        table = np.full(8, start)
        table[7] = end
        assert tmr(games(table)).rounds_skipped == 1
        assert gtg_shapley(games(table)).rounds_skipped == 1
        table[7] += np.sign(end - start) * 1e-4  # one of ten thousand test images
        assert tmr(games(table)).rounds_skipped == 0
        assert gtg_shapley(games(table)).rounds_skipped == 0
    assert 0.51 - 0.5 > 0.01


def test_tmr_wei_stops_when_the_decay_has_reached_delta() -> None:
    sources = [Asked(u) for u in (glove(3), ADDITIVE, glove(-7), glove(), glove())]
    # 0.5, 0.25 and 0.125 count; a third round that loses accuracy shares out the loss.
    found = tmr([s.game() for s in sources], mode="wei", decay=0.5, delta=0.125)
    expected = 0.5 * GLOVE + 0.25 * np.array(SHARES) / 0.125 + 0.125 * GLOVE
    np.testing.assert_allclose(found.values, expected, atol=1e-14)
    assert (found.calls, found.rounds_skipped) == (24, 2)
    assert sources[3].asked == sources[4].asked == []
    # 0.8^10 is above 0.1 and 0.8^11 below it.
    assert tmr(games(*[glove()] * 12), mode="wei").rounds_skipped == 2


def test_where_every_round_is_truncated_nobody_contributed() -> None:
    for method in (tmr, gtg_shapley):
        found = method(games(glove(0.005), glove(-0.01), np.ones(8)))
        np.testing.assert_array_equal(found.values, np.zeros(3))
        assert (found.calls, found.rounds_skipped) == (6, 3)
    assert found.permutations == 0


@pytest.mark.parametrize(("method", "choices"), [(mr, "plain or song"), (tmr, "gtg or wei")])
def test_unknown_modes_are_refused(method: Callable, choices: str) -> None:
    with pytest.raises(InvalidSetting, match=f"mode .* {choices}, not 'lazy'"):
        method(games(glove()), mode="lazy")


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_sweep_has_each_client_first_once(n: int) -> None:
    rng = np.random.default_rng(0)
    first, second = sweep(n, rng), sweep(n, rng)
    for orders in (first, second):
        np.testing.assert_array_equal(orders[:, 0], np.arange(n))
        np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(np.arange(n), (n, 1)))
    assert (n <= 2) == np.array_equal(first, second)


def test_gtg_is_exact_on_additive_games_and_stops_at_the_first_sweep_that_may() -> None:
    table = of(4, lambda s: 0.5 + sum([0.25, -0.125, 0.5, 0.0][j] for j in s))
    found = gtg_shapley(games(table, -table), eps_within=0)
    np.testing.assert_allclose(found.values, np.zeros(4), atol=1e-15)
    assert found.permutations == 2 * 32
    assert gtg_shapley(games(table)).permutations == 32
    once = gtg_shapley(games(table), min_permutations=1)
    np.testing.assert_allclose(once.values, [0.25, -0.125, 0.5, 0], atol=1e-15)
    assert once.permutations == 4
    alone = gtg_shapley(games(np.array([0.25, 0.75])))
    assert (alone.values, alone.permutations, alone.calls) == ([0.5], 30, 2)


def test_gtg_takes_at_most_so_many_permutations_in_whole_sweeps() -> None:
    # Clients 0 and 1 are worth zero, but 1 or -1 according to who comes first.
    table = of(3, lambda s: len(s & {0, 1}) == 1) + of(3, lambda s: 2 in s)
    restless = {"eps_within": 0, "min_permutations": 3}
    for most, walked in ((50, 48), (48, 48), (3, 3), (1, 3)):
        found = gtg_shapley(games(table), max_permutations=most, floor=0, **restless)
        assert found.permutations == walked
    # The floor accepts a mean that still moves by a fraction of a hundredth.
    found = gtg_shapley(games(table), max_permutations=5000, floor=0.01, **restless)
    assert 100 < found.permutations < 4000
    np.testing.assert_allclose(found.values, [0, 0, 1], atol=0.1)


def test_convergence_worked_by_hand() -> None:
    # Running means 4, 3, 2 of client 0 and 1, 1, 1 of client 1: errors 1/2, 1/4 and 0 on average.
    marginals = np.array([[4.0, 1.0], [2.0, 1.0], [0.0, 1.0]])
    for window, error in ((3, 0.5), (2, 0.25), (1, 0.0), (10, 0.5)):
        assert converged(marginals, error + 1e-9, 0, window)
        assert not converged(marginals, error - 1e-9, 0, window)
    # Means 1, 0: nothing is small beside zero, except for the floor.
    null = np.array([[1.0, 1.0], [-1.0, 1.0]])
    assert not converged(null, 1e6, 0.99, 2)
    assert converged(null, 0, 1.0, 2)


def marginals_along(table: np.ndarray, order: tuple[int, ...], eps: float = 0.0) -> np.ndarray:
    """The marginals [n] of one permutation, truncated, from the table itself."""
    found, value, prefix = np.zeros(len(order)), table[0], 0
    for player in order:
        prefix += 2**player
        reached = value if abs(table[-1] - value) < eps else table[prefix]
        found[player], value = reached - value, reached
    return found


@pytest.mark.thorough
def test_gtg_without_truncation_approaches_mr() -> None:
    n, k = 4, 8000
    tables = [noise(seed, n) for seed in (2, 3)]
    found = gtg_shapley(
        games(*tables), eps_between=0, eps_within=0, tolerance=-1, max_permutations=k
    )
    assert (found.permutations, found.rounds_skipped) == (2 * k, 0)
    # Drawing each first client equally often leaves at most the variance of independent draws.
    variance = np.zeros(n)
    for table in tables:
        marginals = [marginals_along(table, order) for order in permutations(range(n))]
        variance += np.var(marginals, axis=0) / k
    bound = 4 * np.sqrt(variance)
    exact = mr(games(*tables)).values
    assert (np.abs(found.values - exact) < bound).all()
    # Close enough to tell it from another semivalue, the mean over all coalitions.
    s = np.arange(2**n)
    banzhaf = [sum((u[s | 1 << j] - u[s & ~(1 << j)]).mean() for u in tables) for j in range(n)]
    assert (np.abs(banzhaf - exact) > 2 * bound).any()


@pytest.mark.parametrize("eps", [0.0, 0.5, 1.0])
def test_gtg_against_permutations_walked_one_by_one(eps: float) -> None:
    # Random utilities lie close to u(N) in one permutation and are needed in the next.
    n, seed = 4, 11
    tables = [noise(4, n), noise(5, n)]
    for table in tables:
        table[-1] = table[0] + 2
    sources = [Asked(table) for table in tables]
    rounds = [source.game() for source in sources]
    found = gtg_shapley(rounds, seed=seed, eps_within=eps, max_permutations=40, tolerance=0)
    expected = np.zeros(n)
    for t, table in enumerate(tables):
        rng = np.random.default_rng([seed, 11, t])
        orders = np.concatenate([sweep(n, rng) for _ in range(10)])
        expected += np.mean([marginals_along(table, tuple(o), eps) for o in orders], axis=0)
    np.testing.assert_allclose(found.values, expected, atol=1e-13)
    assert found.calls == sum(len(source.asked) for source in sources)
    # What truncation assumed is not what the games remember.
    for game, table in zip(rounds, tables, strict=True):
        np.testing.assert_array_equal(game.table(), table)


def test_gtg_asks_for_nothing_behind_a_truncation() -> None:
    # All there is to gain comes with the first client, so pairs and triples are not asked for.
    source = Asked(of(4, lambda s: len(s) > 0))
    found = gtg_shapley([source.game()])
    assert sorted(source.asked) == [0, 1, 2, 4, 8, 15]
    assert found.calls == 6
    np.testing.assert_allclose(found.values, [0.25] * 4, atol=1e-15)
    # A distance of exactly eps is walked on, even if rounding makes it smaller.
    table = of(3, lambda s: [0.5, 0.562, 0.562, 0.563][len(s)])
    assert 0.563 - 0.562 < 0.001
    assert gtg_shapley(games(table)).calls == 8
    assert gtg_shapley(games(table), eps_within=0.0011).calls == 5


def test_gtg_draws_by_seed_and_round() -> None:
    table = noise(6, 4)
    table[-1] = table[0] + 1

    def values(*tables: np.ndarray, seed: int = 0) -> np.ndarray:
        return gtg_shapley(games(*tables), seed=seed, max_permutations=40).values

    np.testing.assert_array_equal(values(table), values(table))
    assert (values(table) != values(table, seed=1)).any()
    # A round draws the same whether or not another one was walked before it.
    after_another = values(ALL_FOUR, table)
    np.testing.assert_allclose(
        after_another - values(ALL_FOUR), values(np.zeros(16), table), atol=1e-14
    )


def everywhere(n_rounds: int, n: int) -> np.ndarray:
    return np.ones((n_rounds, n), bool)


def test_comfedsv_is_mr_where_all_take_part() -> None:
    tables = [noise(seed, 3) for seed in range(4)]
    found = comfedsv(games(*tables), everywhere(4, 3), rank=4, ridge=1e-9)
    np.testing.assert_allclose(found.values, mr(games(*tables)).values, atol=1e-6)
    assert found.calls == 32
    nothing = comfedsv(games(np.full(8, 0.1)), everywhere(1, 3))
    assert not nothing.values.any()


def test_comfedsv_finds_what_rounds_without_a_client_would_have_brought() -> None:
    """Rounds that differ by a factor alone: a matrix of rank one, with a hole in each but one."""
    rng = np.random.default_rng(0)
    factors, table = rng.random(5) + 0.5, noise(1, 3)
    took_part = ~np.eye(5, 3, dtype=bool)
    took_part[4] = took_part[3]
    took_part[3] = True
    sources = [Asked(factor * (table - table[0]) + 0.3) for factor in factors]
    found = comfedsv([one.game() for one in sources], took_part, rank=1, ridge=1e-9)
    expected = factors.sum() * game_values(table)
    np.testing.assert_allclose(found.values, expected, atol=1e-6)
    for source, row in zip(sources, took_part, strict=True):
        away = int(~row @ (1 << np.arange(3)))
        assert all(coalition & away == 0 for coalition in source.asked)
        assert len(source.asked) == 2 ** row.sum()
    full = everywhere(5, 3)
    heavy = comfedsv([one.game() for one in sources], full, rank=1, ridge=100)
    assert abs(heavy.values).max() < 0.1 * abs(found.values).max()  # the ridge draws to 0


def test_what_comfedsv_cannot_do_is_refused() -> None:
    some = games(glove(), glove())
    for arguments, sentence in (
        ({"took_part": ~np.eye(2, 3, dtype=bool)}, "needs a round that all clients take part in"),
        ({"took_part": everywhere(3, 3)}, r"2 rounds of 3 clients, not the shape \(3, 3\)"),
        ({"took_part": everywhere(2, 3), "ridge": 0.0}, "ridge must be above 0"),
        ({"took_part": everywhere(2, 3), "rank": 0}, "rank must be"),
    ):
        with pytest.raises(InvalidSetting, match=sentence):
            comfedsv(some, **arguments)  # type: ignore[arg-type]
