"""Liars: fake pre-training models (D1), fake contribution vectors (D2), and garbage for both."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from trip_jax.config import Adversary
from trip_jax.errors import InvalidSetting
from trip_jax.models import FlatModel
from trip_jax.topology import Neighbourhoods


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Liars:
    """Who lies in a federation; F of n clients."""

    numbers: Array  # [F] int32, ascending
    lying: Array  # [n] bool
    garbling: Array  # [n] bool, those whose models and reports are garbage
    key: Array  # [] decides the fakes

    @classmethod
    def of(cls, numbers: np.ndarray, n: int, adversary: Adversary, key: Array) -> "Liars":
        lying = np.isin(np.arange(n), numbers)
        arrays = numbers.astype(np.int32), lying, lying & adversary.sends_garbage
        who, lies, garbles = jax.device_put(arrays)
        return cls(who, lies, garbles, key)


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


def fake_models(before: Array, keys: Array, adversary: Adversary, model: FlatModel) -> Array:
    """D1: the pre-training models that liars send in one round, by `adversary.fake`.

    Args:
        before: [F, P] the liars' true pre-training models.
        keys: [F] a key for each liar and round.
        adversary: fakes are "reinitialised": untrained parameters; "noise": Gaussian, with the
            mean and deviation of the true model's parameters; "sign_flipped": the true ones
            negated; "evasive": as "reinitialised", for `evade` to disguise.
    """
    kind = adversary.fake
    if adversary.sends_garbage:
        return jnp.full_like(before, jnp.nan)
    if kind in ("reinitialised", "evasive"):
        return jax.vmap(model.draw)(keys)
    if kind == "noise":
        mean, deviation = before.mean(axis=1, keepdims=True), before.std(axis=1, keepdims=True)
        noise = jax.vmap(lambda key: jax.random.normal(key, before.shape[1:]))(keys)
        return mean + deviation * noise
    return -before


def evade(
    before: Array,
    fakes: Array,
    floor: Array,
    accuracy: Callable[[Array], Array],
    steps: int = 8,
) -> Array:
    """The mixtures of true and fake models that are as false as C1 lets pass.

    Args:
        before: [F, P] the liars' true pre-training models.
        fakes: [F, P].
        floor: [F] the accuracy that a receiver with the liar's own accuracy tolerates.
        accuracy: of models [b, P].
        steps: how many mixtures are tried.

    Returns:
        models [F, P]; a true one where no mixture is good enough.
    """
    shares = jnp.arange(1, steps + 1) / steps

    def one(liar: tuple[Array, Array, Array]) -> Array:
        true, fake, floor = liar
        passes = accuracy(true + shares[:, None] * (fake - true)) >= floor
        return true + jnp.max(jnp.where(passes, shares, 0)) * (fake - true)

    return lax.map(one, (before, fakes, floor))


def falsify_lcvs(
    lcv: Array,
    neighbourhoods: Neighbourhoods,
    lying: Array,
    adversary: Adversary,
    normalization: str,
) -> Array:
    """D2: everyone lying [n] adds `adversary.amount` to its own entry of its vector [n, M].

    Under the "efficient" normalisation, where entries are m times smaller, the amount is divided
    by m. With `adversary.lower_others` all other entries of the vector lose as much; with
    `adversary.collude` the entries of other liars are raised like its own. Garbage fills a
    vector's unused slots, too.
    """
    if adversary.sends_garbage:
        return jnp.where(lying[:, None], jnp.nan, lcv)
    lies = lying[:, None] & neighbourhoods.mask
    raised = lying[neighbourhoods.members] if adversary.collude else neighbourhoods.itself
    m = neighbourhoods.mask.sum(axis=1, keepdims=True)
    amount = adversary.amount / (m if normalization == "efficient" else 1)
    others = -amount if adversary.lower_others else 0
    return lcv + jnp.where(lies, jnp.where(raised, amount, others), 0)
