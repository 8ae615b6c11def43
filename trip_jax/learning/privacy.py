"""Differential privacy: what of a client's training leaves it, clipped and noised.

    theta^(t+1/2) = theta^(t) + min(1, C / |Delta|) Delta + sigma C N(0, I)

Delta is the update that training found, C the clip, sigma the noise. Nothing else is done with
Delta, not even by the client itself: its next model is mixed from this one, and is sent, too.

Protected is a client's whole data set, of a size that everyone may know. With any other in its
place the clipped update would have moved by at most 2 C, so that a round is a Gaussian mechanism of
noise sigma / 2, and T rounds in which the client takes part are one of noise sigma / (2 sqrt(T)),
whose epsilon is exact (Balle and Wang, ICML 2018). Every client adds noise of its own, whatever the
others do: the guarantee is local, and holds against all of them and the coordinator together.
Models that are mixed, compressed or evaluated on the shared test set, contributions, reports, lies
and defences are all made from what has left, and spend nothing more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array
from jaxtyping import Float, Key

from trip_jax.settings import Kinds, choice, require
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.idle import chosen_from, read_by_kind

NOISE = np.uint32(2**32 - 1)
"""What the key of a client's training in a round folds in to draw noise; no epoch has it."""

LEAST, MOST = 1e-6, 1e6
"""Bounds of clip, noise and epsilon, beyond which float32 or the accountant would give way."""


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta): what anyone may learn of a client's data."""

    epsilon: float
    delta: float
    noise: float  # standard deviation of what a parameter gets in a round, in clips


@runtime_checkable
class Mechanism(Protocol):
    """What leaves clients of their training; a tree whose numbers are traced, so that federations
    which differ in them alone share programs."""

    def __call__(
        self, before: Float[Array, "R P"], trained: Float[Array, "R P"], keys: Key[Array, " R"]
    ) -> Float[Array, "R P"]:
        """The models that clients send and keep after training, row by row.

        Args:
            before, trained: theta^(t), and what training made of it.
            keys: those of training, one for each client and round.
        """

    def guarantee(self, rounds: int, delta: float) -> Guarantee | None:
        """The guarantee of a client that took part in so many rounds; None if there is none."""


@struct.dataclass
class AsTrained:
    """A mechanism that sends models as they were trained, without privacy."""

    def __call__(
        self, before: Float[Array, "R P"], trained: Float[Array, "R P"], keys: Key[Array, " R"]
    ) -> Float[Array, "R P"]:
        return trained

    def guarantee(self, rounds: int, delta: float) -> Guarantee | None:
        return None


@struct.dataclass
class Gaussian:
    """Updates are clipped and noised; one that is not finite stays so, and ends the run."""

    clip: Any  # [] C
    noise: Any  # [] sigma

    def __call__(
        self, before: Float[Array, "R P"], trained: Float[Array, "R P"], keys: Key[Array, " R"]
    ) -> Float[Array, "R P"]:
        return jax.vmap(self._one)(before, trained, keys)

    def _one(
        self, before: Float[Array, " P"], trained: Float[Array, " P"], key: Key[Array, ""]
    ) -> Float[Array, " P"]:
        update = trained - before
        clipped = update * jnp.minimum(1, self.clip / jnp.linalg.norm(update))
        drawn = jax.random.normal(jax.random.fold_in(key, NOISE), update.shape)
        return before + clipped + self.clip * self.noise * drawn

    def guarantee(self, rounds: int, delta: float) -> Guarantee:
        multiplier = self.noise / (2 * sqrt(rounds)) if rounds else np.inf
        with np.errstate(divide="ignore"):  # the library takes log(0) for -inf
            epsilon = _accountant().get_epsilon_gaussian(multiplier, delta)
        return Guarantee(float(epsilon), delta, self.noise)


def noise_of(epsilon: float, delta: float, rounds: int) -> float:
    """The noise, as a multiple of the clipping norm, with which so many rounds spend epsilon."""
    with np.errstate(divide="ignore"):
        return 2 * sqrt(rounds) * float(_accountant().get_sigma_gaussian(epsilon, delta))


def _accountant() -> Any:
    try:
        import dp_accounting  # half a second that nobody else waits for
    except ImportError as error:
        raise InvalidSetting(
            f"privacy=dp needs a package that can't be imported ({error}): "
            "pip install 'trip-jax[privacy]'."
        ) from error
    return dp_accounting


PRIVACIES: Kinds[Callable[["Privacy", int], Mechanism]] = Kinds("privacy.kind")
"""`(settings, rounds of the run)` -> `Mechanism`."""


@dataclass(frozen=True, repr=False)
class Privacy(Brief):
    """The settings that say what of a client's training leaves the client."""

    kind: str = chosen_from(PRIVACIES, "none")
    # L2 norm that an update has at most
    clip: float = read_by_kind(1.0)
    # standard deviation of what every parameter gets, in clips
    noise: float = read_by_kind(1.0, lambda own: own._told_by_epsilon())
    # or what all rounds spend, whatever the noise
    epsilon: float | None = read_by_kind(None)
    delta: float = read_by_kind(1e-5)

    def __post_init__(self) -> None:
        check_types("privacy", self)
        choice("privacy.kind", self.kind, tuple(PRIVACIES))
        for name in ("clip", "noise", "epsilon"):
            value = getattr(self, name)
            require(
                value is None or LEAST <= value <= MOST,
                f"privacy.{name} must lie between {LEAST:g} and {MOST:g}, not {value}.",
            )
        require(0 < self.delta < 1, f"privacy.delta must be above 0 and below 1, not {self.delta}.")

    def _told_by_epsilon(self) -> str | None:
        return f"privacy.epsilon={self.epsilon}, which finds it" if self.epsilon else None

    def build(self, rounds: int) -> Mechanism:
        """The mechanism by which clients alter what they trained, for a run of so many rounds.

        Raises:
            InvalidSetting: the accountant is not installed.
        """
        return PRIVACIES[self.kind](self, rounds)


PRIVACIES("none", reads=())(lambda settings, rounds: AsTrained())


@PRIVACIES("dp", reads=("clip", "noise", "epsilon", "delta"))
def _gaussian(settings: Privacy, rounds: int) -> Gaussian:
    _accountant()  # needed in the end at the latest
    noise = settings.noise
    if settings.epsilon is not None:
        noise = noise_of(settings.epsilon, settings.delta, rounds)
    return Gaussian(settings.clip, noise)
