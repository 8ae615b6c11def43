"""Liars: fake pre-training models (D1) and fake contribution vectors (D2)."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trip_jax.config import Adversary
from trip_jax.errors import InvalidSetting
from trip_jax.models import FlatModel
from trip_jax.topology import Neighbourhoods


def choose_liars(adversary: Adversary, n: int, seed: int) -> np.ndarray:
    """The liars' numbers in ascending order: the named clients, else a fraction drawn by seed.

    Raises:
        InvalidSetting: a named client does not exist.
    """
    if adversary.kind == "none":
        return np.array([], int)
    for client in adversary.clients:
        if not 0 <= client < n:
            raise InvalidSetting(
                f"adversary.clients names client {client}, but with n_clients={n} clients are "
                f"numbered from 0 to {n - 1}."
            )
    if adversary.clients:
        return np.unique(adversary.clients)
    count = round(adversary.fraction * n)
    if adversary.fraction > 0 and count == 0:
        raise InvalidSetting(
            f"adversary.fraction={adversary.fraction} of n_clients={n} is less than one client: "
            "raise it, name adversary.clients, or set adversary=none."
        )
    drawn = np.random.default_rng([seed, 3]).permutation(n)
    return np.sort(drawn[:count])


def fake_models(before: Array, keys: Array, kind: str, model: FlatModel) -> Array:
    """D1: the pre-training models that liars send in one round.

    Args:
        before: [F, P] the liars' true pre-training models.
        keys: [F] a key for each liar and round.
        kind: "reinitialised": untrained parameters; "noise": Gaussian, with the mean and
            deviation of the true model's parameters; "sign_flipped": the true ones negated.
    """
    if kind == "reinitialised":
        return jax.vmap(model.draw)(keys)
    if kind == "noise":
        mean, deviation = before.mean(axis=1, keepdims=True), before.std(axis=1, keepdims=True)
        noise = jax.vmap(lambda key: jax.random.normal(key, before.shape[1:]))(keys)
        return mean + deviation * noise
    return -before


def falsify_lcvs(
    lcv: Array,
    neighbourhoods: Neighbourhoods,
    liars: np.ndarray,
    adversary: Adversary,
    normalization: str,
) -> Array:
    """D2: every liar adds `adversary.amount` to its own entry of its finished vector [n, M].

    Under the "efficient" normalisation, where entries are m times smaller, the amount is divided
    by m. With `adversary.lower_others` all other entries of the vector lose as much.
    """
    lies = jnp.zeros(len(lcv), bool).at[liars].set(True)[:, None] & neighbourhoods.mask
    m = neighbourhoods.mask.sum(axis=1, keepdims=True)
    amount = adversary.amount / (m if normalization == "efficient" else 1)
    others = -amount if adversary.lower_others else 0
    return lcv + jnp.where(lies, jnp.where(neighbourhoods.itself, amount, others), 0)
