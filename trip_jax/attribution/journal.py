"""The journal of a run for methods that wait for its end: reports, and updates for some."""

from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from trip_jax.attribution.updates import Updates
from trip_jax.learning.evaluation import N_UTILITIES
from trip_jax.learning.learner import Learner
from trip_jax.topology import Topology

BLOCK = 2**28
"""Bytes of updates that are in memory at a time."""


@dataclass(frozen=True)
class Journal:
    """Every client's update of every round, who mixed whose models, and what was reported.

    To those who may see reports alone, `updates` is None.
    """

    start: Float[np.ndarray, " P"]  # theta^(0)
    updates: Updates | Float[np.ndarray, "T n P"]  # theta_j^(t+1/2) - theta_j^(t)
    # w_ij^(t) / sum_k w_ik^(t), 0 outside neighbourhoods; R = n messages, (1 + K) n of waves where
    # those of earlier waves are mixed
    mixing: Float[np.ndarray, "T n R"]
    lcv: Float[np.ndarray, "T n n 3"]  # psi^(i,t)(j), 0 outside neighbourhoods
    steps: Int[np.ndarray, " n"]  # minibatches that a client visits in a round
    present: Bool[np.ndarray, "T n"]  # who trains in a round

    @classmethod
    def of(cls, records: Any, topology: Topology, learner: Learner) -> Self:
        """The journal of a run whose method concludes at its end (protocol/methods/whole_run.py).

        Args:
            records: `Result.records`.
        """
        mixing, lcv = _dense(records, topology)
        always = np.ones(mixing.shape[:2], bool)
        present = always if topology.present is None else np.asarray(topology.present)
        return cls(
            np.asarray(learner.model.theta),
            records.kept,
            mixing,
            lcv,
            learner.training.steps(np.asarray(learner.data.sizes)),
            present[: len(lcv)],
        )

    @staticmethod
    def planned_bytes(n_rounds: int, n: int) -> int:
        """The bytes of memory that `of` takes: two matrices, and what they are added to."""
        return 2 * 4 * (1 + N_UTILITIES) * n_rounds * n**2

    @property
    def blocks(self) -> list[slice]:
        """Parameters of which the updates of all rounds fit into `BLOCK`."""
        n_rounds, n, size = self.updates.shape
        width = block_width(n_rounds * n, size)
        return [slice(first, min(first + width, size)) for first in range(0, size, width)]

    def block(self, columns: slice) -> Float[np.ndarray, "C p"]:
        """Updates of some parameters, a round's after another's."""
        some = self.updates[..., columns]
        return some.reshape(-1, some.shape[-1])


def block_width(n_updates: int, size: int) -> int:
    """Parameters in a block of so many updates of so many parameters."""
    return max(1, min(size, BLOCK // (4 * n_updates)))


def _dense(records: Any, topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """Mixing matrices [T, n, R] and contribution vectors [T, n, n, 3] of a run."""
    n = topology.n_clients
    clients = jnp.arange(n)[:, None]

    n_messages = (1 + topology.n_earlier) * n

    def one(t: Any, unsent: Any, lcv: Any) -> Any:
        nearby = topology.at(t)
        if n_messages == n:  # in waves all arrive, or their senders' models are not finite
            nearby = nearby.with_lost(nearby.lost(unsent))
        place = clients, nearby.members
        found = jnp.where(nearby.mask[..., None], lcv, 0)
        mixing = jnp.zeros((n, n_messages)).at[clients, nearby.rows].add(nearby.shares)
        return mixing, jnp.zeros((n, n, lcv.shape[-1])).at[place].add(found)

    rounds = jnp.arange(len(records.unsent))
    mixing, lcv = jax.vmap(one)(rounds, jnp.asarray(records.unsent), jnp.asarray(records.lcv))
    return np.asarray(mixing), np.asarray(lcv)


def traced(mixing: Float[np.ndarray, "T n n"], lcv: Float[np.ndarray, "T n n *U"]) -> np.ndarray:
    """Eq. 3 over all rounds: phi [n, n, ...] of contribution vectors."""
    phi = np.zeros(lcv.shape[1:])
    for weights, new in zip(mixing, lcv, strict=True):
        phi = np.tensordot(weights, phi, axes=1) + new
    return phi
