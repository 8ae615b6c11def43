"""Waves: the rounds of clients that train at their own speed.

A client trains without pause. When it is done it sends its model, mixes it with the newest model of
each neighbour that has arrived by then, and begins anew; all who finish at the same instant send
first, and then mix. These events are drawn before the first round. A wave is as much time as the
fastest client takes to train once, so that in it nobody finishes twice:

    wave t holds what happens in (t d, (t + 1) d],    d = min_i d_i

It is a round in which those who finish are present, and in which every slot says which message is
mixed: that of the same wave, or the k-th before it. Equal speeds and no latency give rounds.

Times are whole thousandths of the unit, so that the same instant is the same number.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from trip_jax.topology.graphs import Topology
from trip_jax.topology.participation import left_over

TICKS = 1000
"""The number of ticks in a unit of time."""

NEVER = 2**62
"""The latency, in ticks, of a message that is lost."""


def waves(
    durations: Int[np.ndarray, " n"],
    latency: Int[np.ndarray, "T n M"],
    members: Int[np.ndarray, "n M"],
) -> tuple[Bool[np.ndarray, "T n"], Int[np.ndarray, "T n M"]]:
    """Who finishes in each wave, and which message of each member is mixed then.

    Args:
        durations: ticks that a client trains.
        latency: ticks that the l-th message of the slot's member takes to the client; `NEVER`: it
            is lost.

    Returns:
        `present`, and the age of the newest message that has arrived: 0 if it was sent in the
        wave, k if it is the member's k-th before the wave, -1 if none has arrived. Of a client
        itself, and of who does not finish, it says nothing.
    """
    n_waves, (n, slots) = len(latency), members.shape
    ends = np.arange(n_waves + 1)[:, None] * durations.min()
    sent = ends // durations  # [T + 1, n] messages sent by then
    present = sent[1:] > sent[:-1]
    number, too_late = np.arange(1, n_waves + 1)[:, None, None], ends[-1] + 1
    arrival = np.minimum(number * durations[members] + latency, too_late)
    # The newest message there at a time is the last one that, or a later one, has arrived by then.
    earliest = np.minimum.accumulate(arrival[::-1])[::-1]  # ascending
    at = np.where(present, sent[1:] * durations, 0)  # [T, n] when who finishes does
    # One search for all slots: the times of each lie beyond those of the slot before.
    beyond = np.arange(n * slots).reshape(n, slots) * (too_late + 1)
    times = np.moveaxis(earliest + beyond, 0, -1).ravel()
    passed = np.searchsorted(times, at[..., None] + beyond, side="right")
    newest = passed - n_waves * np.arange(n * slots).reshape(n, slots)  # its number, from 1
    return present, np.where(newest > 0, sent[:-1][:, members] + 1 - newest, -1)


def of_waves(
    topology: Topology,
    present: Bool[np.ndarray, "T n"],
    age: Int[np.ndarray, "T n M"],
    wave: float,
) -> Topology:
    """The topology of waves, as `waves` gives them; the one that is given where they are rounds."""
    nearby = topology.at(0)
    mask, itself = np.asarray(nearby.mask), np.asarray(nearby.itself)
    if present.all() and not age[:, mask & ~itself].any():
        return replace(topology, wave=wave)
    graphs = []
    for taking_part, ages in zip(present, age, strict=True):
        dated = replace(nearby, age=jnp.asarray(np.where(itself | (ages < 0), 0, ages), jnp.int32))
        graphs.append(left_over(topology, dated, mask & taking_part[:, None] & (ages >= 0)))
    return replace(
        topology,
        graphs=jax.tree.map(lambda *each: jnp.stack(each), *graphs),
        redraw_every=1,
        present=jnp.asarray(present),
        wave=wave,
    )
