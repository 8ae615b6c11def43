"""What a method costs all clients in a run, from the costs that its class declares."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from trip_jax.protocol.methods.facts import Costs, Sizes


@dataclass(frozen=True)
class Spent:
    """What a method costs all clients in a run, beside the costs of learning."""

    evaluations: int  # models on the test set, beside every next model
    gradients: int  # passes over the test set
    n_bytes: int


def spent(costs: Costs, members: Int[np.ndarray, "T n"], sizes: Sizes) -> Spent:
    """The evaluations, gradients and bytes that a method takes for a whole run.

    A run evaluates every next model anyhow: where that is all, it is no cost of the method.

    Args:
        members: of each client's neighbourhood in each round, itself included.
        sizes: of the federation; their `m` is not read.
    """
    n = members.shape[1]
    often = list(zip(*np.unique(members, return_counts=True), strict=True))

    def of(name: str, m: int) -> int:
        given = Sizes(m, n, sizes.P, sizes.budget, sizes.Q)
        return int(costs.amount(name).of(given))

    def in_rounds(name: str) -> int:
        found = [(of(name, int(m)), int(times)) for m, times in often]
        least = 1 if name == "evaluations" else 0
        return sum(times * one for one, times in found if one > least)

    return Spent(
        in_rounds("evaluations") + n * of("final_evaluations", n),
        in_rounds("gradients") + n * of("final_gradients", n),
        in_rounds("n_bytes"),
    )
