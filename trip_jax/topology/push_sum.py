"""Push-sum over directed graphs: mixing weights that make up for who is heard more than others.

Client j divides what it holds evenly among its d_j receivers, itself included: P_ij = 1/d_j, whose
columns sum to 1. It sends P_ij x_j and P_ij w_j, and client i adds up both and goes on with the
model theta_i = x_i / w_i:

    x_i^(t+1) = sum_j P_ij x_j^(t+1/2),    w_i^(t+1) = sum_j P_ij w_j^(t)

(Kempe, Dobra, Gehrke, FOCS 2003). In stochastic gradient push (Assran, Loizou, Ballas, Rabbat,
ICML 2019) training adds its update to x, here times the client's importance s_j, the number of its
examples over their mean, or 1: x_j^(t+1/2) = x_j^(t) + s_j (trained theta_j - theta_j). Sums over
all clients stay, so that models agree on the mean of updates by importance, as from a server. In
terms of models this is Algorithm 1:

    theta_j^(t+1/2) = theta_j^(t) + (s_j / w_j) (trained theta_j - theta_j),
    theta_i^(t+1) = sum_j P_ij w_j theta_j^(t+1/2) / sum_j P_ij w_j

So Eqs. 2, 3 and 5 have the weights P_ij w_j. The w depend on the graphs alone, w^(0) = s, and are
known before the first round.
"""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import Array
from jaxtyping import Bool, Float
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from trip_jax.settings import require
from trip_jax.topology.graphs import Pushed, Topology

LEAST = 1e-3
"""The least weight w_i, relative to the client's importance, before updates count too much."""


def with_push_sum(topology: Topology, rounds: int) -> Topology:
    """The topology whose mixing weights are those of push-sum in so many rounds.

    Raises:
        InvalidSetting: weights that do not say how important a client is, messages that are lost or
            late, or a client that some others never hear of.
    """
    require(
        not topology.lossy and topology.wave is None,
        "aggregation=push_sum loses the weight of messages that are lost or late: set "
        "topology.drop=0 and schedule=synchronous.",
    )
    members, mask = np.asarray(topology.graphs.members), np.asarray(topology.graphs.mask)
    importance = _importance(topology, members, mask)
    n = len(importance)
    _require_heard(members, mask, n)
    out = np.stack(
        [np.bincount(who[real], minlength=n) for who, real in zip(members, mask, strict=True)]
    )
    parts = np.where(mask, 1 / np.take_along_axis(out[:, None], members, axis=2), 0)
    weights = np.empty((rounds, n))
    now = importance
    for t in range(rounds):
        weights[t] = now
        g = topology.graph_of(t)
        now = (parts[g] * now[members[g]]).sum(axis=1)
    factors = importance / weights
    require(
        bool(factors.max(initial=0) * LEAST <= 1),
        f"aggregation=push_sum leaves client {int(factors.max(axis=0).argmax())} with less than "
        f"{LEAST:g} of its weight: choose a topology in which it hears of more clients.",
    )
    pushed = Pushed(*jax.device_put((weights.astype(np.float32), factors.astype(np.float32))))
    graphs = replace(topology.graphs, weights=jax.device_put(parts.astype(np.float32)))
    return replace(topology, graphs=graphs, pushed=pushed)


def moved(
    factors: Float[Array, " n"] | None, before: Float[Array, "n P"], after: Float[Array, "n P"]
) -> Float[Array, "n P"]:
    """theta^(t+1/2) by push-sum; `after` is what training made of `before`."""
    return after if factors is None else before + factors[:, None] * (after - before)


def _importance(topology: Topology, members: Any, mask: Any) -> Float[np.ndarray, " n"]:
    """The weight that all give to the model of a client, 1 on average."""
    given = np.asarray(topology.graphs.weights, float)
    least, most = np.full(topology.n_clients, np.inf), np.zeros(topology.n_clients)
    np.minimum.at(least, members[mask], given[mask])
    np.maximum.at(most, members[mask], given[mask])
    require(
        bool((least > 0.999 * most).all()),
        "aggregation=push_sum divides what a client sends evenly, and here its receivers give it "
        "different weights: set topology.weights=data_size or uniform.",
    )
    return most / most.mean()


def _require_heard(members: Any, mask: Bool[np.ndarray, "G n M"], n: int) -> None:
    """Refuse graphs in which, of two clients that are joined, one never hears of the other."""
    _, client, _ = np.nonzero(mask)
    ones = np.ones(len(client), bool)
    arcs = csr_array((ones, (members[mask], client)), shape=(n, n))
    found = [
        connected_components(arcs, directed=True, connection=how)[0] for how in ("weak", "strong")
    ]
    require(
        found[0] == found[1],
        "aggregation=push_sum needs a path of arcs from every client to every other, and some "
        "never hear of others: give the topology more arcs, or set topology.redraw_every=1.",
    )
