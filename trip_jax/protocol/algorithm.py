"""Algorithm 1: a round of training, exchange, evaluation and tracing.

Three programs, because clients learn whether or not they assess each other, and because the
coordinator sees nothing but reports. Each is a pure function of arrays under fixed rules; line
numbers are the paper's.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from trip_jax.learning.learner import Learner
from trip_jax.protocol import coordinator, mailbox
from trip_jax.protocol.delivery import exchange
from trip_jax.protocol.messages import (
    Assessed,
    Learned,
    Record,
    Round,
    Schedule,
    State,
    Traced,
)
from trip_jax.protocol.reports import Reports
from trip_jax.protocol.rules import Rules


@jax.jit
def learn(learner: Learner, rules: Rules, schedule: Schedule, state: State) -> Learned:
    """Lines 4 to 7: clients train, send, and mix what arrives."""
    here = rules.weigh(schedule.at(state.round), state)
    trained, loss, finite = train(learner, here, state)  # line 4
    post = exchange(learner, rules, here, state, trained, finite)  # lines 5 and 6
    models = post.mixed(rules.aggregate)  # line 7
    return Learned(models, trained, jnp.where(finite, loss, jnp.nan), post.now.arrived)


@jax.jit
def assess(
    learner: Learner,
    rules: Rules,
    schedule: Schedule,
    state: State,
    trained: Array,
    arrived: Array,
) -> Assessed:
    """Lines 8 to 19: clients filter what arrived, evaluate coalitions of it, and report."""
    here = rules.weigh(schedule.at(state.round), state)
    post = exchange(learner, rules, here, state, trained, arrived)
    inbox = post.inbox(rules.filter, learner)  # lines 8 to 13
    found = rules.contribute(inbox, post.here, rules.aggregate, learner)  # lines 14 to 18
    found = here.of_present(found, found.of_nobody)
    true = found.lcv[..., rules.utility]
    reported = here.of_present(rules.adversary.report(true, post.here), true)
    reports = post.reports(rules.aggregate, reported)  # line 19
    trusted = rules.weigh.remember(state.weighing, post.here, true)
    remembered = here.of_present((post.remembered, trusted), (state.channel, state.weighing))
    channel, weighing = remembered
    return Assessed(found, inbox.accepted, reported, reports, channel, weighing, post.kept)


def train(learner: Learner, here: Round, state: State) -> tuple[Array, Array, Array]:
    """Line 4: each client present trains; one that is away keeps its model, with a loss of 0.

    Returns:
        the models [n, P], the mean loss of the last local epoch [n], and whether a model is finite.
    """
    trained, loss = learner.train(state.models, here.numbers, here.training_keys(state.key))
    trained, loss = here.of_present((trained, loss), (state.models, jnp.zeros_like(loss)))
    finite = jnp.isfinite(trained).all(axis=1)
    if len(here.liars.numbers):  # a liar whose training fails goes on with what it had
        trained = jnp.where((here.lying & ~finite)[:, None], state.models, trained)
    return trained, loss, finite


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
