"""Mixtures of the models that a neighbourhood exchanged (Eqs. 2 and 5).

In float32 on any device: accelerators would by default round models that differ by less than that.
"""

from functools import partial

import jax.numpy as jnp
from jax import Array, lax

from trip_jax.topology import Neighbourhoods

mix = partial(jnp.matmul, precision=lax.Precision.HIGHEST)


def aggregate(trained: Array, neighbourhoods: Neighbourhoods) -> Array:
    """theta_i^(t+1): the weighted mean over N^(i,t) of post-training models (Eq. 2).

    Args:
        trained: [n, P] models after training.

    Returns:
        the next round's models [n, P].
    """
    return lax.map(
        lambda client: mix(client[0], trained[client[1]]),
        (neighbourhoods.shares, neighbourhoods.members),
    )


def coalition_models(
    coalitions: Array, shares: Array, trained: Array, before: Array, own: Array, keep: Array
) -> Array:
    """theta_i^(t+1)(S) for coalitions of one neighbourhood (Eq. 5).

    Args:
        coalitions: [b, M] bool, whether a slot belongs to the coalition.
        shares: [M] normalised weights.
        trained: [M, P] post-training models of the members.
        before: [M, P] pre-training models as they were received.
        own: [P] the client's own true pre-training model.
        keep: [M] bool, whether a received pre-training model is used; else `own` stands for it.

    Returns:
        models [b, P].
    """
    inside = coalitions * shares
    outside = shares - inside
    received = jnp.where(keep, outside, 0)
    replaced = (outside - received).sum(axis=1, keepdims=True)
    weights = jnp.concatenate([inside, received, replaced], axis=1)
    return mix(weights, jnp.concatenate([trained, before, own[None]]))
