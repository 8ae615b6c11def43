"""Messages of earlier waves, where a client mixes the newest that has arrived (schedule=events).

A message j sends is a pair theta_j^t, theta_j^(t+1/2): models before and after training. Whoever
mixes the second, however late, takes its contribution from the swap with the first, and inherits
the row of phi that belongs to the first: phi_j^t, as it was when j began to train. So Eq. 3 is

    phi_i^(t+1) = sum_j w_ij phi_j^(t_j) + psi_i,    t_j the wave in which j sent what i mixes

The newest K messages of each client are kept until the next wave, K being the greatest age that
the schedule mixes; rounds in which all mix what was just sent keep none. In arrays of messages this
wave's come first [n], then each client's newest before it [n], and so on.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from trip_jax.protocol.messages import Messages, Round

Mailbox = dict[str, Array]  # fields of Messages, [K, n, ...]

KEPT = ("before", "trained", "accuracy", "arrived")


def empty(models: Float[Array, "n P"], depth: int) -> Mailbox | None:
    """Before the first wave; None where nothing is ever kept."""
    if not depth:
        return None
    models = jnp.zeros((depth, *models.shape), models.dtype)
    numbers = jnp.zeros(models.shape[:2])
    fields = models, models, numbers, numbers.astype(bool)
    return dict(zip(KEPT, fields, strict=True))


def with_earlier(now: Messages, earlier: Mailbox | None) -> Messages:
    """All messages that may be mixed in a wave, [(1 + K) n]."""
    if earlier is None:
        return now
    n, depth = len(now.before), len(earlier["before"])
    fields = {
        name: jnp.concatenate([getattr(now, name)[None], values]).reshape(-1, *values.shape[2:])
        for name, values in earlier.items()
    }
    altered = now.altered + n * jnp.arange(1 + depth, dtype=now.altered.dtype)[:, None]
    return Messages(**fields, altered=altered.ravel())


def with_these(earlier: Mailbox | None, now: Messages, here: Round) -> Mailbox | None:
    """What is kept after a wave."""
    if earlier is None:
        return None
    return {name: shifted(values, getattr(now, name), here) for name, values in earlier.items()}


def shifted(earlier: Any, now: Array, here: Round) -> Any:
    """Arrays [K, n, ...] of the newest, once those who are present have sent `now` [n, ...]."""
    if earlier is None:
        return None
    newer = jnp.concatenate([now[None], earlier[:-1]])
    return jax.vmap(here.of_present)(newer, earlier)


def rows_of_phi(
    phi: Float[Array, "n n"], earlier: Float[Array, "K n n"] | None, here: Round
) -> tuple[Float[Array, "R n"], Int[Array, " A"]] | None:
    """The rows of phi that belong to messages, and which of them each arc inherits; None: now's."""
    if earlier is None:
        return None
    rows = jnp.concatenate([phi[None], earlier]).reshape(-1, len(phi))
    return rows, here.neighbourhoods.rows[here.arcs.client, here.arcs.slot]
