"""Games of which all coalitions are known, to judge intervals by.

Random ones: voting with weights and a quota, gloves that are worth something in pairs, tables of
independent numbers, and concave curves of how accuracy grows with examples. Real ones: what the
hub of a star sees in three rounds on the digits, and the final models of such a run, played again
for every coalition of its clients.
"""

import networkx as nx
import numpy as np

import trip_jax as tj
from experiments.estimators import TabulatedGame, lcv_games
from trip_jax.attribution.journal import Journal
from trip_jax.attribution.replay import Response, final_utilities
from trip_jax.learning.utilities import UTILITIES

FINAL_PLAYERS = 8  # of the games of final models, each of which has n of 2^n coalitions


def judging_games(n: int, seed: int, of_each: int) -> list[TabulatedGame]:
    """The same number of random games of each kind, on which estimators are judged."""
    rng = np.random.default_rng(seed)
    inside = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(bool)

    def voting() -> np.ndarray:
        votes = rng.integers(1, 10, n)
        return inside @ votes >= rng.uniform(0.4, 0.7) * votes.sum()

    def glove() -> np.ndarray:
        left = rng.integers(n // 3, n // 2 + 1)
        return np.minimum(inside[:, :left].sum(axis=1), inside[:, left:].sum(axis=1))

    def table() -> np.ndarray:
        return rng.normal(size=2**n)

    def concave() -> np.ndarray:
        """Accuracy from a tenth to nearly all, half of it with a quarter of the examples."""
        share = inside @ rng.dirichlet(np.full(n, 2.0))
        return 0.1 + 0.85 * share / (share + 0.25)

    makers = {"voting": voting, "glove": glove, "random table": table, "concave": concave}
    return [
        TabulatedGame(kind, make().astype(float))
        for kind, make in makers.items()
        for _ in range(of_each)
    ]


def real_games(n: int, rounds: tuple[int, ...]) -> list[TabulatedGame]:
    """Local contributions, and final models where there are not too many coalitions."""
    return lcv_games(n, rounds) + (final_games(n) if n <= FINAL_PLAYERS else [])


def final_games(n: int) -> list[TabulatedGame]:
    """The final model of every client of a star, for every utility, by reconstruction."""
    dataset = tj.load_dataset(tj.DatasetConfig("digits"))
    federation = tj.distribute(dataset, n_clients=n, distribution=tj.Distribution("noisy_labels"))
    simulation = tj.Simulation(
        tj.mlp(),
        federation.data,
        tj.topology.build(nx.star_graph(n - 1), np.asarray(federation.data.sizes)),
        training=tj.Training(rounds=2, local_epochs=1, learning_rate=0.05),
    )
    result = simulation.keeping_updates().run(progress=False)
    journal = Journal.of(result.records, simulation.topology, simulation.learner)
    inside = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(bool)
    response = Response.none(*journal.updates.shape[:2])
    found = final_utilities(journal, simulation.learner, response, inside)
    return [
        TabulatedGame(f"final, {name}", found[:, i, u])
        for u, name in enumerate(UTILITIES)
        for i in range(n)
    ]
