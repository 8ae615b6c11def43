"""Which clients' models a device holds: those of all clients, or of a part of them."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array, lax

from trip_jax.learning.mesh import AXIS
from trip_jax.protocol.messages import Messages

Step = tuple[tuple[int, int], ...]
"""Pairs (sender, receiver) of devices that exchange at once; each sends and receives at most once
in a step."""


@struct.dataclass
class Whole:
    """The device holds the models of all n clients."""

    def in_graph(self, g: Array) -> "Whole":
        """What the device holds in graph g."""
        return self

    def total(self, n: int) -> int:
        """The number of all clients, of which the device holds n."""
        return n

    def numbers(self, n: int) -> Array:
        """The numbers of the device's clients [n] among all clients."""
        return jnp.arange(n)

    def numbers_of(self, rows: Array) -> Array:
        """The numbers, among all clients, of the device's clients in these rows [F]."""
        return rows

    def liars(self, liars: Any) -> Any:
        """`Liars` whose mask is as long as the messages that the device holds."""
        return liars

    def gather(self, sent: Messages) -> Messages:
        """All messages that the device's clients may mix."""
        return sent


@struct.dataclass
class Part(Whole):
    """The device holds the models of b clients; D devices share a federation, see shards.py.

    The arrays of its rounds are those of b clients, and its messages are theirs and H messages from
    other devices. In a `Timetable` all fields but the first have a leading axis G.
    """

    clients: Array  # [b] int32 their numbers among all clients, n where padded
    sends: tuple[Array, ...]  # for each step, the rows [h] whose messages go to another device
    lying: Array  # [b + H] bool, whether a liar sent the message
    altered: Array  # [F] int32 rows of liars' messages, b + H where padded
    steps: tuple[Step, ...] = struct.field(pytree_node=False)
    n_clients: int = struct.field(pytree_node=False)  # n, of all devices together

    def in_graph(self, g: Array) -> "Part":
        fields = {"sends": self.sends, "lying": self.lying, "altered": self.altered}
        return replace(self, **jax.tree.map(lambda field: field[g], fields))

    def total(self, n: int) -> int:
        return self.n_clients

    def numbers(self, n: int) -> Array:
        return self.clients

    def numbers_of(self, rows: Array) -> Array:
        # Rows from b on are padding and belong to nobody.
        return self.clients.at[rows].get(mode="fill", fill_value=self.n_clients)

    def liars(self, liars: Any) -> Any:
        return replace(liars, mask=self.lying)

    def gather(self, sent: Messages) -> Messages:
        def arriving(values: Array) -> Array:
            parts = [values]
            for step, rows in zip(self.steps, self.sends, strict=True):
                parts.append(lax.ppermute(values[rows], AXIS, step))
            return jnp.concatenate(parts)

        return sent.with_rows(arriving, self.altered if len(sent.altered) else sent.altered)
