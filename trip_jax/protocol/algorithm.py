"""Algorithm 1: a round of training, exchange, evaluation and tracing.

Three programs, because clients learn whether or not they assess each other, and because the
coordinator sees nothing but reports. Each is a pure function of arrays under fixed rules; line
numbers are the paper's.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax import Array

from trip_jax.learning.evaluation import ACCURACY
from trip_jax.learning.learner import Learner
from trip_jax.learning.training import round_keys
from trip_jax.protocol import coordinator, mailbox
from trip_jax.protocol.aggregation import aggregate
from trip_jax.protocol.messages import (
    Assessed,
    Inbox,
    Learned,
    Messages,
    Record,
    Schedule,
    State,
    Traced,
)
from trip_jax.protocol.reports import Reports
from trip_jax.protocol.rules import Rules
from trip_jax.protocol.shards import exchanged


@jax.jit
def learn(learner: Learner, rules: Rules, schedule: Schedule, state: State) -> Learned:
    """What clients do in order to learn."""
    here = rules.weigh(schedule.at(state.round), state)
    keys = round_keys(state.key, here.numbers, state.round)
    trained, loss = learner.train(state.models, here.numbers, keys)  # line 4
    trained = here.of_present(trained, state.models)
    loss = here.of_present(loss, jnp.zeros_like(loss))
    finite = jnp.isfinite(trained).all(axis=1)
    if len(here.liars.numbers):  # a liar whose training fails goes on with what it had
        failed = here.lying & ~finite
        trained = jnp.where(failed[:, None], state.models, trained)
    own = _messages(state, trained, finite)
    given = rules.adversary.send(own, here, learner)
    now, _ = rules.channel(given, here, state.channel, learner)  # lines 5 and 6
    sent = exchanged(now, state.earlier, here)
    nearby = here.of_those_that(sent.arrived).neighbourhoods
    models = aggregate(rules.aggregate, sent.trained, nearby, own.trained_unlike(now))  # line 7
    # A last step that overflows shows in no loss but those of the models it is mixed into.
    return Learned(models, trained, jnp.where(finite, loss, jnp.nan), now.arrived)


@jax.jit
def assess(
    learner: Learner,
    rules: Rules,
    schedule: Schedule,
    state: State,
    trained: Array,
    arrived: Array,
) -> Assessed:
    """What clients do in order to tell contributions."""
    here = rules.weigh(schedule.at(state.round), state)
    own = _messages(state, trained, arrived)
    given = rules.adversary.send(own, here, learner)
    now, remembered = rules.channel(given, here, state.channel, learner)
    remembered = here.of_present(remembered, state.channel)
    earlier = mailbox.with_these(state.earlier, now, here)
    sent = exchanged(now, state.earlier, here)
    if own.trained_unlike(now) is None:
        own = replace(own, trained=sent.trained)  # where they come first
    here = here.of_those_that(sent.arrived)
    nearby = here.neighbourhoods
    sent, readable = sent.readable()
    accepted = ~nearby.lost(~readable) & rules.filter(own, sent, here, learner)  # lines 8 to 13
    inbox = Inbox(own, sent, accepted)
    found = rules.contribute(inbox, here, rules.aggregate, learner)  # lines 14 to 18
    nothing = jnp.zeros_like(found.lcv)
    lcv, error = here.of_present((found.lcv, found.error), (nothing, nothing))
    found = replace(found, lcv=lcv, error=error)
    true = found.lcv[..., rules.utility]
    reported = here.of_present(rules.adversary.report(true, here), true)
    lost = nearby.lost(~sent.arrived)  # models that could not contribute
    received = jnp.where(lost, 0, reported)
    weights = rules.aggregate.traced(nearby)
    reports = Reports.of(nearby, here.arcs, weights, received)  # line 19
    trusted = rules.weigh.remember(state.weighing, here, true)
    trusted = here.of_present(trusted, state.weighing)
    return Assessed(found, accepted, reported, reports, remembered, trusted, earlier)


@jax.jit
def coordinate(
    rules: Rules,
    schedule: Schedule,
    phi: Array | None,
    reports: Reports,
    t: Array,
    earlier: Array | None = None,
) -> Traced:
    """What the coordinator does; of a schedule it needs what is public.

    Args:
        earlier: [K, n, n] rows of phi that belong to earlier messages, as `State.earlier_phi`.
    """
    here = schedule.at(t)
    arcs, (n, slots) = here.arcs, schedule.topology.graphs.mask.shape[1:]

    def by_slot(values: Array) -> Array:
        values = jnp.where(arcs.real, values, 0)
        return jnp.zeros((n, slots)).at[arcs.client, arcs.slot].add(values)

    reports, verdict = coordinator.judge(reports, rules.audit, n, here.present)  # lines 25 to 28
    shares = by_slot(coordinator.shares(reports, n))
    if phi is not None:  # else it is traced back from what is noted, see traced_back.py
        inherited, phi_before = mailbox.rows_of_phi(phi, earlier, here), phi
        phi = coordinator.propagate(phi, reports, inherited)  # line 29
        earlier = mailbox.shifted(earlier, phi_before, here)
    return Traced(phi, t + 1, verdict, by_slot(verdict.adopted), shares, earlier)


def _messages(state: State, trained: Array, arrived: Array) -> Messages:
    """What clients truly have."""
    nobody = jnp.zeros(0, jnp.int32)
    return Messages(state.models, trained, state.utility[:, ACCURACY], arrived, altered=nobody)


@dataclass(frozen=True)
class Programs:
    """The three parts of a round under some rules, on some data."""

    learn: Callable[..., Learned]  # of the state
    assess: Callable[..., Assessed]  # of the state, trained and arrived
    coordinate: Callable[..., Traced]  # of phi, reports, t and earlier rows of phi


def step(programs: Programs, state: State) -> tuple[State, Record]:
    """One round: the state after it, and what it leaves behind."""
    learned = programs.learn(state)
    assessed = programs.assess(state, learned.trained, learned.arrived)
    reported = assessed.reports, state.round, state.earlier_phi
    traced = programs.coordinate(state.phi, *reported)
    found = assessed.contributions
    return (
        State(
            models=learned.models,
            utility=found.utility,
            phi=traced.phi,
            key=state.key,
            round=traced.round,
            channel=assessed.channel,
            weighing=assessed.weighing,
            earlier=assessed.earlier,
            earlier_phi=traced.earlier_phi,
        ),
        Record(
            train_loss=learned.loss,
            utility=found.utility,
            lcv=found.lcv,
            lcv_error=found.error,
            reported=assessed.reported,
            adopted=traced.adopted,
            shares=traced.shares,
            accepted=assessed.accepted,
            flagged=traced.verdict.flagged,
            distance=traced.verdict.distance,
            arrived=learned.arrived,
            kept=found.kept,
        ),
    )
