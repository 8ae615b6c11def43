"""Two of eight clients attack what all learn: what is left of the models, and who is to blame?

    python -m examples.robust

trains on embedded digits four times: without an attack, and under it with models mixed by their
mean, their median and by Krum. It prints how good honest clients' models are, and the scores of
attackers and of honest clients. A minute on two cores at most.
"""

import numpy as np

import trip_jax as tj

ATTACKERS = (2, 5)
RULES = "weighted_mean", "median", "krum"
ATTACK = tj.Adversary("sign_flips", clients=ATTACKERS, strength=4.0)
"""Attackers send four times their update, turned round."""


def federation_of(rule: str, attack: tj.Adversary | str, rounds: int) -> tj.Simulation:
    """Eight clients, each with four neighbours."""
    return tj.Simulation(
        tj.mlp(hidden=(32,)),
        dataset="digits",
        n_clients=8,
        topology="regular",
        training=tj.Training(rounds=rounds, learning_rate=0.1),
        aggregation=rule,
        adversary=attack,
    )


def main(rounds: int = 8, rules: tuple[str, ...] = RULES) -> dict[str, tj.Result]:
    """Train by each rule, and print accuracies and mean scores."""
    lying = np.isin(np.arange(8), ATTACKERS)
    runs = {"no attack": ("weighted_mean", "none")} | {rule: (rule, ATTACK) for rule in rules}
    results = {}
    print("aggregation    accuracy  score of attackers  of others")
    for name, (rule, attack) in runs.items():
        result = results[name] = federation_of(rule, attack, rounds).run()
        accuracy = result.accuracy[-1, ~lying].mean()
        theirs, others = (result.scores[those].mean() for those in (lying, ~lying))
        print(f"{name:<13}  {accuracy:>8.2f}  {theirs:>18.2f}  {others:>9.2f}")
    return results


if __name__ == "__main__":
    main()
