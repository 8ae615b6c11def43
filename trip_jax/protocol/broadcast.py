"""Contributions without a coordinator: clients flood signed reports, and each traces phi itself.

Training is the same as with a coordinator. In each round reports go from neighbour to neighbour,
over the arcs of the round's graph in both directions. A report that does not reach a client in its
round never does. Two different reports that a client signed for one round prove to whoever has both
that it equivocated; then neither counts. In place of a report that is missing or does not count
stands an LCV of zero with self weight 1, as with a coordinator.
"""

from dataclasses import dataclass, field, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array

from trip_jax.protocol.adversaries import drawn_liars
from trip_jax.protocol.coordinator import coordinate
from trip_jax.protocol.defences import AdoptAll, Audit
from trip_jax.protocol.flooding import NEVER, Links, flood, sent
from trip_jax.protocol.reports import Reports
from trip_jax.settings import Registry, require
from trip_jax.settings.capacity import require_capacity
from trip_jax.topology import Topology

RAISED = 0.1
"""What an equivocator adds to its own entry in the second of its reports, as D2 does."""

MISSING, FIRST, SECOND, BOTH = range(4)
"""Which of another client's reports on a round a client has."""

SETS_AT_ONCE = 8
"""How many sets of reports are traced at once; each has its own phi [n, n]."""


@dataclass(frozen=True)
class Behaviour:
    """What a liar does with reports.

    Args:
        versions: how many different reports it signs for a round: none, one or two.
        relays: whether it passes others' reports on as they are.
        forges: whether it alters others' reports; no signature fits these, and receivers refuse
            them.
    """

    versions: int
    relays: bool
    forges: bool = False


BEHAVIOURS: Registry[Behaviour] = Registry("protocol.behaviour")
BEHAVIOURS("withhold")(Behaviour(versions=0, relays=False))
BEHAVIOURS("forge")(Behaviour(versions=1, relays=False, forges=True))
BEHAVIOURS("equivocate")(Behaviour(versions=2, relays=True))


@dataclass(frozen=True)
class Outcome:
    """What H honest clients of n find in T rounds, from U different sets of reports."""

    liars: Int[np.ndarray, " F"]
    reach: Float[np.ndarray, "T n"]  # share of honest clients that have a report of the client
    messages: Int[np.ndarray, "T n"]  # how many carried the client's report, or a forgery of it
    forged: Int[np.ndarray, "T n"]  # how many of these were forgeries that arrived
    connected: Bool[np.ndarray, " T"]  # whether honest clients reach each other through each other
    proved: float  # share of pairs (honest client, equivocation) with a proof; NaN without any
    phi: Float[np.ndarray, "U n n"]  # phi from each set of reports
    set_of: Int[np.ndarray, " H"]  # the set that each honest client has
    whole: Bool[np.ndarray, "U n"]  # whether a set holds all reports that a row of phi depends on
    complete: Float[np.ndarray, "n n"]  # phi from all reports that were sent, with all proofs

    @property
    def honest(self) -> Bool[np.ndarray, " n"]:
        """Which clients follow the protocol of the broadcast."""
        return ~np.isin(np.arange(self.reach.shape[1]), self.liars)

    @property
    def agreeing(self) -> Bool[np.ndarray, " H"]:
        """Whether a client's phi is, bit for bit, the one that most honest clients have."""
        _, same = np.unique(_as_bytes(self.phi), return_inverse=True)
        mine = same.ravel()[self.set_of]
        return np.asarray(mine == np.bincount(mine).argmax())

    @property
    def right(self) -> Bool[np.ndarray, " H"]:
        """Whether a client's phi is, bit for bit, the one from all reports."""
        return np.asarray((self.phi == self.complete).all(axis=(1, 2))[self.set_of])

    @property
    def difference(self) -> Float[np.ndarray, " H"]:
        """The largest difference between a client's phi and the one from all reports."""
        return np.asarray(np.abs(self.phi - self.complete).max(axis=(1, 2))[self.set_of])

    @property
    def known(self) -> Float[np.ndarray, " H"]:
        """The share of rows of phi for which a client has all reports that they depend on."""
        return np.asarray(self.whole.mean(axis=1)[self.set_of])


@dataclass(frozen=True)
class Broadcast:
    """How clients flood signed reports through the graph, in place of a coordinator; hashable."""

    drop: float = 0.0  # the probability that a report is lost between two neighbours
    hops: int | None = None  # how often a report is passed on; None: until all have it
    liars: float = 0.0  # their share of the clients
    behaviour: Behaviour = field(default_factory=lambda: BEHAVIOURS["withhold"])

    def who_lies(self, n: int, seed: int) -> Int[np.ndarray, " F"]:
        """The numbers of the liars, in ascending order.

        Raises:
            InvalidSetting: less than one client, or all.
        """
        liars = drawn_liars("protocol.liars", self.liars, n, seed)
        require(
            len(liars) < n,
            f"protocol.liars={self.liars} of n_clients={n} leaves nobody honest: lower it.",
        )
        return liars

    def __call__(
        self,
        topology: Topology,
        reported: Float[np.ndarray, "T n M"],
        shares: Float[np.ndarray, "T n M"],
        audit: Audit,
        seed: int,
    ) -> Outcome:
        """What honest clients find once all rounds are over.

        Args:
            reported: the contributions of members that clients report.
            shares: the mixing shares that they report.
            audit: the audit that every client makes (C2).
            seed: decides the liars and the losses.

        Raises:
            InvalidSetting: more reports than memory holds.
        """
        n_rounds, n, _ = reported.shape
        liars = self.who_lies(n, seed)
        honest = ~np.isin(np.arange(n), liars)
        rounds = [self._spread(topology, t, liars, honest, seed) for t in range(n_rounds)]
        status, offered, messages, forged, connected = map(np.stack, zip(*rounds, strict=True))
        sets, set_of = _distinct(status.transpose(1, 0, 2))
        reports = _reports(topology, reported, shares)
        phi = _trace(reports, np.concatenate([sets, offered[None]]), audit)
        twice = offered == BOTH
        proofs = (status == BOTH).mean(axis=1)[twice]
        return Outcome(
            liars=liars,
            reach=(status != MISSING).mean(axis=1),
            messages=messages,
            forged=forged,
            connected=connected,
            proved=float(proofs.mean()) if twice.any() else float("nan"),
            phi=phi[:-1],
            set_of=set_of,
            whole=_whole(topology, sets, audited=audit != AdoptAll()),
            complete=phi[-1],
        )

    def _spread(
        self,
        topology: Topology,
        t: int,
        liars: Int[np.ndarray, " F"],
        honest: Bool[np.ndarray, " n"],
        seed: int,
    ) -> tuple[np.ndarray, ...]:
        """How reports spread in round t.

        Returns:
            which reports of each client honest clients have [H, n], which exist [n], the messages
            that carried them [n], forgeries that arrived [n], and whether honest clients are
            connected.
        """
        nearby, n, behaviour = topology.at(t), len(honest), self.behaviour
        links = Links.of(np.asarray(nearby.members), np.asarray(nearby.mask))
        second = liars if behaviour.versions == 2 else liars[:0]
        owner = np.concatenate([np.arange(n), second])
        require_capacity(
            24 * len(links.source) * len(owner),
            "reports on their way fill tables of links by clients; lower n_clients, or choose a "
            "topology with fewer neighbours",
        )
        lies = ~honest[links.source][:, None]
        mine = links.source[:, None] == owner
        tells = np.ones_like(mine)
        if behaviour.versions == 0:
            tells = ~lies
        elif behaviour.versions == 2:  # neighbours get the first and the second in turn
            version = np.arange(len(owner)) >= n
            tells = ~lies | ((links.rank % 2)[:, None] == version)
        passes = ~lies | behaviour.relays
        true = np.where(mine, tells, passes) & ~links.own[:, None]
        false = lies & ~mine & behaviour.forges
        lost = np.zeros_like(mine)
        if self.drop:
            lost = np.random.default_rng([seed, 5, t]).random(mine.shape) < self.drop
        hop, parent = flood(links, owner, true & ~lost, self.hops)
        over = sent(links, owner, hop, parent, true | false, self.hops)

        def status(received: np.ndarray) -> np.ndarray:
            """Which reports of each client [*H, n] were received, by which of all R were."""
            found = received[..., :n].astype(np.int8)  # MISSING or FIRST
            found[..., second] += SECOND * received[..., n:]
            return found

        of_client = np.zeros((len(owner), n), int)
        of_client[np.arange(len(owner)), owner] = 1
        return (
            status((hop != NEVER)[honest]),
            status((over & mine).any(axis=0) | honest[owner]),
            over.sum(axis=0) @ of_client,
            (over & false & ~lost).sum(axis=0) @ of_client,
            np.asarray(links.are_connected(honest)),
        )


def _distinct(status: Int[np.ndarray, "H T n"]) -> tuple[np.ndarray, np.ndarray]:
    """The different sets of reports [U, T, n], and the set that each client has [H]."""
    _, first, which = np.unique(_as_bytes(status), return_index=True, return_inverse=True)
    return status[first], which.ravel()


def _as_bytes(rows: np.ndarray) -> np.ndarray:
    """Rows [H, ...] as one item each [H]; two are equal if they are so bit for bit."""
    rows = np.ascontiguousarray(rows.reshape(len(rows), -1))
    return rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]


def _reports(topology: Topology, reported: np.ndarray, shares: np.ndarray) -> Reports:
    """The reports of all rounds, whose fields are [T, A]."""
    graph = np.array([topology.graph_of(t) for t in range(len(reported))])
    nearby, arcs = jax.tree.map(lambda values: values[graph], (topology.graphs, topology.arcs()))
    return jax.vmap(Reports.of)(nearby, arcs, jnp.asarray(shares), jnp.asarray(reported))


def _trace(
    reports: Reports, sets: Int[np.ndarray, "U T n"], audit: Audit
) -> Float[np.ndarray, "U n n"]:
    """phi from each set of reports (Eq. 3), `SETS_AT_ONCE` sets at a time, by one program."""
    n = sets.shape[-1]
    require_capacity(
        8 * len(sets) * n * n,
        f"clients have {len(sets):,} different contributions of {n:,} clients; lower n_clients, or "
        "set protocol.drop=0",
    )
    padding = -len(sets) % SETS_AT_ONCE
    padded = np.concatenate([sets, sets[:1].repeat(padding, axis=0)])
    chunks = padded.reshape(-1, SETS_AT_ONCE, *sets.shape[1:])
    found = [np.asarray(_trace_some(reports, chunk, audit)) for chunk in chunks]
    return np.concatenate(found)[: len(sets)]


@partial(jax.jit, static_argnames="audit")
def _trace_some(reports: Reports, sets: Array, audit: Audit) -> Array:
    n = sets.shape[-1]

    def of_set(status: Array) -> Array:
        return lax.scan(step, jnp.zeros((n, n)), (reports, status))[0]

    def step(phi: Array, of_round: tuple[Reports, Array]) -> tuple[Array, None]:
        given, status = of_round
        version, itself = status[given.client], given.client == given.member
        counts = (version == FIRST) | (version == SECOND)
        second = RAISED * (itself & (version == SECOND))
        known = replace(
            given,
            weight=jnp.where(counts, given.weight, itself),
            real=given.real & (counts | itself),
            lcv=jnp.where(counts, given.lcv + second, 0),
        )
        return coordinate(phi, known, audit)[0], None

    return jax.vmap(of_set)(sets)


def _whole(
    topology: Topology, sets: Int[np.ndarray, "U T n"], audited: bool
) -> Bool[np.ndarray, "U n"]:
    """Whether a set holds all reports that a row of phi depends on.

    A row depends on the client's last report, on those of its members in the round before, and so
    on. A proof of equivocation stands for a report that names the client alone. An audit compares
    all reports of a round: with one, every row depends on all of them.
    """
    whole = np.ones(sets[:, 0].shape, bool)
    for t in range(sets.shape[1]):
        status = sets[:, t]
        if audited:
            whole &= (status != MISSING).all(axis=1, keepdims=True)
            continue
        nearby = topology.at(t)
        mask, members = np.asarray(nearby.mask), np.asarray(nearby.members)
        ends = np.append(0, np.cumsum(mask.sum(axis=1)))
        about = csr_array((np.ones(ends[-1]), members[mask], ends), shape=2 * (len(mask),))
        all_of = (about @ ~whole.T).T == 0
        whole = np.where(status == BOTH, whole, (status != MISSING) & all_of)
    return whole
