"""Algorithm 1: a round of training, exchange, evaluation and tracing.

A round is three programs, because clients learn whether or not they assess each other, and because
the coordinator sees nothing but reports. Each is a pure function of arrays under fixed rules. Line
numbers are those of the paper.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from trip_jax.learning.learner import Learner
from trip_jax.protocol import coordinator, mailbox
from trip_jax.protocol.delivery import exchange
from trip_jax.protocol.lie import Lie
from trip_jax.protocol.reports import Reports
from trip_jax.protocol.round import Round, Timetable, where
from trip_jax.protocol.rules import Rules
from trip_jax.protocol.state import Assessed, Learned, Record, State, Traced
from trip_jax.topology.push_sum import moved


@jax.jit
def learn(learner: Learner, rules: Rules, timetable: Timetable, state: State) -> Learned:
    """Lines 4 to 7: clients train, send, and mix what arrives."""
    this_round = rules.weigh(timetable.at(state.round), state)
    trained, loss, finite, optimizer = train(learner, rules.adversary, this_round, state)  # line 4
    delivery = exchange(learner, rules, this_round, state, trained, ~finite)  # lines 5 and 6
    models = delivery.mixed(rules.aggregate)  # line 7
    loss = jnp.where(finite, loss, jnp.nan)
    return Learned(models, trained, loss, delivery.unsent, optimizer)


@jax.jit
def assess(
    learner: Learner,
    rules: Rules,
    timetable: Timetable,
    state: State,
    trained: Array,
    unsent: Array,
) -> Assessed:
    """Lines 8 to 19: clients filter what arrived, evaluate coalitions of it, and report."""
    this_round = rules.weigh(timetable.at(state.round), state)
    delivery = exchange(learner, rules, this_round, state, trained, unsent)
    this_round = delivery.this_round
    inbox = delivery.inbox(rules.filter, learner)  # lines 8 to 13
    found = rules.contribute(inbox, this_round, rules.aggregate, learner)  # lines 14 to 18
    found = this_round.where_present(found, found.of_nobody)
    true = found.lcv[..., rules.utility]
    reported = this_round.where_present(rules.adversary.report(true, this_round), true)
    reports = delivery.reports(rules.aggregate, reported)  # line 19
    memory = delivery.remembered(rules.weigh, true)
    return Assessed(found, inbox.filtered, reported, reports, memory)


def train(
    learner: Learner, adversary: Lie, this_round: Round, state: State
) -> tuple[Array, Array, Array, Any]:
    """Line 4: each client present trains; one that is away keeps its model, with a loss of 0.

    Returns:
        the models [n, P] that clients go on with, the mean loss of the last local epoch [n],
        whether training left each client [n] a finite model, and optimiser states if they are kept.
    """
    keys, kept = this_round.training_keys(state.key), state.optimizer
    given = this_round.numbers, keys, this_round.t, kept, state.memory.correction
    trained, loss, optimizer = learner.train_from(state.models, *given)
    found = moved(this_round.factors, state.models, trained), loss, optimizer
    before = state.models, jnp.zeros(len(state.models)), kept
    trained, loss, optimizer = this_round.where_present(found, before)
    finite = jnp.isfinite(trained).all(axis=1)
    optimizer = where(finite, optimizer, kept)
    return adversary.train(state.models, trained, this_round), loss, finite, optimizer


@jax.jit
def coordinate(
    rules: Rules,
    timetable: Timetable,
    phi: Array | None,
    reports: Reports,
    t: Array,
    earlier: Array | None = None,
) -> Traced:
    """Lines 25 to 29: the coordinator audits reports, and traces how contributions propagate.

    Args:
        timetable: what is `public` of it.
        earlier: [K, n, n] rows of phi that belong to earlier messages, as `State.earlier_phi`.
    """
    this_round = timetable.at(t)
    arcs, (n, slots) = this_round.arcs, timetable.topology.graphs.mask.shape[1:]

    def by_slot(values: Array) -> Array:
        values = jnp.where(arcs.real, values, 0)
        return jnp.zeros((n, slots)).at[arcs.client, arcs.slot].add(values)

    # lines 25 to 28
    reports, verdict = coordinator.judge(reports, rules.audit, n, this_round.present)
    shares = by_slot(coordinator.shares(reports, n))
    if phi is not None:  # else scores follow from the records, see traced_back.py
        inherited, phi_before = mailbox.rows_of_phi(phi, earlier, this_round), phi
        phi = coordinator.propagate(phi, reports, inherited)  # line 29
        earlier = mailbox.shifted(earlier, phi_before, this_round)
    return Traced(phi, t + 1, verdict, by_slot(verdict.adopted), shares, earlier)


@dataclass(frozen=True)
class Programs:
    """The three programs of a round, given everything but their last arguments."""

    learn: Callable[..., Learned]  # of (state)
    assess: Callable[..., Assessed]  # of (state, trained, unsent)
    coordinate: Callable[..., Traced]  # of (phi, reports, t, earlier)


def step(programs: Programs, state: State) -> tuple[State, Record]:
    """One round: the state after it, and what it leaves behind."""
    learned = programs.learn(state)
    assessed = programs.assess(state, learned.trained, learned.unsent)
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
            memory=assessed.memory,
            earlier_phi=traced.earlier_phi,
            optimizer=learned.optimizer,
        ),
        Record(
            train_loss=learned.loss,
            utility=found.utility,
            lcv=found.lcv,
            lcv_standard_error=found.lcv_standard_error,
            reported=assessed.reported,
            adopted=traced.adopted,
            shares=traced.shares,
            filtered=assessed.filtered,
            flagged=traced.verdict.flagged,
            distance=traced.verdict.distance,
            unsent=learned.unsent,
            kept=found.kept,
        ),
    )
