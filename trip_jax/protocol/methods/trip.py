"""TRIP-Shapley's way to compute contributions: a semivalue of the round's game (Eqs. 4 and 5).

Anada, Kaneko, Takamaeda-Yamazaki, "How to Evaluate Participant Contributions in Decentralized
Federated Learning". In the game of client i a member j of a coalition S brings its model after
training, all others theirs before:

    psi_i(j) = sum over S without j of weight(|S|) (u_i(S + j) - u_i(S))

Cost: 2^m models evaluated by a client of m members in a round, or `contribution.budget` of them.
What is sent: beside the models of learning, those before training; 4 m bytes to the coordinator,
which sees no model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from trip_jax.learning.device_maps import gathered_map
from trip_jax.learning.evaluation import N_UTILITIES
from trip_jax.learning.learner import Learner
from trip_jax.protocol.aggregation import AnyRule, coalition_models
from trip_jax.protocol.messages import Inbox
from trip_jax.protocol.methods.facts import COALITIONS, GAIN, MODELS_AND_REPORT, Costs
from trip_jax.protocol.methods.method import Method
from trip_jax.protocol.mixing import members_models
from trip_jax.protocol.round import Round
from trip_jax.protocol.state import Contributions
from trip_jax.shapley import CoalitionRows, estimate
from trip_jax.shapley.exact import semivalues
from trip_jax.topology import Neighbourhoods


@dataclass(frozen=True)
class ByCoalitions(Method):
    """A semivalue of the round's game, whose players swap post- for pre-training models (Eq. 5)."""

    label = "TRIP-Shapley"
    unit = GAIN
    reads: ClassVar[Sequence[str]] = ("normalization", "semivalue", "estimator", "budget")
    costs = Costs(evaluations=COALITIONS, n_bytes=MODELS_AND_REPORT)
    personal = True
    plays_games = True

    semivalue: str
    normalization: str
    estimator: str
    budget: int
    max_coalitions: int

    def work(
        self,
        n_members: Int[np.ndarray, "G n"],
        batch: int,
        alike: Int[np.ndarray, "G n"] | None = None,
    ) -> CoalitionRows:
        """The coalitions, once where the games of clients are `alike`."""
        return CoalitionRows.of(
            n_members,
            batch=batch,
            semivalue=self.semivalue,
            estimator=self.estimator,
            budget=self.budget,
            max_coalitions=self.max_coalitions,
            alike=alike,
        )

    def n_models(
        self, work: CoalitionRows, n_members: Int[np.ndarray, "G n"]
    ) -> Int[np.ndarray, " G"]:
        return work.n_needed(n_members)

    def __call__(
        self, inbox: Inbox, this_round: Round, mix: AnyRule, learner: Learner
    ) -> Contributions:
        drawn = self.drawn(this_round)
        given = (
            this_round.neighbourhoods,
            this_round.work,
            this_round.work.masks(drawn),
            mix,
            learner,
        )
        return self.of_utilities(coalition_utilities(inbox, *given), drawn, inbox, this_round)

    def drawn(self, this_round: Round) -> Bool[Array, "K drawn M"]:
        """The coalitions of clients that sample theirs; no model changes what is drawn."""
        nearby, rows = this_round.neighbourhoods, this_round.work
        keys = this_round.keys_beside(0)[rows.sampled]
        return rows.draw(keys, nearby.mask.sum(axis=1), slots=nearby.mask.shape[1])

    def of_utilities(
        self,
        table: Float[Array, "R U"],
        drawn: Bool[Array, "K drawn M"],
        inbox: Inbox,
        this_round: Round,
    ) -> Contributions:
        """Contributions in games with these utilities, in which contributions are linear.

        Args:
            drawn: the coalitions of clients that sample theirs.
        """
        nearby, rows = this_round.neighbourhoods, this_round.work
        lcv, error = local_contributions(table, drawn, rows, nearby, self.normalization)
        if self.normalization == "paper":
            lost = nearby.lost(inbox.sent.unsent)
            lcv, error = (rescale_to_arrived(values, nearby.mask, lost) for values in (lcv, error))
        return Contributions(lcv, error, table[rows.last])


def coalition_utilities(
    inbox: Inbox,
    nearby: Neighbourhoods,
    rows: CoalitionRows,
    masks: Bool[Array, "R M"],
    mix: AnyRule,
    learner: Learner,
    among: Bool[Array, " R"] | None = None,
) -> Float[Array, "R U"]:
    """The utility of client i's model mixed with coalition S, for each row (i, S).

    Where mixing takes fewer products than a first layer, parts of the test set look at the models
    one after another, and what a part sees is mixed instead of models. Parts are then dealt to the
    devices, else chunks of rows.

    Args:
        masks: the coalition of each row.
        among: which rows are asked for; None: all.

    Returns:
        utilities, 0 for rows that the semivalue does not weigh. With `among` only rows that are
        asked for and weighed have a meaning.
    """
    n_rows, n_devices = len(rows.client), learner.mesh.size
    rows, order = rows.needed(masks, nearby.mask.sum(axis=1), among)
    if order is not None:
        masks = masks[order]
    inbox = replace(inbox, filtered=inbox.filtered | nearby.itself)
    parts = learner.parts(2 * masks.shape[1] + 1) if mix.linear else 0
    parts = -(-parts // n_devices) * n_devices  # so that all have as many

    def of_parts(d, inbox, nearby, rows, masks, data, frozen):
        """What the parts d, d + D, ... of the d-th device add [R, U]."""
        local = learner.on(data, frozen=frozen)

        def add(k, total):
            part = k * n_devices + d
            seen = inbox.seen(lambda models: local.seen(models, part, parts))

            def look(mixed, _):
                return local.evaluate_seen(mixed, part=part, parts=parts)

            return total + of_chunks(seen, nearby, rows, masks, mix, look).reshape(-1, N_UTILITIES)

        nothing = jnp.zeros((len(rows.client), N_UTILITIES))
        return lax.fori_loop(0, parts // n_devices, add, nothing)

    def of_rows(d, inbox, nearby, rows, masks, data, frozen):
        local = learner.on(data, frozen=frozen)

        def look(mixed, clients):
            return local.evaluate_rows(mixed, clients if local.own_tests else None)

        return of_chunks(inbox, nearby, rows, masks, mix, look, d, n_devices)

    given = inbox, nearby, rows, masks, learner.data, learner.model.frozen
    if parts:
        table = gathered_map(learner.mesh, of_parts, *given).sum(axis=0)
    else:
        tables = gathered_map(learner.mesh, of_rows, *given)
        table = tables.swapaxes(0, 1).reshape(-1, N_UTILITIES)  # from [D, chunks, chunk, U]
    if order is not None:
        positions = jnp.where(jnp.arange(n_rows) < rows.n_rows, order, n_rows)
        table = jnp.zeros((n_rows, N_UTILITIES)).at[positions].set(table[:n_rows], mode="drop")
    return cast(Array, table[:n_rows])


def of_chunks(
    inbox: Inbox,
    nearby: Neighbourhoods,
    rows: CoalitionRows,
    masks: Bool[Array, "R M"],
    mix: AnyRule,
    evaluate: Callable[[Float[Array, "c Q"], Int[Array, " c"]], Float[Array, "c U"]],
    d: Array | int = 0,
    n_devices: int = 1,
) -> Float[Array, "chunks chunk U"]:
    """Utilities of mixtures for the chunks d, d + D, ... of the d-th device, and no others.

    Args:
        inbox: models, or what examples see of them.
        evaluate: their mixtures, and the clients that these are of.
    """
    sent, shares = inbox.sent, nearby.shares
    own_trained = inbox.own_trained

    def mixtures(start):
        i = rows.client[start]
        members = nearby.rows[i]
        coalitions = lax.dynamic_slice_in_dim(masks, start, rows.block)
        mixed = coalition_models(
            mix,
            coalitions,
            shares[i],
            members_models(i, members, sent.trained, own_trained),
            sent.before[members],
            inbox.own.before[i],
            inbox.filtered[i],
            members == i,
            nearby.t,
        )
        if inbox.kept is None:
            return mixed
        return inbox.kept.of_coalitions(mixed, i, (coalitions & (members == i)).any(axis=1))

    def chunk(k, table):
        start = (k * n_devices + d) * rows.chunk
        blocks = start + jnp.arange(0, rows.chunk, rows.block)
        mixed = jax.vmap(mixtures)(blocks).reshape(rows.chunk, -1)
        return table.at[k].set(evaluate(mixed, rows.client[start + jnp.arange(rows.chunk)]))

    n_chunks = (rows.n_rows + rows.chunk - 1) // rows.chunk
    mine = (n_chunks - d + n_devices - 1) // n_devices
    most = -(-(len(rows.client) // rows.chunk) // n_devices)
    return lax.fori_loop(0, mine, chunk, jnp.zeros((most, rows.chunk, N_UTILITIES)))


def local_contributions(
    table: Float[Array, "R U"],
    drawn: Bool[Array, "K drawn M"],
    rows: CoalitionRows,
    nearby: Neighbourhoods,
    normalization: str,
) -> tuple[Float[Array, "n M U"], Float[Array, "n M U"]]:
    """psi^(i,t) of every client for every utility (Eq. 4), by slot.

    Args:
        table: u^(i,t)(S) as `coalition_utilities` gives it.
        drawn: the coalitions of the sampled clients.

    Returns:
        contributions and their standard errors, which are 0 where all coalitions were evaluated.
    """
    n_members = nearby.mask.sum(axis=1)
    lcv = semivalues(
        table,
        rows,
        n_members,
        slots=nearby.mask.shape[1],
        normalization=normalization,
        semivalue=rows.semivalue,
    )[rows.player]
    error = jnp.zeros_like(lcv)
    if not len(drawn):
        return lcv, error

    def sampled(one: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        masks, first, m = one
        utilities = lax.dynamic_slice_in_dim(table, first, rows.drawn)
        values, error = estimate(masks, utilities, m, estimator=rows.estimator)
        scale = m if normalization == "paper" else 1
        return values * scale, error * scale

    who = rows.sampled
    values, errors = lax.map(sampled, (drawn, rows.first[who], n_members[who]))
    return lcv.at[who].set(values, mode="drop"), error.at[who].set(errors, mode="drop")


def rescale_to_arrived(
    values: Float[Array, "n M U"], mask: Bool[Array, "n M"], lost: Bool[Array, "n M"]
) -> Float[Array, "n M U"]:
    """Values of Eq. 4 times the share of members whose models arrived.

    A member whose model is lost has no weight and so is a null player: the mean itself is that of
    the game without it.
    """
    m = mask.sum(axis=1)
    return ((m - lost.sum(axis=1)) / m)[:, None, None] * values
