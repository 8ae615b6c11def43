"""Solutions of games against hand-worked cases and against loops over coalitions and orders."""

from collections.abc import Callable
from functools import partial
from itertools import combinations, permutations
from math import comb
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import linprog

from tests.test_centralized_baselines import of
from trip_jax import GroundTruth, topology
from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley import game_values
from trip_jax.shapley.borders import border_coalitions
from trip_jax.truth.centralized import Game, PlayerValues, one_round
from trip_jax.truth.solutions import (
    ipss,
    least_core,
    links,
    myerson,
    owen,
    owen_sampling,
    solved,
)
from trip_jax.truth.solutions.ipss import balanced

N = 5
MAJORITY = of(3, lambda s: len(s) > 1)
GLOVE = of(3, lambda s: 0 in s and len(s) > 1)  # one left glove, two right ones
LINE = nx.path_graph(3)


def game(table: np.ndarray) -> Game:
    return Game(len(table).bit_length() - 1, lambda coalitions: table[coalitions])


def drawn(seed: int, n: int = N) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=2**n)


def number(players: Any) -> int:
    return sum(1 << int(j) for j in players)


BY_HAND: dict[str, tuple[Callable[[Game], PlayerValues], np.ndarray, list[float], int]] = {
    # The ends of a line need its middle: they win together in no other way.
    "Myerson": (partial(myerson, graph=LINE), MAJORITY, [1 / 6, 2 / 3, 1 / 6], 7),
    # Two clients in one union have the majority, and the third nothing to add.
    "Owen": (partial(owen, unions=[[0, 1], [2]]), MAJORITY, [1 / 2, 1 / 2, 0], 8),
    # The right gloves compete until they earn nothing.
    "least core": (least_core, GLOVE, [1, 0, 0], 8),
    # Any two can win, so that a third of the gain is lacking.
    "least core of a majority": (least_core, MAJORITY, [1 / 3, 1 / 3, 1 / 3], 8),
    # Of u(S + i) - u(S) for S of one client, the mean over two; of two clients nothing is known.
    "IPSS": (partial(ipss, budget=7), MAJORITY, [1 / 3, 1 / 3, 1 / 3], 7),
    # The mean of joining nobody, which brings nothing, and of joining all.
    "Owen sampling": (partial(owen_sampling, levels=1, draws=1), GLOVE, [1 / 2, 0, 0], 8),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_solution_worked_by_hand(name: str) -> None:
    solution, table, expected, calls = BY_HAND[name]
    found = solution(game(table))
    np.testing.assert_allclose(found.values, expected, atol=1e-8)
    assert found.calls == calls
    moved = solution(game(10 * table + 3))  # what nobody brought counts for nobody
    np.testing.assert_allclose(moved.values, 10 * np.array(expected), atol=1e-7)


@pytest.mark.parametrize(
    "graph", [nx.path_graph(N), nx.star_graph(N - 1), nx.Graph([(0, 3), (1, 4), (4, 2)])]
)
def test_myerson_is_the_shapley_value_of_connected_parts(graph: nx.Graph) -> None:
    table = drawn(1)
    restricted = np.zeros_like(table)
    for s in range(2**N):
        members = [j for j in range(N) if s >> j & 1]
        for part in nx.connected_components(graph.subgraph(members)):
            restricted[s] += table[number(part)] - table[0]
    found = myerson(game(table), graph)
    np.testing.assert_allclose(found.values, game_values(restricted), atol=1e-12)
    matrix = nx.to_numpy_array(graph, nodelist=range(N)) > 0
    np.testing.assert_array_equal(myerson(game(table), matrix).values, found.values)


def test_myerson_asks_for_connected_coalitions_alone() -> None:
    assert myerson(game(drawn(1)), nx.path_graph(N)).calls == 1 + N * (N + 1) / 2
    whole = myerson(game(drawn(1)), nx.complete_graph(N))
    np.testing.assert_allclose(whole.values, game_values(drawn(1)), atol=1e-12)


def test_owen_is_the_mean_over_orders_in_which_unions_stay_together() -> None:
    table, unions = drawn(2), [[0, 3], [4], [1, 2]]
    marginals = []
    for order in permutations(range(N)):
        place = {j: k for k, j in enumerate(order)}
        if all(max(map(place.get, u)) - min(map(place.get, u)) == len(u) - 1 for u in unions):  # type: ignore[arg-type, type-var, operator]
            before = [number(order[: place[j]]) for j in range(N)]
            marginals.append([table[s | 1 << j] - table[s] for j, s in enumerate(before)])
    assert len(marginals) == 6 * 2 * 2
    found = owen(game(table), unions)
    np.testing.assert_allclose(found.values, np.mean(marginals, axis=0), atol=1e-12)
    for trivial in ([range(N)], [[j] for j in range(N)]):
        np.testing.assert_allclose(owen(game(table), trivial).values, game_values(table))


@pytest.mark.parametrize("seed", range(2))
def test_no_payment_in_the_least_core_is_shorter(seed: int) -> None:
    """Against corners of the least core, which linear programs with other aims find."""
    rng, table = np.random.default_rng(seed), drawn(seed)
    found, gain = least_core(game(table)), table - table[0]
    assert found.values.sum() == pytest.approx(gain[-1])
    proper = range(1, 2**N - 1)
    inside = np.array([[s >> j & 1 for j in range(N)] for s in proper], float)
    lacking = [gain[s] - sum(found.values[j] for j in range(N) if s >> j & 1) for s in proper]
    assert max(lacking) == pytest.approx(found.deficit, abs=1e-6)
    least = np.array([gain[s] - found.deficit - 1e-7 for s in proper])
    whole = {"A_eq": np.ones((1, N)), "b_eq": [gain[-1]], "bounds": (None, None)}
    for aim in rng.normal(size=(12, N)):
        corner = linprog(aim, -inside, -least, **whole).x
        assert found.values @ (corner - found.values) > -1e-5
    tighter = linprog(np.zeros(N), -inside, -least - 1e-5, **whole)
    assert tighter.status == 2  # no payment leaves every coalition happier


def test_games_without_a_conflict_have_a_core() -> None:
    additive = of(4, lambda s: sum([3, 1, 0, 2][j] for j in s))
    found = least_core(game(additive))
    np.testing.assert_allclose(found.values, [3, 1, 0, 2], atol=1e-6)
    assert found.deficit == pytest.approx(0, abs=1e-8)
    convex = least_core(game(of(4, lambda s: len(s) ** 2)))
    np.testing.assert_allclose(convex.values, 4, atol=1e-6)
    assert convex.deficit < -1
    assert not least_core(game(np.zeros(8))).values.any()
    assert least_core(game(np.array([2.0, 5.0]))).values == [3]


@pytest.mark.parametrize("budget", [6, 9, 16, 20, 31, 40])
def test_ipss_is_its_sums_over_known_coalitions(budget: int) -> None:
    table, asked = drawn(3), []

    def utilities(coalitions: np.ndarray) -> np.ndarray:
        asked.extend(coalitions.tolist())
        return table[coalitions]

    found = ipss(Game(N, utilities), budget, seed=1)
    assert found.calls == len(set(asked)) == min(budget, 2**N)
    whole = max(k for k in range(N + 1) if sum(comb(N, j) for j in range(k + 1)) <= budget)
    small = {number(some) for k in range(whole + 1) for some in combinations(range(N), k)}
    assert small <= set(asked)
    assert {int(s).bit_count() for s in set(asked) - small} <= {whole + 1}
    expected = np.zeros(N)
    for i in range(N):
        for size in range(N):
            added = [
                table[s | 1 << i] - table[s]
                for s in range(2**N)
                if s.bit_count() == size and not s >> i & 1 and {s, s | 1 << i} <= set(asked)
            ]
            expected[i] += np.mean(added) / N if added else 0
    np.testing.assert_allclose(found.values, expected, atol=1e-12)
    if budget >= 2**N:
        np.testing.assert_allclose(found.values, game_values(table), atol=1e-12)


@pytest.mark.parametrize(("size", "count"), [(2, 7), (3, 10), (4, 5)])
def test_clients_are_about_equally_often_in_what_ipss_draws(size: int, count: int) -> None:
    seeds = [balanced(N, size, count, seed) for seed in range(10)]
    for coalitions in seeds:
        assert len(set(coalitions.tolist())) == count
        often = [(coalitions >> j & 1).sum() for j in range(N)]
        assert sum(often) == size * count and max(often) - min(often) <= 2
    assert len({tuple(sorted(one.tolist())) for one in seeds}) > 1 or count == comb(N, size)


def test_owen_sampling_comes_near_the_shapley_value() -> None:
    worth = np.random.default_rng(0).normal(size=N)
    additive = of(N, lambda s: sum(worth[j] for j in s))
    np.testing.assert_allclose(owen_sampling(game(additive)).values, worth, atol=1e-12)
    table = drawn(4)
    few, many = (
        abs(owen_sampling(game(table), levels=levels, draws=50).values - game_values(table)).max()
        for levels in (2, 200)
    )
    assert many < 0.1 < few


def test_every_clients_games_are_solved() -> None:
    rng, n = np.random.default_rng(5), 4
    utilities = rng.normal(size=(2**n, n, 3))
    inside = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(bool)
    values = np.moveaxis(game_values(utilities), 0, 1)
    shuffled = rng.permutation(2**n)
    truth = GroundTruth(values, 0 * values, inside[shuffled], utilities[shuffled])
    found = solved(truth, one_round)
    np.testing.assert_allclose(found.values, values, atol=1e-12)
    assert found.executions == 2**n
    few = solved(truth, partial(ipss, budget=7))
    assert few.executions == 7 and few.values.shape == (n, n, 3)
    inside = border_coalitions(n, 1)
    rows = utilities[inside @ (1 << np.arange(n))]
    borders = GroundTruth(values, 0 * values, inside, rows)
    np.testing.assert_array_equal(
        solved(borders, partial(ipss, budget=5)).values,
        solved(truth, partial(ipss, budget=5)).values,
    )
    with pytest.raises(InvalidSetting, match="not executed: make the truth without samples"):
        solved(borders, least_core)


def test_links_are_those_of_a_federation() -> None:
    graph = nx.path_graph(N)
    found = links(topology.build(graph, np.ones(N)))
    np.testing.assert_array_equal(found, nx.to_numpy_array(graph) + np.eye(N) > 0)
    one_way = links(topology.build(nx.DiGraph([(0, 1), (1, 2), (2, 0)]), np.ones(3)))
    with pytest.raises(InvalidSetting, match=r"one direction only: give graph\.to_undirected"):
        myerson(game(MAJORITY), one_way)
    with pytest.raises(InvalidSetting, match=r"this one changes: leave out topology\.redraw_every"):
        links(topology.build([LINE, nx.star_graph(2)], np.ones(3)))


@pytest.mark.parametrize(
    ("solution", "sentence"),
    [
        (partial(myerson, graph=nx.path_graph(4)), "must have the 3 players 0 to 2 as its nodes"),
        (partial(myerson, graph=np.ones((3, 2))), r"3 rows and columns, not of shape \(3, 2\)"),
        (partial(myerson, graph=nx.DiGraph([(0, 1), (2, 1)])), "directed graphs, and this one has"),
        (partial(owen, unions=[[0, 1]]), "each of the players 0 to 2 once"),
        (partial(owen, unions=[[0, 1], [1, 2]]), "each of the players 0 to 2 once"),
        (partial(owen, unions=[[0, 1, 2], []]), "each of the players 0 to 2 once"),
        (partial(ipss, budget=3), r"set it to at least n \+ 1 = 4"),
        (partial(owen_sampling, levels=0), "levels must be"),
        (partial(owen_sampling, seed=-1), "seed must be at least 0"),
    ],
)
def test_what_a_solution_cannot_do_is_refused(
    solution: Callable[[Game], PlayerValues], sentence: str
) -> None:
    with pytest.raises(InvalidSetting, match=sentence):
        solution(game(MAJORITY))


def test_too_many_coalitions_are_refused() -> None:
    large = Game(21, lambda coalitions: np.zeros(len(coalitions)))
    for solution in (least_core, partial(myerson, graph=nx.path_graph(21))):
        with pytest.raises(InvalidSetting, match="n=21 is above 20: take fewer clients"):
            solution(large)
    with pytest.raises(InvalidSetting, match="take fewer clients"):
        owen(large, [range(21)])
    assert owen(large, [range(7), range(7, 14), range(14, 21)]).calls < 2**11
