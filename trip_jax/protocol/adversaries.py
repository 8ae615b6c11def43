"""Liars: fake models before training (D1), false reports (D2) or predictions (D3), and garbage.

Those who attack what others learn are in attacks.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from trip_jax.learning.learner import Learner
from trip_jax.protocol import claims
from trip_jax.protocol.attacks import ATTACKS, Attack, LabelFlips
from trip_jax.protocol.claims import CLAIMS, Said
from trip_jax.protocol.fakes import FAKES
from trip_jax.protocol.lie import Lie
from trip_jax.protocol.messages import Messages
from trip_jax.protocol.round import Round
from trip_jax.settings import Kinds, at_least, choice, fraction, measured, require
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types, instance
from trip_jax.settings.field_texts import with_field_texts
from trip_jax.settings.idle import Effect, chosen_from, read_by_kind, read_unless
from trip_jax.settings.names import number_of

LIES: Kinds[Callable[["Adversary", float, bool], Lie]] = Kinds("adversary.kind")
"""Functions that build a lie from settings, C1's threshold, and whether psi is divided by m."""


@with_field_texts
@dataclass(frozen=True, repr=False)
class Adversary(Brief):
    """Who lies and how, as settings.

    "garbage" is neither D1 nor D2: all that such a liar sends and reports is no number.
    """

    kind: str = chosen_from(LIES, "none")  # the lie or the attack
    # of the clients, drawn by seed
    fraction: float = measured(
        read_unless(0.2, lambda settings: settings._nobody() or settings._listed()),
        "share of the clients",
    )
    # or these clients, by number or name, whatever the fraction
    clients: tuple[int | str, ...] = measured(
        read_unless((), lambda settings: settings._nobody()), "clients"
    )
    # D1: what the fake model is
    fake: str = chosen_from(FAKES, "reinitialised", Effect(by_kind=True))
    # D2: added to the liar's own entry (divided by m under "efficient")
    amount: float = measured(read_by_kind(0.1), "unit of contributions")
    # D2: take as much from every other entry
    lower_others: bool = read_by_kind(False)
    # D2: treat the entries of other liars as one's own; D3: confirm what other liars claim
    collude: bool = read_by_kind(False)
    # attacks on learning: in the unit of each; None: its own
    strength: float | None = measured(
        read_by_kind(None), "deviations with alie, parameters with noise, else lengths of an update"
    )
    # D3: what is false of predictions
    claim: str = chosen_from(CLAIMS, "praise", Effect(by_kind=True))
    # D3: by how much, on true classes
    logits: float = measured(read_by_kind(3.0), "logits")
    # D3: the client that is sabotaged, by number or name; None: the first that is honest
    victim: int | str | None = measured(read_by_kind(None), "client")

    def __post_init__(self) -> None:
        check_types("adversary", self)
        choice("adversary.kind", self.kind, tuple(LIES))
        choice("adversary.fake", self.fake, tuple(FAKES))
        fraction("adversary.fraction", self.fraction)
        choice("adversary.claim", self.claim, tuple(CLAIMS))
        at_least("adversary.amount", self.amount, 0)
        at_least("adversary.strength", self.strength, 0)
        at_least("adversary.logits", self.logits, 0)

    def _nobody(self) -> str | None:
        return "adversary=none" if self.kind == "none" else None

    def _listed(self) -> str | None:
        return "adversary.clients, which say who lies" if self.clients else None

    def aimed(self, n: int, seed: int, names: Sequence[str] | None = None) -> "Adversary":
        """These settings with the number of the victim among n clients, where there is one.

        Raises:
            InvalidSetting: there is no such client, it lies itself, or nobody is honest.
        """
        if self.kind != "d3" or "victim" not in CLAIMS.reads(self.claim):
            return self
        liars = choose_liars(self, n, seed, names)
        honest = np.setdiff1d(np.arange(n), liars)
        require(len(honest) > 0, "adversary.claim=sabotage needs a victim, and all clients lie.")
        if self.victim is None:
            return replace(self, victim=int(honest[0]))
        victim = _number("adversary.victim", self.victim, n, names)
        lies = f"adversary.victim={self.victim} lies itself: name an honest client."
        require(victim in honest, lies)
        return replace(self, victim=victim)

    def lie(self, v_threshold: float, normalization: str) -> Lie:
        """What liars do under these settings.

        Args:
            v_threshold: the threshold of C1, which liars know.
            normalization: how contributions are normalised.

        Raises:
            InvalidSetting: the function registered for this kind returns no `Lie`.
        """
        made = LIES[self.kind](self, v_threshold, normalization == "efficient")
        return require_lie(f"What LIES({self.kind!r}) makes", made)


def require_lie(name: str, given: Any) -> Lie:
    """Refuse an object that is no `Lie`; the error calls it `name`."""
    return instance(name, given, Lie, "make it a subclass of trip_jax.protocol.adversaries.Lie")


@dataclass(frozen=True)
class Honest(Lie):
    """The adversary of a federation in which nobody lies."""


@dataclass(frozen=True)
class FakeModels(Honest):
    """D1: liars send fake pre-training models; they themselves use the true ones."""

    fake: str
    v_threshold: float
    plain_learning = True

    def send(self, own: Messages, this_round: Round, learner: Learner) -> Messages:
        who = this_round.liars.numbers
        tolerated = own.accuracy[who] - self.v_threshold
        fakes = FAKES[self.fake](own.before[who], this_round.keys(who), tolerated, learner)
        return replace(own, before=own.before.at[who].set(fakes), altered=who)


@dataclass(frozen=True)
class FalseReports(Honest):
    """D2: liars raise entries of their contribution vectors."""

    amount: float
    lower_others: bool
    collude: bool
    divided: bool  # whether the amount is divided by m, as contributions are

    def report(self, lcv: Float[Array, "n M"], this_round: Round) -> Float[Array, "n M"]:
        nearby = this_round.neighbourhoods
        lies = this_round.lying[:, None] & nearby.mask
        raised = this_round.liars.mask[nearby.members] if self.collude else nearby.itself
        m = nearby.mask.sum(axis=1, keepdims=True)
        amount = self.amount / (m if self.divided else 1)
        others = -amount if self.lower_others else 0
        return lcv + jnp.where(lies, jnp.where(raised, amount, others), 0)


@dataclass(frozen=True)
class FalsePredictions(Honest):
    """D3: liars claim that their models say of the test set what they do not say."""

    claim: str
    logits: float
    victim: int
    collude: bool

    def say(self, true: Said, this_round: Round, learner: Learner) -> Said:
        labels, lying = learner.data.test_labels, this_round.lying
        options = self.logits, self.victim
        known = claims.known(this_round, labels, true.trained.shape[1] // len(labels), *options)
        claimed = claims.of_liars(CLAIMS[self.claim](true, known), true, lying)
        return claims.confirmed(claimed, lying) if self.collude else claimed


@dataclass(frozen=True)
class Both(Lie):
    """Liars lie about models by one lie and about contributions by another."""

    models: Lie
    reports: Lie

    @property
    def plain_learning(self) -> bool:
        return self.models.plain_learning

    def send(self, own: Messages, this_round: Round, learner: Learner) -> Messages:
        return self.models.send(own, this_round, learner)

    def report(self, lcv: Float[Array, "n M"], this_round: Round) -> Float[Array, "n M"]:
        return self.reports.report(lcv, this_round)


@dataclass(frozen=True)
class Garbage(Lie):
    """Liars send and report NaN, also in slots that no member has.

    Their models after training are as they were; they are marked as unsent.
    """

    plain_learning = True

    def send(self, own: Messages, this_round: Round, learner: Learner) -> Messages:
        who = this_round.liars.numbers
        return replace(
            own,
            before=own.before.at[who].set(jnp.nan),
            unsent=own.unsent | this_round.lying,
            altered=who,
        )

    def report(self, lcv: Float[Array, "n M"], this_round: Round) -> Float[Array, "n M"]:
        return jnp.where(this_round.lying[:, None], jnp.nan, lcv)


OF_D1, OF_D2 = ("fake",), ("amount", "lower_others", "collude")
OF_D3 = ("claim", "logits", "victim", "collude")
"""Settings that only these lies read; who lies is of every kind."""

LIES("none", reads=())(lambda settings, v_threshold, divided: Honest())
LIES("d1", reads=OF_D1)(
    lambda settings, v_threshold, divided: FakeModels(settings.fake, v_threshold)
)
LIES("d2", reads=OF_D2)(
    lambda settings, v_threshold, divided: FalseReports(
        settings.amount, settings.lower_others, settings.collude, divided
    )
)
LIES("d1d2", reads=OF_D1 + OF_D2)(lambda *given: Both(LIES["d1"](*given), LIES["d2"](*given)))


@LIES("d3", reads=OF_D3)
def _false_predictions(settings: Adversary, v_threshold: float, divided: bool) -> Lie:
    # Claims without a victim do not use it.
    victim = settings.victim if isinstance(settings.victim, int) else 0
    return FalsePredictions(settings.claim, settings.logits, victim, settings.collude)


LIES("garbage", reads=())(lambda settings, v_threshold, divided: Garbage())
LIES("label_flips", reads=())(lambda settings, v_threshold, divided: LabelFlips())


def _register(name: str, attack: type[Attack]) -> None:
    LIES(name, reads=("strength",))(
        lambda settings, v_threshold, divided: attack(
            attack.usual if settings.strength is None else settings.strength
        )
    )


for _name, _attack in ATTACKS.items():
    _register(_name, _attack)


def choose_liars(
    adversary: Adversary, n: int, seed: int, names: Sequence[str] | None = None
) -> np.ndarray:
    """The liars' numbers in ascending order: the named clients, else a fraction drawn by seed.

    Args:
        names: what the n clients are called; None: they have numbers alone. An integer stands for
            the client of that name if there is one, else for the client of that number.

    Raises:
        InvalidSetting: a named client does not exist, or none of the named would lie.
    """
    if adversary.kind == "none":
        require(
            not adversary.clients,
            "adversary.clients name who lies, but nobody does with adversary.kind=none: name "
            "another kind, or leave them out.",
        )
        return np.array([], int)
    if adversary.clients:
        return np.unique([_number("adversary.clients", one, n, names) for one in adversary.clients])
    mend = "raise it, name adversary.clients, or set adversary=none"
    return drawn_liars("adversary.fraction", adversary.fraction, n, seed, mend)


def _number(setting: str, client: int | str, n: int, names: Sequence[str] | None) -> int:
    """The number of a client; an integer stands for the client of that name if there is one."""
    by_name = isinstance(client, str) or str(client) in (names or ())
    return number_of(setting, str(client), n, names if by_name else None)


def drawn_liars(
    setting: str, share: float, n: int, seed: int, mend: str = "raise it, or set it to 0"
) -> np.ndarray:
    """The numbers of a share of n clients, drawn by seed, in ascending order.

    A larger share holds all clients of a smaller one.

    Args:
        setting: the name of the share, for the message.
        mend: what the message asks the user to do.

    Raises:
        InvalidSetting: the share is above 0, but is less than one client.
    """
    count = round(share * n)
    require(
        count > 0 or share == 0,
        f"{setting}={share} of n_clients={n} is less than one client: {mend}.",
    )
    drawn = np.random.default_rng([seed, 3]).permutation(n)
    return np.sort(drawn[:count])
