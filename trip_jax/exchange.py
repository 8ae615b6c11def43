"""What clients receive: pre-training models, fakes among them (D1), and which they replace (C1)."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from trip_jax.adversary import Liars, evade, fake_models
from trip_jax.config import Adversary, Defence
from trip_jax.evaluation import ACCURACY
from trip_jax.models import FlatModel
from trip_jax.records import State
from trip_jax.topology import Neighbourhoods
from trip_jax.training import round_keys


def exchange(
    state: State,
    neighbourhoods: Neighbourhoods,
    liars: Liars,
    *,
    adversary: Adversary,
    defence: Defence,
    model: FlatModel,
    evaluate: Callable[[Array], Array],
) -> tuple[Array, Array]:
    """The pre-training models of one round as they are sent, and which of them are replaced.

    Args:
        evaluate: utilities [b, U] of models [b, P].

    Returns:
        models [n, P], all finite, and slots [n, M] bool in which a receiver puts its own: because
        what it received is not finite, or by C1.
    """
    sent, accuracy = state.models, state.utility[:, ACCURACY]
    sent_accuracy, unusable = accuracy, jnp.zeros(len(sent), bool)
    if adversary.fakes_models:
        who = liars.numbers
        true, keys = sent[who], round_keys(liars.key, who, state.round)
        fakes = fake_models(true, keys, adversary, model)

        def accuracy_of(models: Array) -> Array:
            return evaluate(models)[:, ACCURACY]

        if adversary.fake == "evasive" and not adversary.sends_garbage:
            fakes = evade(true, fakes, accuracy[who] - defence.v_threshold, accuracy_of)
        finite = jnp.isfinite(fakes).all(axis=1)
        unusable = unusable.at[who].set(~finite)
        fakes = jnp.where(finite[:, None], fakes, 0)  # which 0 times NaN would not become
        sent = sent.at[who].set(fakes)
        if defence.c1:
            sent_accuracy = accuracy.at[who].set(accuracy_of(fakes))
    replaced = neighbourhoods.lost(unusable)
    if defence.c1:
        replaced |= filter_pre_training(
            accuracy, sent_accuracy, neighbourhoods, defence.v_threshold
        )
    return sent, replaced


def filter_pre_training(
    own_accuracy: Array, sent_accuracy: Array, neighbourhoods: Neighbourhoods, v_threshold: float
) -> Array:
    """C1: which received pre-training models are replaced by the receiver's own.

    Args:
        own_accuracy: [n] v^(t) of each client's true pre-training model.
        sent_accuracy: [n] v_j^(t) of the model that each client sent.

    Returns:
        bool [n, M]; never for the client itself.
    """
    v_j = sent_accuracy[neighbourhoods.members]
    too_low = v_j < own_accuracy[:, None] - v_threshold
    return too_low & neighbourhoods.mask & ~neighbourhoods.itself
