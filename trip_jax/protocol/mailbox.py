"""Messages of earlier waves, where a client mixes the newest that has arrived (schedule=events).

A message of client j is a pair theta_j^t, theta_j^(t+1/2): models before and after training.
Whoever mixes the second, however late, takes its contribution from the swap with the first, and
inherits the row of phi that belongs to the first: phi_j^t, as it was when j began to train. So
Eq. 3 is

    phi_i^(t+1) = sum_j w_ij phi_j^(t_j) + psi_i,    t_j the wave in which j sent what i mixes

The newest K messages of each client are kept until the next wave, K being the greatest age of a
message that is mixed in the run. Where K is 0 nothing is kept, and the mailbox is None. In arrays
of messages this wave's come first [n], then each client's newest before it [n], and so on.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from trip_jax.protocol.messages import Messages
from trip_jax.protocol.round import Round

Mailbox = dict[str, Array]  # fields of Messages, [K, n, ...]

KEPT = ("before", "trained", "accuracy", "unsent")


def empty(models: Float[Array, "n P"], n_earlier: int) -> Mailbox | None:
    """The mailbox before the first wave, for K = `n_earlier` messages of each client."""
    if not n_earlier:
        return None
    models = jnp.zeros((n_earlier, *models.shape), models.dtype)
    numbers = jnp.zeros(models.shape[:2])
    fields = models, models, numbers, jnp.ones(numbers.shape, bool)
    return dict(zip(KEPT, fields, strict=True))


def with_earlier(now: Messages, mailbox: Mailbox | None) -> Messages:
    """All messages that may be mixed in a wave, [(1 + K) n]: those sent now, then the mailbox."""
    if mailbox is None:
        return now
    n, n_earlier = len(now.before), len(mailbox["before"])
    fields = {
        name: jnp.concatenate([getattr(now, name)[None], values]).reshape(-1, *values.shape[2:])
        for name, values in mailbox.items()
    }
    altered = now.altered + n * jnp.arange(1 + n_earlier, dtype=now.altered.dtype)[:, None]
    return Messages(**fields, altered=altered.ravel())


def with_sent(mailbox: Mailbox | None, now: Messages, this_round: Round) -> Mailbox | None:
    """The mailbox after a wave: messages sent now are in it, those K waves old are not."""
    if mailbox is None:
        return None
    return {
        name: shifted(values, getattr(now, name), this_round) for name, values in mailbox.items()
    }


def shifted(earlier: Any, now: Array, this_round: Round) -> Any:
    """The newest arrays [K, n, ...] of each client, once those present have sent `now` [n, ...]."""
    if earlier is None:
        return None
    newer = jnp.concatenate([now[None], earlier[:-1]])
    return jax.vmap(this_round.where_present)(newer, earlier)


def rows_of_phi(
    phi: Float[Array, "n n"], earlier: Float[Array, "K n n"] | None, this_round: Round
) -> tuple[Float[Array, "R n"], Int[Array, " A"]] | None:
    """The rows of phi that belong to messages, and which of them each arc inherits.

    None where nothing is kept: each arc then inherits the row of its member.
    """
    if earlier is None:
        return None
    rows = jnp.concatenate([phi[None], earlier]).reshape(-1, len(phi))
    return rows, this_round.neighbourhoods.rows[this_round.arcs.client, this_round.arcs.slot]
