"""Eight stations that not all can answer each other: push-sum on a directed graph.

    python -m examples.pushsum

Each station owns digits, of which two classes are the most. It sends its model to the next station
and perhaps to others, who can't send back. A mean of what arrives counts some stations twice as
much as others; push-sum counts all alike. Printed is how much each counts and its score, by both.
Half a minute on two cores.
"""

from collections.abc import Sequence

import networkx as nx
import numpy as np

import trip_jax as tj

N = 8
BESIDE = {0: (2, 4), 1: (3, 5), 2: (4,), 4: (0, 6), 6: (1,)}
"""Whom stations reach beside the next one."""
RULES = "weighted_mean", "push_sum"


def graph() -> nx.DiGraph:
    """An arc from each station to all whom it reaches."""
    circle = [(i, (i + 1) % N) for i in range(N)]
    return nx.DiGraph([*circle, *((i, j) for i, those in BESIDE.items() for j in those)])


def federation_of(rule: str, rounds: int) -> tj.Simulation:
    """All stations, mixing by a rule of `aggregation`."""
    shares = tj.distribute(tj.load_dataset("digits"), N, "non_iid")
    return tj.Simulation(
        tj.mlp(hidden=(32,)),
        shares.data,
        tj.topology.build(graph(), shares.data.sizes),
        training=tj.Training(rounds=rounds, learning_rate=0.03),
        contribution=tj.Contribution(utility="loss", normalization="efficient"),
        aggregation=rule,
    )


def counts(result: tj.Result) -> np.ndarray:
    """How much the model that a station had at first counts in what all have in the end; 1: alike.

    Returns:
        [n] numbers whose mean is 1.
    """
    matrix, members = np.eye(N), np.asarray(result.topology.at(0).members)
    for shares in np.asarray(result.records.shares):
        mixing = np.zeros((N, N))
        np.add.at(mixing, (np.arange(N)[:, None], members), shares)
        matrix = mixing @ matrix
    return np.asarray(matrix.sum(axis=0))


def main(rounds: int = 40, rules: Sequence[str] = RULES) -> dict[str, tj.Result]:
    """Learn by both rules and print who counts and contributes how much."""
    results = {rule: federation_of(rule, rounds).run() for rule in rules}
    print("station  sends to  " + "  ".join(f"{rule}: counts  score" for rule in rules))
    told = [(counts(result), result.scores) for result in results.values()]
    for i in range(N):
        both = (f"{count[i]:>21.2f} {score[i]:>6.3f}" for count, score in told)
        print(f"{i:>7}  {1 + len(BESIDE.get(i, ())):>8}  " + "  ".join(both))
    for rule, result in results.items():
        accuracy = np.asarray(result.accuracy)[-1]
        print(f"accuracy by {rule}: {accuracy.mean():.3f}, of the worst {accuracy.min():.3f}")
    return results


if __name__ == "__main__":
    main()
