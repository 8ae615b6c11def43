"""How a federation is divided among D devices: who holds which models, and sends which.

Clients are put in an order and cut into D parts of b clients. The order is that of their numbers,
or one in which neighbours are close to each other, by reverse Cuthill-McKee (A. George, "Computer
implementation of the finite element method", 1971), whichever sends less. A device holds the
messages of its b clients, and H messages that other devices send it step by step. In a step a
device sends one other device the models that are mixed there, padded to the most that any device
sends in that step. So devices that send about as many models should do so in the same step. Either
the pairs that send most come first, each in the first step in which both are free; or all devices
send by the same shift, where that sends less.
"""

from dataclasses import replace
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array
from jaxtyping import Bool, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from trip_jax.protocol.part import Part, Step
from trip_jax.protocol.round import Liars, Timetable
from trip_jax.topology import Arcs, Neighbourhoods


@struct.dataclass
class Shards:
    """A federation of n clients in D parts, one a device.

    Attributes:
        timetable: the timetables of all parts; every field has a leading axis D.
        place: [n] int32, the row of each client among the D b rows of all parts.
    """

    timetable: Timetable
    place: Array

    @property
    def of_learning(self) -> "Shards":
        """The shards without what only `assess` reads."""
        return replace(self, timetable=self.timetable.of_learning)


def divide(timetable: Timetable, n_devices: int) -> Shards:
    """The timetable of each device's part; its work is None, which depends on the method."""
    graphs = jax.tree.map(np.asarray, timetable.topology.graphs)
    n_graphs, n, slots = graphs.mask.shape
    orders = np.arange(n, dtype=np.int32), _close_together(graphs)
    traffics = [_Traffic(graphs.members, order, n_devices) for order in orders]
    traffic = min(traffics, key=lambda one: one.n_rows)
    clients, b = traffic.clients, traffic.clients.shape[1]
    lies = np.asarray(timetable.liars.mask)
    shape = n_devices, n_graphs, b, slots
    members: Any = np.broadcast_to(np.arange(b, dtype=np.int32)[:, None], shape).copy()
    mask: Any = np.zeros(shape, bool)
    mask[..., : graphs.mask.sum(axis=-1).min()] = True  # padded clients are their own members
    weights: Any = mask.astype(np.float32)
    lying: Any = np.zeros((n_devices, n_graphs, traffic.n_rows), bool)
    for d, numbers in enumerate(clients):
        held = numbers[numbers < n]
        for g in range(n_graphs):
            who, rows = traffic.messages(d, g)
            row_of = np.zeros(n, np.int32)
            row_of[who] = rows
            lying[d, g, rows] = lies[who]
            members[d, g, : len(held)] = row_of[graphs.members[g, held]]
            mask[d, g, : len(held)] = graphs.mask[g, held]
            weights[d, g, : len(held)] = graphs.weights[g, held]

    present = timetable.topology.present
    if present is not None:
        there = np.pad(np.asarray(present), [(0, 0), (0, 1)])[:, clients]  # [T, D, b]
        present = np.ascontiguousarray(there.swapaxes(0, 1))
    neighbourhoods = Neighbourhoods(members, mask, weights)
    pairs: Any = np.divmod(np.arange(b * slots, dtype=np.int32), slots)
    pairs = np.broadcast_to(np.stack(pairs)[:, None, None], (2, *shape[:2], b * slots))
    part = Part(
        clients=clients,
        sends=tuple(traffic.sends),
        lying=lying,
        altered=_numbers(lying),
        steps=traffic.steps,
        n_clients=n,
    )
    of_devices = Timetable(
        topology=replace(timetable.topology, graphs=neighbourhoods, present=present),
        arcs=Arcs(pairs[0], pairs[1], mask.reshape(*shape[:2], -1)),
        work=None,
        liars=Liars(_numbers(np.append(lies, False)[clients]), mask=None),
        key=jnp.broadcast_to(timetable.key, n_devices),
        part=part,
    )
    return Shards(of_devices, traffic.place)


class _Traffic:
    """The messages that devices send each other, if clients stand in this order.

    Attributes:
        clients: [D, b] the clients of each device, padded with n.
        place: [n] int32, the position of each client among them.
        steps: for each step, the pairs (sender, receiver) of devices.
        sends: for each step, [D, G, h] the rows of a device that it sends, padded with 0.
        n_rows: b + H, the messages that a device holds.
    """

    def __init__(
        self,
        members: Int[np.ndarray, "G n M"],
        order: Int[np.ndarray, " n"],
        n_devices: int,
    ):
        self._n, b, graphs = len(order), -(-len(order) // n_devices), range(len(members))
        self.clients: Any = np.full((n_devices, b), self._n, np.int32)
        self.clients.ravel()[: self._n] = order
        self.place: Any = np.empty(self._n, np.int32)
        self.place[order] = np.arange(self._n)
        owner, row = np.divmod(self.place, b)
        self._coming = [
            [self._from_others(d, graph, owner) for graph in members] for d in range(n_devices)
        ]
        lengths = np.array([[[len(come) for come in one] for one in some] for some in self._coming])
        sent = lengths.max(axis=1).T  # from, to
        plans = _largest_first(sent), _by_shifts(sent)
        most, self.steps = min(
            (([max(sent[pair] for pair in step) for step in plan], plan) for plan in plans),
            key=lambda one: sum(one[0]),
        )
        self._first = b + np.cumsum(most, dtype=int) - most
        self.n_rows = b + int(sum(most))
        self.sends: list[Any] = []
        for step, height in zip(self.steps, most, strict=True):
            rows = np.zeros((n_devices, len(members), height), np.int32)
            for (one, other), g in product(step, graphs):
                come = self._coming[other][g][one]
                rows[one, g, : len(come)] = row[come]
            self.sends.append(rows)

    def _from_others(
        self, d: int, members: Int[np.ndarray, "n M"], owner: Int[np.ndarray, " n"]
    ) -> list[Int[np.ndarray, " H"]]:
        """The clients of each device whose messages device d needs."""
        clients = self.clients[d][self.clients[d] < self._n]
        needed = np.unique(members[clients])
        return [
            needed[(owner[needed] == other) & (other != d)] for other in range(len(self.clients))
        ]

    def messages(self, d: int, g: int) -> tuple[Int[np.ndarray, " R"], Int[np.ndarray, " R"]]:
        """The clients whose messages device d holds in graph g, and the rows of these."""
        own = self.clients[d][self.clients[d] < self._n]
        given = [
            (first, self._coming[d][g][one])
            for first, step in zip(self._first, self.steps, strict=True)
            for one, other in step
            if other == d
        ]
        come = [clients for _, clients in given]
        rows = [first + np.arange(len(clients)) for first, clients in given]
        return np.concatenate([own, *come]), np.concatenate([np.arange(len(own)), *rows])


def _largest_first(sent: Int[np.ndarray, "D D"]) -> tuple[Step, ...]:
    """Steps in which pairs that send most come first, each in the first step with both free."""
    pairs = np.argwhere(sent)
    pairs = pairs[np.argsort(-sent[tuple(pairs.T)], kind="stable")]
    steps: list[list[tuple[int, int]]] = [[] for _ in range(2 * len(sent))]  # enough for any pairs
    sends, is_sent = np.zeros((2, len(steps), len(sent)), bool)
    for one, other in pairs.tolist():
        k = int(np.argmin(sends[:, one] | is_sent[:, other]))
        steps[k].append((one, other))
        sends[k, one] = is_sent[k, other] = True
    return tuple(tuple(step) for step in steps if step)


def _by_shifts(sent: Int[np.ndarray, "D D"]) -> tuple[Step, ...]:
    """Steps s = 1, 2, ... in which every device sends to the s-th device after it."""
    n_devices = len(sent)
    ways = [[(d, (d + s) % n_devices) for d in range(n_devices)] for s in range(1, n_devices)]
    steps = (tuple(pair for pair in way if sent[pair]) for way in ways)
    return tuple(step for step in steps if step)


def _close_together(graphs: Neighbourhoods) -> Int[np.ndarray, " n"]:
    """The clients in an order in which neighbours in any graph are close to each other."""
    n = graphs.mask.shape[1]
    _, client, _ = np.nonzero(graphs.mask)
    member = graphs.members[graphs.mask]
    ones = np.ones(len(client), np.int8)
    return np.asarray(reverse_cuthill_mckee(csr_array((ones, (client, member)), (n, n))))


def _numbers(mask: Bool[np.ndarray, "*K R"]) -> Any:
    """The positions [*K, F] of True in each row of R, padded with R."""
    most = int(mask.sum(axis=-1).max(initial=0))
    order = np.argsort(~mask, axis=-1, kind="stable")[..., :most]
    return np.where(np.take_along_axis(mask, order, axis=-1), order, mask.shape[-1]).astype(
        np.int32
    )
