"""What a federation begins with: keys, learner, rules and the state before the first round."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding

from trip_jax.data.federation import as_seen
from trip_jax.federation import Federation, Settings
from trip_jax.learning.batches import default_batches
from trip_jax.learning.flat_model import FlatModel
from trip_jax.learning.learner import Learner
from trip_jax.learning.mesh import replicated
from trip_jax.learning.targets import NUMBERS, Targets
from trip_jax.learning.utilities import columns, require_of_task
from trip_jax.programs import token_of
from trip_jax.protocol import mailbox
from trip_jax.protocol.aggregation import AnyRule, as_rule
from trip_jax.protocol.rules import Rules
from trip_jax.protocol.state import Memory, State
from trip_jax.topology import Topology


def keys_of(seed: int) -> tuple[Array, Array, Array]:
    """The keys of training, of the initial model, and of all other draws of a run."""
    base, init, other = jax.random.split(jax.random.key(seed), 3)
    return base, init, other


def learner_of(federation: Federation, mesh: Mesh) -> Learner:
    """The learner of a federation, before its initial model is drawn."""
    data, settings = replace(federation.data, names=None), federation.settings
    training, contribution = settings.training, settings.contribution
    rounds = 1 if training.rate is None else training.rounds
    examples = as_seen(data.images[:1])
    example = examples.shape[1:], examples.dtype
    targets = Targets.of(data.labels)
    require_of_task(contribution.utility, targets.task == NUMBERS)
    given = *example, replicated(mesh), training.stays, targets
    flat = FlatModel.of(federation.model, *given)
    judged = data.test_images if data.tests is None else data.test_images[data.tests[0]]
    client_batch, coalition_batch = default_batches(mesh, flat, judged)
    return Learner(
        flat,
        jax.device_put(data, replicated(mesh)),
        replace(training, rounds=rounds, client_batch=None),
        mesh,
        settings.precision,
        training.client_batch or client_batch,
        contribution.coalition_batch or coalition_batch,
        columns(contribution.utility)[2],
        equal=bool(np.ptp(np.asarray(data.sizes)) == 0),
        mechanism=settings.privacy.build(training.rounds, federation.n),
        given=settings.optimizer,
    )


def aggregation_of(settings: Settings) -> AnyRule:
    """The rule that mixes models: the one given, or that of the settings."""
    given = settings.rules.get("aggregate")
    return as_rule(given) if given else settings.aggregation.build()


def topology_of(federation: Federation) -> Topology:
    """The graphs of a federation without names, with the mixing weights of its rule.

    Raises:
        InvalidSetting: graphs or training that the rule can't follow.
    """
    settings, topology = federation.settings, federation.topology.without_names()
    given = settings.training, federation.data.sizes, settings.optimizer is not None
    return aggregation_of(settings).weighed(topology, *given)


def rules_of(federation: Federation, learner: Learner) -> Rules:
    """The rules that the settings name, and those given in their place."""
    settings, defence = federation.settings, federation.defence
    contribution = settings.contribution
    adversary = settings.adversary.aimed(federation.n, settings.seed, federation.names)
    lie = adversary.lie(settings.defence.v_threshold, contribution.scaling)
    rules: dict[str, Any] = {
        "weigh": settings.trust.build(),
        "adversary": lie,
        "channel": settings.channel.build(),
        "filter": defence.filter(),
        "contribute": contribution.build().facing(lie, defence.check()),
        "utility": columns(contribution.utility).index(contribution.utility),
        "audit": defence.audit(),
        **settings.rules,
        "aggregate": aggregation_of(settings),
    }
    given = learner.given or ()  # the functions of an optimiser
    token = token_of(learner.model.model, learner.mechanism, *given, *rules.values())
    return Rules(only_for=token, **rules)


def _of_everyone(learner: Learner, theta: Array, n: int) -> Array:
    """The utilities [n, 3] of one model to n clients."""
    if learner.own_tests:
        return learner.evaluate(jnp.tile(theta, (n, 1)))
    return jnp.tile(learner.evaluate(theta[None]), (n, 1))


evaluate = jax.jit(Learner.evaluate)
"""Compiled, for models that are evaluated beside a run."""


@partial(jax.jit, static_argnames=("keeps_phi", "n_earlier", "n_rows", "where", "corrects"))
def start(
    learner: Learner,
    rules: Rules,
    key: Array,
    keeps_phi: bool,
    n_earlier: int,
    n_rows: int,
    where: NamedSharding,
    corrects: bool,
) -> State:
    """The state before the first round: everyone has the learner's model.

    Args:
        n_earlier: messages of each client that are kept beside its newest.
        n_rows: of models, where devices divide them.
        where: models lie.
        corrects: whether clients keep corrections of their gradients.
    """
    n, theta, mesh = len(learner.data.sizes), learner.model.theta, learner.mesh
    models = jnp.tile(theta, (n_rows, 1))
    state = State(
        models=models,
        utility=_of_everyone(learner, theta, n),
        phi=jnp.zeros((n, n)) if keeps_phi else None,
        key=key,
        round=jnp.int32(0),
        memory=Memory(
            channel=rules.channel.start(learner.model.sent(models)),
            weighing=rules.weigh.start(n),
            mailbox=mailbox.empty(learner.model.sent(models), n_earlier),
            correction=jnp.zeros_like(models) if corrects else None,
        ),
        earlier_phi=jnp.zeros((n_earlier, n, n)) if keeps_phi and n_earlier else None,
        optimizer=learner.optimizer_states(models),
    )
    state = lax.with_sharding_constraint(state.with_models(None), replicated(mesh))
    return state.with_models(lax.with_sharding_constraint(models, where))
