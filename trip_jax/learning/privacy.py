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

`dp_predictions` noises instead what clients say of the shared test set, and leaves models alone:

    record = min(1, C / |Y|) Y + sigma C N(0, I)

with Y the logits of theta_j^(t+1/2) and of theta_j^(t+1). Protected is again a client's whole data
set, but only from who sees the records of all clients and nothing else, such as a coordinator:
neighbours see models. Models are exchanged as they are, so any record of any client may depend on
the data; each moves by at most 2 C, all n T of them together by 2 C sqrt(n T). Training reads no
record, so all of them are one Gaussian mechanism of noise sigma / (2 sqrt(n T)). What is computed
from records spends nothing more.
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

from trip_jax.settings import Kinds, choice, measured, require
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.field_texts import with_field_texts
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
    """How clients alter models before they send them.

    It is a tree whose numbers are traced: federations that differ in these alone share programs.
    """

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


@struct.dataclass
class NoisyRecords(AsTrained):
    """Models are sent as they were trained; what clients say of the test set is noised."""

    clip: Any  # [] C
    noise: Any  # [] sigma

    def record(self, said: Float[Array, "n Q2"], keys: Key[Array, " n"]) -> Float[Array, "n Q2"]:
        """The noised logits that clients send of their two models in a round, row by row."""

        def one(said: Float[Array, " Q2"], key: Key[Array, ""]) -> Float[Array, " Q2"]:
            length = jnp.linalg.norm(said)
            clipped = said * jnp.minimum(1, self.clip / jnp.where(length > 0, length, 1))
            return clipped + self.clip * self.noise * jax.random.normal(key, said.shape)

        return jax.vmap(one)(said, keys)

    def guarantee(self, rounds: int, delta: float) -> Guarantee:
        """The guarantee for the records of all clients together.

        Args:
            rounds: n T, the records of all clients and rounds.
        """
        return Gaussian(self.clip, self.noise).guarantee(rounds, delta)


def noise_of(epsilon: float, delta: float, rounds: int) -> float:
    """The noise, as a multiple of the clipping norm, with which so many rounds spend epsilon."""
    with np.errstate(divide="ignore"):
        return 2 * sqrt(rounds) * float(_accountant().get_sigma_gaussian(epsilon, delta))


def _accountant() -> Any:
    try:
        import dp_accounting  # half a second that nobody else waits for
    except ImportError as error:
        raise InvalidSetting(
            f"Differential privacy needs a package that can't be imported ({error}): "
            "pip install 'trip-jax[privacy]'."
        ) from error
    return dp_accounting


RECORDS = "dp_predictions"
"""The kind of privacy that noises what clients say of the test set, in place of their models."""

PRIVACIES: Kinds[Callable[["Privacy", int], Mechanism]] = Kinds("privacy.kind")
"""`(settings, rounds of the run)` -> `Mechanism`."""


@with_field_texts
@dataclass(frozen=True, repr=False)
class Privacy(Brief):
    """The settings that say what of a client's training leaves the client."""

    kind: str = chosen_from(PRIVACIES, "none")  # what gets noise
    # L2 norm that an update, or a record of predictions, has at most
    clip: float = measured(read_by_kind(1.0), "L2 norm")
    # standard deviation of what every parameter, or logit, gets, in clips
    noise: float = measured(
        read_by_kind(1.0, lambda settings: settings._found_by_epsilon()), "clips"
    )
    # privacy loss of the whole run; if set, the noise follows from it
    epsilon: float | None = measured(read_by_kind(None), "nats")
    # the probability with which epsilon may not hold
    delta: float = measured(read_by_kind(1e-5), "probability")

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

    def _found_by_epsilon(self) -> str | None:
        return f"privacy.epsilon={self.epsilon}, which finds it" if self.epsilon else None

    def releases(self, rounds: int, n: int) -> int:
        """What a client's data may move in so many rounds: updates, or all n clients' records."""
        return rounds * n if self.kind == RECORDS else rounds

    def build(self, rounds: int, n: int = 1) -> Mechanism:
        """The mechanism by which clients alter what leaves them, for a run of so many rounds.

        Args:
            n: the number of clients.

        Raises:
            InvalidSetting: the accountant is not installed.
        """
        return PRIVACIES[self.kind](self, self.releases(rounds, n))


PRIVACIES("none", reads=())(lambda settings, rounds: AsTrained())


OF_NOISE = ("clip", "noise", "epsilon", "delta")


@PRIVACIES("dp", reads=OF_NOISE)
def _gaussian(settings: Privacy, rounds: int) -> Gaussian:
    return Gaussian(settings.clip, _noise(settings, rounds))


@PRIVACIES(RECORDS, reads=OF_NOISE)
def _noisy_records(settings: Privacy, rounds: int) -> NoisyRecords:
    return NoisyRecords(settings.clip, _noise(settings, rounds))


def _noise(settings: Privacy, releases: int) -> float:
    _accountant()  # needed in the end at the latest
    if settings.epsilon is None:
        return settings.noise
    return noise_of(settings.epsilon, settings.delta, releases)
